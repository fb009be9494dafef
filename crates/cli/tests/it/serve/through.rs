//! The command line with a server and without: nobody can tell which.

use super::client::{Server, wait_until};
use crate::world::{Answer, FRACTAL, World, able};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is played in both worlds. `FILE` is a file beside the project.
const SESSION: &[&[&str]] = &[
    &["list"],
    &["show"],
    &["run", "--name", "a", "--", "sh", "-c", "echo one > f; echo out; echo err >&2; exit 3"],
    &["--json", "run", "--in", "a", "--", "cat", "f"],
    &["list"],
    &["--json", "list"],
    &["show", "a"],
    &["--json", "show", "a"],
    &["fork", "a", "b"],
    &["--json", "fork", "b", "c", "--memory", "64m"],
    &["fork", "a", "b"],
    &["fork", "b", "wide", "--net", "host"],
    &["run", "--in", "b", "--", "sh", "-c", "echo two >> f; mkdir d; echo x > d/x"],
    &["snapshot", "b", "good"],
    &["--json", "snapshot", "b", "better"],
    &["snapshot", "b", "good"],
    &["run", "--in", "b", "--", "rm", "-r", "f", "d"],
    &["diff", "b"],
    &["rollback", "b", "good"],
    &["rollback", "b", "never"],
    &["diff", "b"],
    &["diff", "--stat", "b"],
    &["--json", "diff", "b"],
    &["diff", "absent"],
    &["log"],
    &["--json", "log", "b"],
    &["promote", "b"],
    &["--json", "promote", "c"],
    &["undo"],
    &["undo"],
    &["--who", "ann", "drop", "c"],
    &["--who", "not a name", "list"],
    &["log", "--limit", "3"],
    &["note", "walls have ears", "--tag", "w"],
    &["note", " "],
    &["find", "walls"],
    &["--json", "find", "walls", "--limit", "1"],
    &["find", "--kind", "failure", "walls"],
    &["learned"],
    &["--json", "learned"],
    &["graph"],
    &["graph", "absent"],
    &["skunk", "list"],
    &["skunk", "show", "absent"],
    &["index", "status"],
    &["index", "lint"],
    &["volume", "create", "v"],
    &["--json", "volume", "list"],
    &["volume", "rm", "v"],
    &["volume", "rm", "v"],
    &["key", "create", "--role", "viewer", "--name", "k"],
    &["key", "list"],
    &["--json", "key", "show", "k"],
    &["key", "revoke", "k"],
    &["key", "roles"],
    &["key", "create", "--role", "king"],
    &["stages"],
    &["verify"],
    &["audit"],
    &["audit", "verify"],
    &["cp", "a:PROJECT/f", "FILE"],
    &["gc", "--dry-run"],
    &["drop", "absent"],
    &["drop", "--force", "absent", "a"],
    &["--json", "drop", "--all"],
    &["drop", "--all"],
    &["show", "a"],
];

/// Requests that the command line made, by the server's own count.
fn asked(server: &Server) -> u64 {
    let page = server.own("GET", "/metrics", "").body;
    let lines = page.lines().filter(|line| line.contains("/v1/apply") && line.contains("requests"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

#[test]
fn with_a_server_and_without_everything_is_the_same() {
    if !able() {
        return;
    }
    let (with, without) = (World::new(), World::new());
    let server = Server::start(&with);
    for args in SESSION {
        let played = [&with, &without].map(|world| play(world, args));
        assert_eq!(played[0], played[1], "fractal {args:?}");
    }
    assert!(asked(&server) >= 30, "the server was asked {} times", asked(&server));
}

fn play(world: &World, args: &[&str]) -> (i32, String, String) {
    let file = world.root().join("file").display().to_string();
    let project = world.project().display().to_string();
    let args: Vec<String> =
        args.iter().map(|arg| arg.replace("FILE", &file).replace("PROJECT", &project)).collect();
    let answer = Answer::of(world.command(FRACTAL).args(args));
    let plain = |text: &str| normal(&text.replace(&world.root().display().to_string(), "ROOT"));
    (answer.status, plain(&answer.out), plain(&answer.err))
}

/// Without what differs between any two worlds: ids, secrets, times, sizes and
/// how long things took. Spaces go too, because they line up with those.
fn normal(text: &str) -> String {
    let mut ids = BTreeMap::new();
    let words = text.split_inclusive(|c: char| !c.is_alphanumeric() && !"-:._+".contains(c));
    let mut plain = String::new();
    for piece in words {
        let word = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_id =
            word.len() == 26 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        let has_digit = word.chars().any(|c| c.is_ascii_digit());
        let count = ids.len();
        match (is_id, has_digit) {
            (true, _) => plain += &format!("ID{}", ids.entry(word.to_owned()).or_insert(count)),
            (false, true) => plain.push('N'),
            (false, false) => plain += word,
        }
        plain.extend(piece[word.len()..].chars().filter(|c| *c != ' '));
    }
    plain
}

#[test]
fn a_server_is_asked_only_where_it_is_wanted() {
    let world = World::new();
    let server = Server::start(&world);
    world.ok(&["list"]);
    assert_eq!(asked(&server), 1);
    world.ok(&["--no-server", "list"]);
    Answer::of(world.command(FRACTAL).arg("list").env("FRACTAL_SERVER", "off"));
    // A directory that no header can hold.
    let odd = world.root().join("a\nb");
    std::fs::create_dir(&odd).expect("a directory");
    let answer = Answer::of(world.command(FRACTAL).arg("list").current_dir(&odd));
    assert_eq!(answer.status, 0, "{}", answer.err);
    // An environment that no head has room for.
    let answer = Answer::of(world.command(FRACTAL).arg("list").env("BIG", "x".repeat(100_000)));
    assert_eq!(answer.status, 0, "{}", answer.err);
    assert_eq!(asked(&server), 1);
    let told = world.fractal(&["doctor"]).out;
    assert!(told.contains("server: it runs, and is asked"), "{told}");
}

#[test]
fn a_dead_socket_costs_nothing() {
    let world = World::new();
    let server = Server::start(&world);
    let socket = world.state().join("server.sock");
    server.kill();
    assert!(socket.exists(), "a killed server leaves its socket");
    let answer = world.ok(&["list"]);
    assert_eq!(answer.err, world.ok(&["--no-server", "list"]).err);
    std::fs::remove_file(&socket).expect("it is there");
    std::fs::write(&socket, "no socket").expect("the directory can be written");
    world.ok(&["list"]);
    // And the next server takes its place.
    let server = Server::start(&world);
    world.ok(&["list"]);
    assert_eq!(asked(&server), 1);
}

#[test]
fn what_is_no_server_of_this_version_is_not_asked() {
    use std::io::{Read, Write};
    let world = World::new();
    world.ok(&["list"]);
    let listener = std::os::unix::net::UnixListener::bind(world.state().join("server.sock"))
        .expect("a socket");
    let answers: [&str; 5] = [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 33\r\n\r\n{\"version\":\"99.0.0\",\"format\":1234}",
    ];
    let serving = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
        // The last one is taken, and never answered.
        listener.accept().map(|(stream, _)| stream)
    });
    for _ in 0..5 {
        let answer = world.ok(&["list"]);
        assert_eq!((answer.out.as_str(), answer.err.contains("server")), ("", false));
    }
    let start = Instant::now();
    world.ok(&["list"]);
    assert!(start.elapsed() < Duration::from_secs(30), "it waits for no answer in vain");
    drop(serving.join());
}

#[test]
fn a_server_that_leaves_before_it_has_read_a_command_takes_none_along() {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    let world = World::new();
    let real = Server::start(&world);
    let greeting = real.own("GET", "/v1/version", "").body;
    real.kill();
    let greeting =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{greeting}", greeting.len());
    let socket = world.state().join("server.sock");
    std::fs::remove_file(&socket).expect("it is left");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let greet = || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(greeting.as_bytes()).expect("it listens");
        stream
    };
    let play = |args: &[&str], server: &dyn Fn()| {
        std::thread::scope(|scope| {
            let played = scope.spawn(|| world.fractal(args));
            server();
            played.join().expect("it ends")
        })
    };
    // Before it was asked, while it was asked, and with the question unread.
    let unread: [&dyn Fn(); 3] =
        [&|| drop(greet()), &|| greet().shutdown(Shutdown::Read).expect("it can be"), &|| {
            let stream = greet();
            let mut ready = [rustix::event::PollFd::new(&stream, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).expect("it asks");
        }];
    for (number, server) in unread.into_iter().enumerate() {
        let volume = format!("v{number}");
        let answer = play(&["volume", "create", &volume], server);
        assert_eq!(answer.status, 0, "{number}: {}", answer.err);
    }
    // Nobody knows what became of one that was read.
    let answer = play(&["volume", "create", "read"], &|| {
        let mut stream = greet();
        let _ = stream.read(&mut [0; 1 << 16]);
    });
    assert_eq!(answer.status, 125, "{}", answer.err);
    assert!(answer.err.contains("fractal log"), "{}", answer.err);
    drop(listener);
    let list = world.ok(&["--no-server", "volume", "list"]).out;
    assert!(["v0", "v1", "v2"].iter().all(|name| list.contains(name)), "{list}");
    assert!(!list.contains("read"), "{list}");
}

#[test]
fn a_server_that_is_told_to_stop_takes_no_command_along() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = Server::start(&world);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| {
            wait_until(|| asked(&server) >= 5);
            std::process::Command::new("kill")
                .args(["-TERM", &server.pid().to_string()])
                .status()
                .expect("kill runs");
        });
        for number in 0..40 {
            let name = format!("s{number}");
            match number {
                0 => world.ok(&["run", "--name", "s0", "--", "true"]),
                _ => world.ok(&["fork", "s0", &name]),
            };
        }
        stop.join().expect("it was told to stop");
    });
    assert_eq!(world.ok(&["list"]).out.lines().count(), 41);
}
