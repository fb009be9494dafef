//! Frozen bases: the project as it was at the fork, copied once and then only
//! where it changed.

use crate::promote::asked;
use crate::world::{World, shell};
use fractal::model::{BaseKind, Verdict};
use fractal::{Code, Run, RunReply};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

impl World {
    fn frozen(&self, name: &str, script: &str) -> Result<RunReply, Code> {
        self.run(Run {
            command: shell(script),
            name: Some(name.into()),
            base: BaseKind::Frozen,
            ..Run::default()
        })
    }
}

const LIST: &str = "find . -type f -o -type l | sort | while read -r f; do \
     printf '%s %s %s\n' \"$f\" \"$(stat -c %a:%Y \"$f\")\" \"$(cat \"$f\" 2>/dev/null)\"; done";

#[test]
fn what_happens_outside_does_not_show_inside() {
    let world = World::new();
    let project = world.project();
    fs::write(project.join("a"), "base").unwrap();
    fs::create_dir(project.join("d")).unwrap();
    fs::write(project.join("d/b"), "b").unwrap();
    symlink("a", project.join("l")).unwrap();
    let before = world.frozen("s", LIST).unwrap().stdout;
    assert_eq!(before.lines().count(), 3);
    fs::write(project.join("a"), "edited").unwrap();
    fs::remove_dir_all(project.join("d")).unwrap();
    fs::write(project.join("new"), "new").unwrap();
    assert_eq!(world.sh("s", LIST).unwrap().stdout, before);
    assert!(world.changed("s").unwrap().is_empty(), "nobody changed anything inside");
}

#[test]
fn a_second_capture_copies_only_what_changed() {
    let world = World::new();
    let project = world.project();
    for n in 0..50 {
        fs::create_dir_all(project.join(format!("d{n}"))).unwrap();
        fs::write(project.join(format!("d{n}/f")), format!("{n}")).unwrap();
    }
    let first = world.frozen("one", LIST).unwrap().stdout;
    let layers = world.layers();
    let second = world.frozen("two", LIST).unwrap().stdout;
    assert_eq!(first, second);
    assert_eq!(world.layers(), layers + 1, "only a top: the capture is the same");

    fs::write(project.join("d7/f"), "changed").unwrap();
    fs::remove_dir_all(project.join("d8")).unwrap();
    fs::write(project.join("d8"), "now a file").unwrap();
    fs::remove_file(project.join("d9/f")).unwrap();
    fs::create_dir_all(project.join("new/deep")).unwrap();
    fs::write(project.join("new/deep/x"), "x").unwrap();
    let third = world.frozen("three", LIST).unwrap().stdout;
    let real = std::process::Command::new("sh").args(["-c", LIST]).current_dir(&project).output();
    assert_eq!(third, String::from_utf8(real.unwrap().stdout).unwrap());
    assert_eq!(world.sh("one", LIST).unwrap().stdout, first, "the first one stays as it was");
    let base = world.list().into_iter().find(|info| info.name == "three").unwrap().base.unwrap();
    let tree = world.engine.home().join("layers").join(base.as_str()).join("tree");
    let copied = walk(&tree);
    assert!(copied < 10, "{copied} files were copied for four changes");
}

fn walk(dir: &std::path::Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => walk(&entry.path()),
            false => usize::from(fs::symlink_metadata(entry.path()).unwrap().size() > 0),
        })
        .sum()
}

#[test]
fn promoting_from_a_frozen_base_sees_every_outside_edit() {
    let world = World::new();
    let project = world.project();
    let read = |name: &str| fs::read_to_string(project.join(name)).unwrap();
    for name in ["same", "other", "joined", "gone"] {
        fs::write(project.join(name), "1\n2\n3\n4\n5\n").unwrap();
    }
    let script = "sed -i s/1/inside/ same joined; echo n > new; sed -i s/1/x/ gone";
    world.frozen("s", script).unwrap();
    fs::write(project.join("same"), "outside\n2\n3\n4\n5\n").unwrap();
    fs::write(project.join("joined"), "1\n2\n3\n4\noutside\n").unwrap();
    fs::write(project.join("other"), "edited").unwrap();
    fs::remove_file(project.join("gone")).unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Conflict);
    let names: Vec<&str> =
        reply.conflicts.iter().map(|conflict| conflict.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["gone", "same"]);
    let theirs =
        fractal::model::Promote { theirs: vec!["same".into(), "gone".into()], ..asked("s") };
    assert_eq!(world.promote_with(theirs).unwrap().verdict, Verdict::Applied);
    assert_eq!(read("joined"), "inside\n2\n3\n4\noutside\n");
    assert_eq!((read("other").as_str(), read("new").as_str()), ("edited", "n\n"));
    assert_eq!(read("same"), "outside\n2\n3\n4\n5\n");
    assert!(!project.join("gone").exists());
}

#[test]
fn a_second_capture_sees_modes_of_directories() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let dir = world.project().join("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), "f").unwrap();
    world.frozen("one", "true").unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o3750)).unwrap();
    let seen = world.frozen("two", "stat -c %a d; cat d/f").unwrap().stdout;
    assert_eq!(seen, "3750\nf");
    assert_eq!(world.changed("two").unwrap(), [], "nobody changed anything inside");
}
