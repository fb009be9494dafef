//! Without root, a directory of mode 000 cannot be read; the rest can.

use crate::support::{Scene, chmod, write};
use std::os::unix::process::CommandExt;
use std::process::Command;

const MARK: &str = "FRACTAL_TEST_UNPRIVILEGED";
const NOBODY: u32 = 65534;

#[test]
fn what_cannot_be_read_is_counted_and_the_rest_is_listed() {
    if rustix::fs::stat("/proc/self").is_ok_and(|stat| stat.st_uid == 0) {
        return run_as_nobody();
    }
    let scene = Scene::new();
    write(scene.layer("closed/f"), "");
    write(scene.layer("open"), "");
    write(scene.base("unreadable"), "1234");
    write(scene.layer("unreadable"), "1234");
    chmod(&scene.layer("closed"), 0);
    chmod(&scene.base("unreadable"), 0);
    chmod(&scene.layer("unreadable"), 0);
    write(scene.base("locked/f"), "");
    write(scene.layer("locked/g"), "");
    chmod(&scene.base("locked"), 0);
    let found = scene.changes();
    chmod(&scene.layer("closed"), 0o755);
    chmod(&scene.base("locked"), 0o755);
    let expect = ["A /closed", "M /locked", "A /locked/g", "A /open", "M /unreadable"];
    assert_eq!(crate::support::lines(&found), expect);
    assert_eq!(found.unreadable, 3);
}

/// Runs this very test again without privileges.
fn run_as_nobody() {
    if std::env::var_os(MARK).is_some() {
        return println!("skipped: could not give up root");
    }
    let this = std::env::current_exe().expect("this test");
    let name = "unreadable::what_cannot_be_read_is_counted_and_the_rest_is_listed";
    let run = Command::new(this)
        .args(["--exact", name, "--nocapture"])
        .env(MARK, "1")
        .current_dir("/")
        .gid(NOBODY)
        .uid(NOBODY)
        .output();
    match run {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        }
        Err(error) => println!("skipped: cannot run as nobody: {error}"),
    }
}
