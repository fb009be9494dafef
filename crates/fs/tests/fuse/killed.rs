//! A server or a client that is killed keeps nobody waiting.

use crate::mounted::{empty, has};
use fractal_fs::Vfs;
use fractal_fs::fuse::{MountError, Options, clean, mount};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVE: &str = "FRACTAL_TEST_SERVE";
const CLIENT: &str = "FRACTAL_TEST_CLIENT";

/// Not a test: what the other tests start and kill.
#[test]
fn a_server_of_its_own() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let mounted = mount(&Vfs::default(), dir.as_ref(), Options::default()).unwrap();
    println!("\nready");
    mounted.wait().unwrap();
}

/// Not a test either: one process, so that nothing of it outlives it.
#[test]
fn a_client_of_its_own() {
    let Some(dir) = std::env::var_os(CLIENT) else { return };
    let (one, two) = (Path::new(&dir).join("one"), Path::new(&dir).join("two"));
    loop {
        std::fs::write(&one, vec![7; 300_000]).unwrap();
        std::fs::rename(&one, &two).unwrap();
        std::fs::remove_file(&two).unwrap();
    }
}

/// This very program, told to be something else.
fn again(what: &str, told: &str, dir: &Path) -> Child {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args([what, "--exact", "--nocapture"]).env(told, dir);
    program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn serve(dir: &Path) -> Option<Child> {
    let mut server = again("killed::a_server_of_its_own", SERVE, dir);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    if lines.any(|line| line.unwrap() == "ready") {
        return Some(server);
    }
    server.wait().unwrap();
    None
}

/// Takes the mount away also when a test fails.
struct Guard<'a>(&'a Path, Child);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.1.kill().unwrap_or_default();
        self.1.wait().unwrap();
        clean(self.0).unwrap();
    }
}

/// As somebody else would do it.
fn unmount(dir: &Path) {
    let root = rustix::process::geteuid().is_root();
    let (program, args) = if root { ("umount", &[][..]) } else { ("fusermount3", &["-u"][..]) };
    assert!(Command::new(program).args(args).arg(dir).status().unwrap().success());
}

fn ends(child: &mut Child, what: &str) {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what} hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_server_hangs_nobody_and_is_cleaned_up_after() {
    let dir = tempfile::tempdir().unwrap();
    if empty().is_none() {
        return;
    }
    for round in 0..3 {
        let mut guard = Guard(dir.path(), serve(dir.path()).unwrap());
        let script = "i=0; while echo x$i > f$i && cat f$i; do i=$((i + 1)); done";
        let mut writers: Vec<Child> = (0..3)
            .map(|number| {
                let dir = dir.path().join(number.to_string());
                std::fs::create_dir(&dir).unwrap();
                let mut shell = Command::new("sh");
                shell.args(["-c", script]).current_dir(dir);
                shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let held = std::fs::File::create(dir.path().join("held")).unwrap();
        std::thread::sleep(Duration::from_millis(50 * round));
        match clean(dir.path()) {
            Err(MountError::Alive { .. }) => {}
            other => panic!("{other:?}"),
        }
        guard.1.kill().unwrap();
        guard.1.wait().unwrap();
        writers.iter_mut().for_each(|writer| ends(writer, "a writer"));
        let error = std::fs::read_dir(dir.path()).and_then(|mut all| all.next().unwrap());
        let error = error.map(drop).unwrap_err().raw_os_error();
        assert!(matches!(error, Some(103 | 107)), "{error:?}");
        assert!((&held).write(b"x").is_err());
        clean(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // Where nothing is left there is nothing to do.
        clean(dir.path()).unwrap();
    }
}

#[test]
fn a_killed_client_leaves_the_server_at_work() {
    let Some(view) = empty() else { return };
    for round in 0..10 {
        let mut client = again("killed::a_client_of_its_own", CLIENT, view.path());
        std::thread::sleep(Duration::from_millis(3 * round));
        client.kill().unwrap();
        ends(&mut client, "a client");
        std::fs::write(view.at("after"), format!("{round}")).unwrap();
        assert_eq!(view.view.read("/after").unwrap(), format!("{round}"));
    }
}

#[test]
fn unmounting_ends_those_who_use_it() {
    let (Some(mut view), true) = (empty(), has("sleep")) else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3> open; echo x >&3; exec sleep 60"]).current_dir(view.path());
    let mut user = shell.spawn().unwrap();
    while !view.view.read("/open").is_ok_and(|text| text == "x\n") {
        std::thread::sleep(Duration::from_millis(2));
    }
    let since = Instant::now();
    view.mounted.take().unwrap().unmount().unwrap();
    assert!(since.elapsed() < Duration::from_secs(30));
    assert_eq!(std::fs::read_dir(view.path()).unwrap().count(), 0);
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(view.view.exists("/open"));
}

/// What it was mounted over stays when somebody else unmounted it first.
#[test]
fn only_its_own_mount_is_ended() {
    let Some(mut upper) = empty() else { return };
    let lower = upper.mounted.take().unwrap();
    let over = mount(&Vfs::default(), upper.path(), Options::default()).unwrap();
    upper.view.write("/below", "x").unwrap();
    assert!(!upper.at("below").exists());
    unmount(upper.path());
    drop(over);
    assert!(upper.at("below").exists());
    lower.unmount().unwrap();
    assert!(!upper.at("below").exists());
}

#[test]
fn someone_elses_unmount_ends_the_wait() {
    let Some(mut view) = empty() else { return };
    let mounted = view.mounted.take().unwrap();
    unmount(view.path());
    mounted.wait().unwrap();
}
