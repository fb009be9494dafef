//! Stopping a script from another thread.

use crate::{run, shell, shown, text};
use fractal_shell::{Call, Ended, Output};
use std::time::{Duration, Instant};

fn cancelled(script: &'static str) {
    let mut shell = shell();
    let canceller = shell.canceller();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        canceller.cancel();
    });
    let start = Instant::now();
    let outcome = shell.run(script, b"");
    other.join().unwrap();
    assert_eq!(
        (outcome.ended.clone(), outcome.exit),
        (Ended::Cancelled, 130),
        "{script}: {}",
        shown(&outcome)
    );
    assert!(start.elapsed() < Duration::from_secs(30), "{script}");
    assert_eq!(text(&outcome.stdout), "begun\n", "{script}");
    assert_eq!(run(&mut shell, "echo next; f() { echo f; }; f"), "next\nf\n", "after {script}");
    assert!(start.elapsed() < Duration::from_secs(40), "{script}: the next one waited");
}

#[test]
fn a_running_script_is_stopped_wherever_it_is() {
    cancelled("echo begun; while :; do :; done");
    cancelled("echo begun; sleep 55");
    cancelled("echo begun; sleep 55 | cat");
    cancelled("echo begun; (sleep 55)");
    cancelled("echo begun; x=$(while :; do :; done)");
    cancelled("echo begun; f() { while :; do :; done; }; f");
    cancelled("echo begun; sleep 55 & wait");
    cancelled("echo begun; awk 'BEGIN{while(1) x=1}'");
}

#[test]
fn a_registered_command_is_told() {
    let mut shell = shell();
    shell.register("spin", |call: &Call| {
        while !call.stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Output::ok("stopped\n")
    });
    let canceller = shell.canceller();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        canceller.cancel();
    });
    let outcome = shell.run("spin; echo never", b"");
    other.join().unwrap();
    assert_eq!(outcome.ended, Ended::Cancelled, "{}", shown(&outcome));
    assert!(!text(&outcome.stdout).contains("never"));
}

#[test]
fn cancelling_when_nothing_runs_does_nothing() {
    let mut shell = shell();
    shell.canceller().cancel();
    assert_eq!(run(&mut shell, "echo on"), "on\n");
}
