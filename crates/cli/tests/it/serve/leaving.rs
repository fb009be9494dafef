//! Who goes while something is under way.

use super::client::{Server, request, wait_until};
use crate::world::{World, able};
use std::io::Write;
use std::time::{Duration, Instant};

/// Requests that are being carried out, by the server's own count.
fn active(server: &Server) -> u64 {
    let page = server.own("GET", "/metrics", "").body;
    let line = page.lines().find_map(|line| line.strip_prefix("fractal_requests_active "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{page}"))
}

#[test]
fn what_is_only_read_stops_when_nobody_waits_for_it() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    // Sizes are claims: these take no room, and reading them takes minutes.
    let script = "truncate -s 800G huge; for n in 1 2 3 4 5 6 7 8; do truncate -s 250M s$n; done";
    world.ok(&["run", "--name", "s", "--disk", "2000g", "--", "sh", "-c", script]);
    let key = server.key(r#"{"role":"operator","tenant":"owner"}"#);
    for path in ["export", "patch"] {
        let bearer = format!("Authorization: Bearer {key}");
        let asked = request("GET", &format!("/v1/sandboxes/s/{path}"), "localhost", &[&bearer], "");
        let before = active(&server);
        let mut stream = server.connect();
        stream.write_all(&asked).expect("it is taken");
        wait_until(|| active(&server) > before);
        std::thread::sleep(Duration::from_millis(300));
        assert!(active(&server) > before, "{path} is over too soon to say anything");
        drop(stream);
        let left = Instant::now();
        wait_until(|| active(&server) <= before);
        assert!(left.elapsed() < Duration::from_secs(20), "{path}: {:?}", left.elapsed());
    }
}
