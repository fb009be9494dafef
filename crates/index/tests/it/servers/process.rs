//! Processes that do not outlive a test.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing runs longer, even if the test is killed.
const SECONDS_MAX: &str = "600";
const START_MAX: Duration = Duration::from_secs(120);

/// A process with all its children; they go with it.
pub struct Process {
    child: Child,
    out: PathBuf,
}

impl Process {
    /// Starts a command whose output goes into a file in this directory.
    pub fn start(dir: &Path, program: &str, arguments: &[&str]) -> Process {
        let out = dir.join("output");
        let file = File::create(&out).expect("a file for output");
        let child = Command::new("timeout")
            .args(["-s", "KILL", SECONDS_MAX, program])
            .args(arguments)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("the same file"))
            .stderr(file)
            // A group of its own, in which `timeout` and its child stay.
            .process_group(0)
            .spawn()
            .expect("timeout is there");
        Process { child, out }
    }

    pub fn output(&self) -> String {
        let mut text = String::new();
        let _ = File::open(&self.out).and_then(|mut file| file.read_to_string(&mut text));
        text
    }

    /// Waits until somebody listens on a port.
    pub fn wait_for(&mut self, port: u16) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let is_over = self.child.try_wait().expect("a child").is_some();
            let is_late = started.elapsed() > START_MAX;
            assert!(!is_over && !is_late, "it does not start: {}", self.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// A port of the loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Whether a program is there; where not, the test says what it did not do.
pub fn has(program: &str) -> bool {
    let there = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !there {
        println!("skipped: no {program}");
    }
    there
}

/// A directory for what is downloaded once.
pub fn downloads(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join(name)
}

/// Runs a program to its end; where that fails, the test says so and goes on.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped: {program} {arguments:?}: {said}");
            false
        }
        Err(error) => {
            println!("skipped: {program}: {error}");
            false
        }
    }
}
