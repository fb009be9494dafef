//! `fractal mount`: a sandbox as a real directory.

#![allow(clippy::unwrap_used)]

use crate::world::{Answer, FRACTAL, World};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A `fractal mount` that runs; unmounted and ended with the test.
struct Mounting {
    child: Option<Child>,
    dir: PathBuf,
}

impl Mounting {
    /// Mounts and waits until the directory can be used.
    fn start(world: &World, args: &[&str], dir: &Path) -> Mounting {
        let mut child = world
            .command(FRACTAL)
            .args(["mount", "--json"])
            .args(args)
            .arg(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let mounting = Mounting { child: Some(child), dir: dir.to_owned() };
        if !ready.contains("\"dir\"") {
            panic!("not mounted: {}", mounting.wait().err);
        }
        mounting
    }

    fn pid(&self) -> String {
        self.child.as_ref().unwrap().id().to_string()
    }

    /// Waits for its end.
    fn wait(mut self) -> Answer {
        Answer::from(self.child.take().unwrap().wait_with_output().unwrap())
    }

    fn unmount(self, world: &World) -> Answer {
        let done = world.command("umount").arg(&self.dir).status().unwrap();
        assert!(done.success());
        self.wait()
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Only where the test failed is anything left.
        let umount = ["-l".as_ref(), self.dir.as_os_str()];
        let _ = std::process::Command::new("umount").args(umount).stderr(Stdio::null()).status();
    }
}

/// A project with a sandbox `v`, and a directory to mount it at.
fn mountable() -> Option<(World, PathBuf)> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        eprintln!("skipped: /dev/fuse: {error}");
        return None;
    }
    let world = World::new();
    world.write("a.txt", "one\n");
    world.ok(&["sh", "--name", "v", "-c", "echo made > made; mkdir sub; echo deep > sub/deep"]);
    let dir = world.root().join("view");
    std::fs::create_dir(&dir).unwrap();
    Some((world, dir))
}

#[test]
fn programs_work_in_it_and_the_work_lands_in_the_sandbox() {
    let Some((world, dir)) = mountable() else { return };
    let mounting = Mounting::start(&world, &["v"], &dir);
    assert_eq!(std::fs::read_to_string(dir.join("a.txt")).unwrap(), "one\n");
    assert_eq!(std::fs::read_to_string(dir.join("sub/deep")).unwrap(), "deep\n");
    let script = "echo two >> a.txt && mv made moved && rm -r sub && mkdir -p x/y && ln -s ../a.txt x/l \
                  && printf '#!/bin/sh\\n' > x/run && chmod 750 x/run && git init -q x/repo";
    let done = world.command("sh").args(["-c", script]).current_dir(&dir).status().unwrap();
    assert!(done.success());
    let answer = mounting.unmount(&world);
    assert_eq!(answer.status, 0, "{}", answer.err);
    assert_eq!(std::fs::read_to_string(world.project().join("a.txt")).unwrap(), "one\n");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let status = world.ok(&["diff", "v", "--name-status"]).out;
    for line in ["M\ta.txt", "A\tmoved", "A\tx/l", "A\tx/run", "A\tx/y/", "A\tx/repo/.git/HEAD"] {
        assert!(status.lines().any(|other| other == line), "{line} in {status}");
    }
    assert!(!status.contains("sub"), "{status}");
    let look = "cat a.txt; cat x/l; stat -c %a x/run";
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", look]).out, "one\ntwo\none\ntwo\n750\n");
}

#[test]
fn other_verbs_see_it_while_it_is_mounted() {
    let Some((world, dir)) = mountable() else { return };
    let mounting = Mounting::start(&world, &["v"], &dir);
    std::fs::write(dir.join("early"), "1").unwrap();
    // What is written is put into the sandbox in the course of time.
    while !world.ok(&["diff", "v", "--name-status"]).out.contains("early") {
        std::thread::sleep(Duration::from_millis(100));
    }
    world.ok(&["snapshot", "v", "s"]);
    world.ok(&["fork", "v", "w"]);
    assert_eq!(world.ok(&["sh", "--in", "w", "-c", "cat early"]).out, "1");
    // Two that write one sandbox would lose each other's work.
    let answer = world.fractal(&["sh", "--in", "v", "-c", "true"]);
    assert!(answer.err.contains(&format!("process {}", mounting.pid())), "{}", answer.err);
    std::fs::write(dir.join("late"), "2").unwrap();
    assert_eq!(mounting.unmount(&world).status, 0);
    assert_eq!(world.ok(&["diff", "v", "--since", "s", "--name-status"]).out, "A\tlate\n");
}

#[test]
fn a_signal_ends_it_and_keeps_the_work() {
    let Some((world, dir)) = mountable() else { return };
    let mounting = Mounting::start(&world, &["v"], &dir);
    std::fs::write(dir.join("n"), "1").unwrap();
    world.command("kill").args(["-TERM", &mounting.pid()]).status().unwrap();
    let answer = mounting.wait();
    assert_eq!(answer.status, 0, "{}", answer.err);
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", "cat n"]).out, "1");
}

#[test]
fn one_that_was_killed_is_cleared_away_and_what_was_kept_stays() {
    let Some((world, dir)) = mountable() else { return };
    let mounting = Mounting::start(&world, &["v"], &dir);
    std::fs::write(dir.join("n"), "1").unwrap();
    while !world.ok(&["diff", "v", "--name-status"]).out.contains("A\tn\n") {
        std::thread::sleep(Duration::from_millis(100));
    }
    world.command("kill").args(["-KILL", &mounting.pid()]).status().unwrap();
    let mut mounting = mounting;
    mounting.child.take().unwrap().wait().unwrap();
    assert!(std::fs::read_dir(&dir).is_err(), "nobody serves it");
    let again = Mounting::start(&world, &["v"], &dir);
    assert_eq!(std::fs::read_to_string(dir.join("n")).unwrap(), "1");
    assert_eq!(again.unmount(&world).status, 0);
    assert!(world.ok(&["log"]).out.contains("lost"));
}

#[test]
fn what_is_read_only_or_beneath_stays_so() {
    let Some((world, dir)) = mountable() else { return };
    let mounting = Mounting::start(&world, &["--read-only", "--path", "/", "v"], &dir);
    let inside = dir.join(world.project().strip_prefix("/").unwrap());
    assert_eq!(std::fs::read_to_string(inside.join("made")).unwrap(), "made\n");
    assert!(!dir.join("etc/passwd").exists());
    assert!(std::fs::write(inside.join("n"), "1").is_err());
    assert_eq!(mounting.unmount(&world).status, 0);
}

#[test]
fn a_mount_inside_of_its_project_does_not_show_itself() {
    let Some((world, _)) = mountable() else { return };
    let dir = world.project().join("view");
    std::fs::create_dir(&dir).unwrap();
    let mounting = Mounting::start(&world, &["v"], &dir);
    let found = world.command("find").arg(&dir).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("view/sub/deep") && !found.contains("view/view"), "{found}");
    assert_eq!(mounting.unmount(&world).status, 0);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let Some((world, dir)) = mountable() else { return };
    let project = world.project();
    for (place, words) in [
        (project.as_path(), "holds the project"),
        (world.root(), "holds the project"),
        (&dir.join("none"), "mkdir -p"),
        (&project.join("a.txt"), "mkdir -p"),
    ] {
        let answer = world.fractal(&["mount", "v", place.to_str().unwrap()]);
        assert_eq!(answer.status, 2, "{}", answer.err);
        assert!(answer.err.contains(words), "{}", answer.err);
    }
    // Neither the state directory nor what lies in it or holds it.
    let home = world.state();
    let beside = home.join("beside");
    std::fs::create_dir(&beside).unwrap();
    for (place, words) in [(&home, "holds the state"), (&beside, "lies in the state")] {
        let answer = world.fractal(&["mount", "v", place.to_str().unwrap()]);
        assert_eq!(answer.status, 2, "{}", answer.err);
        assert!(answer.err.contains(words) && answer.err.contains("elsewhere"), "{}", answer.err);
    }
    let answer = world.fractal(&["mount", "nobody", dir.to_str().unwrap()]);
    assert_eq!(answer.status, 6, "{}", answer.err);
    let answer = world.fractal(&["mount", "--path", "/none", "v", dir.to_str().unwrap()]);
    assert_eq!(answer.status, 6, "{}", answer.err);
}

#[test]
fn what_the_host_changes_meanwhile_is_never_shown_in_part() {
    let Some((world, dir)) = mountable() else { return };
    world.write("edited", "12345678\n");
    let mounting = Mounting::start(&world, &["v"], &dir);
    assert_eq!(std::fs::metadata(dir.join("edited")).unwrap().len(), 9);
    world.write("edited", "longer than it was before\n");
    assert!(std::fs::read(dir.join("edited")).is_err(), "neither the old nor the new");
    std::fs::write(dir.join("edited"), "ours\n").unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("edited")).unwrap(), "ours\n");
    // Nobody else's process is ended for a drop.
    let answer = world.fractal(&["drop", "v"]);
    assert!(answer.status != 0 && answer.err.contains("umount"), "{}", answer.err);
    assert_eq!(mounting.unmount(&world).status, 0);
    assert_eq!(world.ok(&["sh", "--in", "v", "-c", "cat edited"]).out, "ours\n");
}
