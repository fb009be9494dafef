//! Somebody on the host kills a supervisor of the run, with no chance to clean
//! up. The other one ends everything.

use crate::arena::Arena;
use crate::harness::{launcher, marked_processes};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Left alone by their parents, in sessions of their own.
const SCRIPT: &str = r#"
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        os._exit(0)
os.write(1, b"all up\n")
while True:
    time.sleep(0.05)
"#;

trial!(nothing_is_left_when_a_supervisor_is_killed, |tier| {
    for supervisor in ["fractal-monitor", "fractal-init"] {
        let arena = Arena::new();
        let mut process = launcher(&arena, tier, SCRIPT)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let running = output.lines().map_while(Result::ok).any(|line| line.contains("all up"));
        assert!(running, "the run did not start");
        let found = marked_processes(&arena);
        // Init hides itself; it is the monitor's child.
        let monitor = found.iter().find(|line| line.ends_with("fractal-monitor"));
        let monitor = monitor.unwrap_or_else(|| panic!("no monitor in {found:?}"));
        let monitor = monitor.split(' ').next().unwrap();
        let children =
            std::fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).unwrap();
        let pid = match supervisor {
            "fractal-monitor" => monitor,
            _ => children.split_whitespace().next().unwrap(),
        };
        assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
        let end = Instant::now() + Duration::from_secs(5);
        let is_python = |line: &String| line.contains("python");
        while marked_processes(&arena).iter().any(is_python) {
            assert!(Instant::now() < end, "left behind: {:?}", marked_processes(&arena));
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = process.kill();
        process.wait().unwrap();
        // A killed monitor cannot remove its group: the engine does so with
        // its next command, and there is no engine here.
        let label = crate::harness::spec(&arena, tier, &[]).label;
        let controllers = fractal_jail::cgroup::Controllers::find();
        for _ in 0..200 {
            fractal_jail::cgroup::sweep(&controllers, &|other| other != label);
            if crate::harness::left_behind(&arena).is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(crate::harness::left_behind(&arena), Vec::<String>::new());
    }
});
