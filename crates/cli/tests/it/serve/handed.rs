//! Runs by a server with the caller's own input, output and signals.

use super::client::{Server, wait_until};
use crate::world::{Answer, FRACTAL, World, able};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// Runs that the server has carried out.
fn runs(server: &Server) -> u64 {
    let page = server.own("GET", "/metrics", "").body;
    let lines = page.lines().filter(|line| line.starts_with("fractal_runs_total"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

/// A server, and whether it is one that runs are given to: a machine may start
/// it with other limits than us.
fn start(world: &World) -> Server {
    let server = Server::start(world);
    let told = world.fractal(&["run", "-v", "--rm", "--", "true"]);
    assert!(!told.err.contains("without the server"), "{}", told.err);
    assert_eq!(runs(&server), 1);
    server
}

fn spawn(world: &World, args: &[&str]) -> Child {
    let mut command = world.command(FRACTAL);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Whether a process has this word among its arguments.
fn is_alive(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

#[test]
fn a_program_has_its_callers_input_output_and_status() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = start(&world);
    let script = "cat; echo err >&2; pwd; echo \"$LANG\"; umask; exit 9";
    let mut child = spawn(&world, &["run", "--rm", "--", "sh", "-c", script]);
    child.stdin.take().expect("piped").write_all(b"in\n").expect("it reads");
    let answer = Answer::from(child.wait_with_output().expect("it ends"));
    let umask = String::from_utf8(
        std::process::Command::new("sh").args(["-c", "umask"]).output().expect("sh runs").stdout,
    );
    let expect = format!("in\n{}\nC.UTF-8\n{}", world.project().display(), umask.expect("digits"));
    assert_eq!((answer.status, &answer.out), (9, &expect));
    assert_eq!(answer.notes(), ["err"]);
    let (status, reply) =
        world.json(&["--json", "run", "--rm", "--", "sh", "-c", "echo a; exit 2"]);
    assert_eq!((status, reply["stdout"].as_str()), (2, Some("a\n")));
    assert_eq!(runs(&server), 3);
    // What goes into a file goes where the file's writer is.
    let path = world.root().join("out");
    let mut file = std::fs::File::create(&path).expect("a file");
    file.write_all(b"before\n").expect("it can be written");
    let script = "head -c 3000000 /dev/zero; echo end >&2";
    let mut command = world.command(FRACTAL);
    command.args(["run", "--rm", "--", "sh", "-c", script]);
    command.stdout(file.try_clone().expect("a copy")).stderr(Stdio::null());
    assert!(command.status().expect("it starts").success());
    file.write_all(b"after\n").expect("it can be written");
    let text = std::fs::read(&path).expect("it is there");
    assert_eq!(text.len(), 3_000_000 + "before\nafter\n".len());
    assert!(text.starts_with(b"before\n\0") && text.ends_with(b"\0after\n"));
    assert_eq!(runs(&server), 4);
}

#[test]
fn a_caller_with_limits_of_its_own_keeps_them() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = start(&world);
    let mut command = world.command("sh");
    let script = "umask 027; ulimit -n 77; fractal run -v --rm -- sh -c 'umask; ulimit -n'";
    let answer = Answer::of(command.args(["-c", script]));
    assert_eq!(answer.out, "0027\n77\n", "{}", answer.err);
    assert!(answer.err.contains("without the server: "), "{}", answer.err);
    assert_eq!(runs(&server), 1);
}

#[test]
fn signals_reach_the_program_and_its_status_comes_back() {
    if !able() {
        return;
    }
    let world = World::new();
    let _server = start(&world);
    for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let trap = format!(
            "trap 'echo got {number}; exit 7' {number}; echo ready; while :; do sleep 0.1; done"
        );
        let mut child = spawn(&world, &["run", "--rm", "--", "sh", "-c", &trap]);
        let mut out = child.stdout.take().expect("piped");
        let mut ready = [0; 6];
        out.read_exact(&mut ready).expect("it starts");
        signal(child.id(), name);
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("it ends");
        assert_eq!(rest, format!("got {number}\n"));
        assert_eq!(child.wait().expect("it ends").code(), Some(7));
    }
    // And one that ends of it tells so.
    let mut child =
        spawn(&world, &["run", "--rm", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    let mut ready = [0; 6];
    child.stdout.take().expect("piped").read_exact(&mut ready).expect("it starts");
    signal(child.id(), "-TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
}

#[test]
fn a_run_ends_with_its_caller_and_with_its_server() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = start(&world);
    let begin = |name: &str, word: &str| {
        let script = format!("echo ready; exec sleep {word}");
        let mut child = spawn(&world, &["run", "--name", name, "--", "sh", "-c", &script]);
        let mut ready = [0; 6];
        child.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("it starts");
        child
    };
    let word = format!("7{}", std::process::id());
    let mut child = begin("a", &word);
    wait_until(|| is_alive(&word));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    wait_until(|| !is_alive(&word));
    wait_until(|| world.json(&["--json", "show", "a"]).1["state"] == "idle");
    assert_eq!(runs(&server), 2, "it is on record like any other");

    let word = format!("8{}", std::process::id());
    let child = begin("b", &word);
    wait_until(|| is_alive(&word));
    server.kill();
    wait_until(|| !is_alive(&word));
    let answer = Answer::from(child.wait_with_output().expect("it ends"));
    assert_eq!(answer.status, 125, "{}", answer.err);
    assert!(answer.err.contains("the server was lost"), "{}", answer.err);
    assert_eq!(world.ok(&["run", "--in", "b", "--", "echo", "on"]).out, "on\n");
}

#[test]
fn output_ends_with_its_own_run_and_not_with_another() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = start(&world);
    let long = "echo ready; read line; exit 5";
    let mut first = spawn(&world, &["run", "--rm", "--", "sh", "-c", long]);
    let mut ready = [0; 6];
    first.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("it starts");
    for _ in 0..3 {
        let mut second = spawn(&world, &["run", "--rm", "--", "echo", "done"]);
        let mut text = String::new();
        second.stdout.take().expect("piped").read_to_string(&mut text).expect("it ends");
        assert_eq!(text, "done\n");
        assert!(second.wait().expect("it ends").success());
    }
    drop(first.stdin.take());
    assert_eq!(first.wait().expect("it ends").code(), Some(5));
    // Told to stop, a server lets it end and answers.
    let mut last = spawn(&world, &["run", "--rm", "--", "sh", "-c", long]);
    last.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("it starts");
    std::thread::scope(|scope| {
        scope.spawn(|| server.stop());
        wait_until(|| world.fractal(&["--no-server", "list"]).status == 0);
        drop(last.stdin.take());
    });
    assert_eq!(last.wait().expect("it ends").code(), Some(5));
}

#[test]
fn nonsense_on_the_socket_for_runs_ends_a_connection_and_not_the_server() {
    use std::os::unix::fs::PermissionsExt;
    if !able() {
        return;
    }
    let world = World::new();
    let server = start(&world);
    let socket = world.state().join("run.sock");
    let mode = std::fs::metadata(&socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut held = Vec::new();
    for bytes in [&b""[..], b"x", b"\0\0\0\x02{}", b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let _ = stream.write_all(bytes);
        held.push(stream);
    }
    for mut stream in held.drain(1..) {
        // Without descriptors nothing is a request.
        let mut greeting = Vec::new();
        let _ = stream.read_to_end(&mut greeting);
        assert!(String::from_utf8_lossy(&greeting).contains("version"));
    }
    assert_eq!(world.ok(&["run", "--rm", "--", "echo", "still"]).out, "still\n");
    assert_eq!(runs(&server), 2);
    // Callers who say nothing hold nobody up.
    let mute: Vec<_> =
        (0..200).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    world.ok(&["list"]);
    assert_eq!(world.ok(&["run", "--rm", "--", "echo", "still"]).out, "still\n");
    drop(mute);
    wait_until(|| !world.fractal(&["run", "-v", "--rm", "--", "true"]).err.contains("without"));
    for bad in [&["run", "--in", "absent", "--", "true"][..], &["run", "--rm", "--", "/absent"]] {
        let with = world.fractal(bad);
        let without = world.fractal(&[&["--no-server"], bad].concat());
        assert_eq!((with.status, &with.err), (without.status, &without.err));
    }
}

#[test]
fn a_program_inside_reaches_no_socket_of_the_server() {
    if !able() {
        return;
    }
    let world = World::new();
    let server = start(&world);
    let state = world.state().display().to_string();
    for net in ["none", "host"] {
        for name in ["run.sock", "server.sock"] {
            let look = format!("test -e {state}/{name} || test -S {state}/{name}");
            let answer = world.fractal(&["run", "--rm", "--net", net, "--", "sh", "-c", &look]);
            assert_eq!(answer.status, 1, "{net} {name}: {}", answer.err);
        }
    }
    assert_eq!(runs(&server), 5);
}
