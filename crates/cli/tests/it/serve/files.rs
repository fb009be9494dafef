//! Files and archives by their content, and what hostile ones meet.

use super::client::{Server, wait_until};
use crate::world::{World, able};
use serde_json::json;

/// A server with a sandbox `s`.
fn started(world: &World, more: &[&str]) -> Server {
    let server = Server::start_with(world, more);
    let made = server.own("POST", "/v1/sandboxes", r#"{"name":"s"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    server
}

fn at(path: &str) -> String {
    format!("/v1/sandboxes/s/files/{path}")
}

#[test]
fn what_is_put_is_what_comes_back() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = started(&world, &[]);
    let own = |method: &str, path: &str, body: &[u8]| server.content(None, method, path, body);
    let content: Vec<u8> = (0..3_000_000u32).map(|number| (number * 7 % 251) as u8).collect();
    let put = own("PUT", &at("new/deep/%ff%20x?executable=true"), &content);
    assert_eq!(put.status, 200, "{}", put.body);
    assert_eq!(
        (&put.json()["created"], &put.json()["size_bytes"]),
        (&json!(true), &json!(3_000_000))
    );
    let got = own("GET", &at("new/deep/%ff%20x"), b"");
    assert_eq!((got.status, got.bytes == content), (200, true));
    let headers = got.headers.to_ascii_lowercase();
    assert!(headers.contains("content-type: application/octet-stream"), "{headers}");
    let head = own("HEAD", &at("new/deep/%ff%20x"), b"");
    assert!(
        head.headers.to_ascii_lowercase().contains("content-length: 3000000"),
        "{}",
        head.headers
    );
    assert!(head.bytes.is_empty());
    assert_eq!(own("PUT", &at("empty"), b"").json()["created"], true);
    assert_eq!(own("GET", &at("empty"), b"").bytes, b"");
    let run = server.own(
        "POST",
        "/v1/sandboxes/s/run",
        r#"{"command":["sh","-c","cat new/deep/* | wc -c; test -x new/deep/*"]}"#,
    );
    assert_eq!((&run.json()["stdout"], &run.json()["exit"]), (&json!("3000000\n"), &json!(0)));
    // Work like any other: it shows, and reality has nothing of it.
    assert!(server.own("GET", "/v1/sandboxes/s/diff", "").body.contains("/new/deep"));
    assert!(!world.project().join("new").exists());
    let log = server.own("GET", "/v1/sandboxes/s/log", "").body;
    assert!(log.contains(r#""way":"in""#) && log.contains(r#""way":"out""#), "{log}");
}

#[test]
fn directories_are_listed_page_by_page_and_deleted_when_that_is_meant() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = started(&world, &[]);
    let own = |method: &str, path: &str| server.content(None, method, path, b"x");
    for name in ["d/a", "d/b", "d/%ffc", "d/sub/f"] {
        assert_eq!(own("PUT", &at(name)).status, 200);
    }
    let mut names = Vec::new();
    let mut page = "/v1/sandboxes/s/files?path=d&limit=1".to_owned();
    loop {
        let list = server.own("GET", &page, "").json();
        names.push(list["entries"][0]["name"].as_str().expect("a name").to_owned());
        let Some(next) = list["next"].as_str() else { break };
        page = format!("/v1/sandboxes/s/files?path=d&limit=1&after={}", next.replace('%', "%25"));
    }
    assert_eq!(names, ["a", "b", "sub", "\u{fffd}c"]);
    own("GET", &at("d")).refusal(400, "invalid");
    server.own("GET", "/v1/sandboxes/s/files?path=d/a", "").refusal(400, "invalid");
    server.own("GET", "/v1/sandboxes/s/files?limit=0", "").refusal(400, "invalid");
    own("PUT", &at("d")).refusal(400, "invalid");
    own("PUT", &at("d/a/below")).refusal(400, "invalid");
    own("DELETE", &at("d")).refusal(400, "invalid");
    assert_eq!(own("DELETE", &at("d/a")).json()["deleted"], true);
    own("DELETE", &at("d/a")).refusal(404, "not_found");
    assert_eq!(own("DELETE", &at("d?recursive=true")).status, 200);
    own("GET", &at("d/b")).refusal(404, "not_found");
    own("DELETE", &at(".?recursive=true")).refusal(403, "denied");
}

#[test]
fn links_and_dots_lead_no_further_than_the_sandbox() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = started(&world, &[]);
    let outside = world.state().join("server.sock").with_file_name("state.db");
    let script = format!(
        "ln -s {} db; ln -s / root; ln -s nowhere gone; echo in > real; ln -s real link",
        outside.display()
    );
    let body = json!({ "command": ["sh", "-c", script] }).to_string();
    assert_eq!(server.own("POST", "/v1/sandboxes/s/run", &body).json()["exit"], 0);
    let key = server.key(r#"{"role":"runner","tenant":"owner"}"#);
    let ask = |method: &str, path: &str| server.content(Some(&key), method, &at(path), b"new");
    let up = "..%2F".repeat(20) + "etc%2Fhostname";
    for path in ["db", "root/etc/hostname", "/etc/hostname", "%2Fetc%2Fhostname", up.as_str()] {
        let got = ask("GET", path);
        assert!([403, 404].contains(&got.status), "{path}: {}", got.body);
        let put = ask("PUT", path);
        assert!([400, 403, 404].contains(&put.status), "{path}: {}", put.body);
        let gone = ask("DELETE", path.trim_start_matches("db"));
        assert!([308, 400, 403, 404, 405].contains(&gone.status), "{path}: {}", gone.body);
    }
    ask("GET", "a%00b").refusal(400, "invalid");
    ask("PUT", &"x".repeat(300)).refusal(400, "invalid");
    ask("GET", "a%2").refusal(400, "invalid");
    ask("GET", &"x/".repeat(3000)).refusal(400, "invalid");
    // A link is written through inside, and deleted itself.
    assert_eq!(ask("GET", "link").bytes, b"in\n");
    assert_eq!(ask("PUT", "link").status, 200);
    assert_eq!(ask("GET", "real").bytes, b"new");
    assert_eq!(ask("DELETE", "link").status, 200);
    assert_eq!((ask("GET", "link").status, ask("GET", "real").status), (404, 200));
}

#[test]
fn a_viewer_reads_and_a_runner_writes() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = started(&world, &[]);
    let viewer = server.key(r#"{"role":"viewer","tenant":"owner"}"#);
    let runner = server.key(r#"{"role":"runner","tenant":"owner"}"#);
    let ask =
        |key: &str, method: &str, path: &str| server.content(Some(key), method, path, b"x").status;
    assert_eq!(ask(&viewer, "PUT", &at("f")), 403);
    assert_eq!(ask(&runner, "PUT", &at("f")), 200);
    assert_eq!(ask(&viewer, "GET", &at("f")), 200);
    assert_eq!(ask(&viewer, "GET", "/v1/sandboxes/s/files"), 200);
    assert_eq!(ask(&viewer, "DELETE", &at("f")), 403);
    assert_eq!(ask(&viewer, "GET", "/v1/sandboxes/s/export"), 403);
    assert_eq!(ask(&viewer, "POST", "/v1/import"), 403);
    assert_eq!(server.content(None, "PATCH", &at("f"), b"").status, 405);
}

#[test]
fn an_archive_makes_the_same_sandbox_again() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = started(&world, &[]);
    let key = server.key(r#"{"role":"runner"}"#);
    assert_eq!(server.content(None, "PUT", &at("f"), b"content").status, 200);
    let archive = server.content(None, "GET", "/v1/sandboxes/s/export", b"").bytes;
    let made = server.content(Some(&key), "POST", "/v1/import?name=again", &archive);
    assert_eq!((made.status, &made.json()["name"]), (201, &json!("again")), "{}", made.body);
    let got = server.content(Some(&key), "GET", "/v1/sandboxes/again/files/f", b"");
    assert_eq!(got.bytes, b"content");
    let twice = server.content(Some(&key), "POST", "/v1/import?name=again", &archive);
    twice.refusal(409, "exists");
    server.own_with("POST", "/v1/import", &["Idempotency-Key: k"], "").refusal(400, "invalid");
    for broken in [&archive[..archive.len() / 2], b"", b"no archive", &[0; 2000]] {
        let answer = server.content(Some(&key), "POST", "/v1/import", broken);
        answer.refusal(400, "invalid");
    }
    let listed = server.with_key(&key, "GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["sandboxes"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[test]
fn what_is_too_long_or_breaks_off_leaves_nothing() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = started(&world, &["--body", "100k"]);
    let long = vec![b'x'; 102_401];
    server.content(None, "PUT", &at("f"), &long).refusal(413, "limit");
    server.content(None, "POST", "/v1/import", &long).refusal(413, "limit");
    assert_eq!(server.content(None, "PUT", &at("f"), &long[1..]).status, 200);
    // A length that nobody announced counts, too.
    let key = server.key(r#"{"role":"runner","tenant":"owner"}"#);
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n",
        at("g")
    );
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..8 {
        chunked.extend_from_slice(b"4000\r\n");
        chunked.extend_from_slice(&long[..0x4000]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    server.raw(&chunked).refusal(413, "limit");
    // Whoever goes away in the middle has sent nothing.
    let mut stream = server.connect();
    let half = format!("{head}Content-Length: 50000\r\n\r\nhalf");
    std::io::Write::write_all(&mut stream, half.as_bytes()).expect("it is sent");
    drop(stream);
    wait_until(|| server.own("GET", "/v1/sandboxes/s", "").status == 200);
    server.content(None, "GET", &at("g"), b"").refusal(404, "not_found");
    // What was made inside can be longer than what may be fetched whole.
    let body = r#"{"command":["sh","-c","head -c 400000 /dev/urandom > big"]}"#;
    assert_eq!(server.own("POST", "/v1/sandboxes/s/run", body).json()["exit"], 0);
    assert_eq!(server.content(None, "GET", &at("big"), b"").bytes.len(), 400_000);
    server.content(None, "GET", "/v1/sandboxes/s/export", b"").refusal(413, "limit");
    let names = std::fs::read_dir(world.state()).expect("it is there");
    let left =
        names.flatten().filter(|entry| entry.file_name().to_string_lossy().contains("incoming"));
    assert_eq!(left.count(), 0);
}
