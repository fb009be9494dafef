//! The launcher is killed with no chance to clean up.

use crate::arena::Arena;
use crate::harness::{launcher, left_behind, marked_processes};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

trial!(nothing_is_left_when_the_launcher_is_killed, |tier| {
    let text = r#"
if os.fork() == 0:
    os.setsid()
os.write(1, b"all up\n")
while True:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(0.05)
"#;
    let arena = Arena::new();
    let mut process = launcher(&arena, tier, text)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let running = output.lines().map_while(Result::ok).any(|line| line.contains("all up"));
    let before = (marked_processes(&arena), left_behind(&arena));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(running, "the run did not start");
    // What must be gone was there, or the check below could not fail.
    assert!(!before.0.is_empty(), "no process was found while it ran");
    let end = Instant::now() + Duration::from_secs(3);
    loop {
        let left = (marked_processes(&arena), left_behind(&arena));
        if left.0.is_empty() && left.1.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "left behind: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
});
