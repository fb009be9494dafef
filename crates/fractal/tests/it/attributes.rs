//! What programs note about files and directories (`user.*`): it is a change,
//! travels, and is weighed by value.

use crate::promote::{asked, conflicts};
use crate::world::World;
use fractal::Action;
use fractal::model::{Promote, Verdict};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::Path;

fn set(path: &Path, name: &str, value: &str) -> bool {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

impl World {
    fn note(&self, name: &str) -> [Option<String>; 2] {
        ["user.note", "user.own"].map(|attribute| get(&self.file(name), attribute))
    }
}

/// Gives what `donor` has to `a` and what `donors` has to `d`.
const GIVE: &str = "cp --attributes-only --preserve=xattr donor a && \
                    cp -r --attributes-only --preserve=xattr donors/. d";

/// A project with something noted about a file and a directory, and the same
/// with other values to be copied from inside.
fn noted() -> Option<World> {
    let world = World::new();
    for name in ["d", "donors"] {
        fs::create_dir(world.file(name)).unwrap();
    }
    for name in ["a", "donor"] {
        world.write(name, name);
    }
    let here = ["a", "d"].iter().all(|name| set(&world.file(name), "user.note", "old"));
    for name in ["donor", "donors"] {
        set(&world.file(name), "user.note", "ours");
        set(&world.file(name), "user.own", "ours as well");
    }
    let ran = world.make("s", GIVE).unwrap();
    if !here || ran.exit != 0 || world.changed("s").unwrap().is_empty() {
        eprintln!("skipped: no user attributes here, or no cp that copies them");
        return None;
    }
    Some(world)
}

fn old() -> [Option<String>; 2] {
    [Some("old".into()), None]
}

fn ours() -> [Option<String>; 2] {
    [Some("ours".into()), Some("ours as well".into())]
}

#[test]
fn attributes_alone_are_a_change_that_arrives_and_is_taken_back() {
    let Some(world) = noted() else { return };
    let more = "mkdir fresh; cp -r --attributes-only --preserve=xattr donors/. fresh; \
                echo new > new; cp --attributes-only --preserve=xattr donor new";
    world.sh("s", more).unwrap();
    let all = [('M', "a"), ('M', "d"), ('A', "fresh"), ('A', "new")];
    assert_eq!(world.changed("s").unwrap(), all.map(|(kind, name)| (kind, name.to_owned())));
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    for name in ["a", "d", "fresh", "new"] {
        assert_eq!(world.note(name), ours(), "{name}");
    }
    assert_eq!(world.read("a"), "a");
    assert_eq!(world.changed("s").unwrap(), [], "the sandbox has what reality has");
    assert_eq!(world.promote("s").verdict, Verdict::Nothing);
    let undone = world.undo(None).unwrap();
    assert_eq!(undone.verdict, Verdict::Applied, "{undone:?}");
    assert_eq!((world.note("a"), world.note("d")), (old(), old()));
    assert!(!world.file("fresh").exists() && !world.file("new").exists());
    let again = world.undo(undone.undo.map(|id| id.to_string()).as_deref()).unwrap();
    assert_eq!(again.verdict, Verdict::Applied, "{again:?}");
    assert_eq!((world.note("a"), world.note("d")), (ours(), ours()));
}

#[test]
fn attributes_that_both_changed_are_a_conflict() {
    let Some(world) = noted() else { return };
    for name in ["a", "d"] {
        set(&world.file(name), "user.note", "theirs");
    }
    let reply = world.promote("s");
    assert_eq!(conflicts(&reply), ["a", "d"]);
    assert_eq!(world.note("a"), [Some("theirs".into()), None]);
    // The same edit agrees, and one that was taken back is none.
    set(&world.file("a"), "user.note", "ours");
    set(&world.file("a"), "user.own", "ours as well");
    set(&world.file("d"), "user.note", "old");
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!((world.note("a"), world.note("d")), (ours(), ours()));
}

#[test]
fn attributes_noted_outside_since_stop_an_undo() {
    let Some(world) = noted() else { return };
    world.promote("s");
    for name in ["a", "d"] {
        set(&world.file(name), "user.note", "later");
        let reply = world.undo(None).unwrap();
        assert_eq!(conflicts(&reply), [name]);
        set(&world.file(name), "user.note", "ours");
    }
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!((world.note("a"), world.note("d")), (old(), old()));
}

#[test]
fn a_text_that_is_joined_keeps_what_either_side_noted() {
    let Some(world) = noted() else { return };
    let text = |first: &str, last: &str| format!("{first}\n1\n2\n3\n4\n5\n{last}\n");
    for name in ["theirs", "both"] {
        world.write(name, &text("first", "last"));
    }
    let edit = "for f in theirs both; do sed -i s/first/ours/ $f; done; \
                cp --attributes-only --preserve=xattr donor both";
    world.make("t", edit).unwrap();
    for name in ["theirs", "both"] {
        world.write(name, &text("first", "theirs"));
    }
    set(&world.file("theirs"), "user.note", "theirs");
    let reply = world.promote("t");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    for name in ["theirs", "both"] {
        assert_eq!(world.read(name), text("ours", "theirs"));
    }
    assert_eq!(world.note("theirs"), [Some("theirs".into()), None]);
    assert_eq!(world.note("both"), ours());
}

#[test]
fn snapshots_forks_copies_and_archives_keep_attributes() {
    let Some(world) = noted() else { return };
    let changed = world.changed("s").unwrap();
    world.snapshot("s", "one").unwrap();
    world.sh("s", "rm -r d; mkdir d; cat a > b; mv b a").unwrap();
    world.rollback("s", "one").unwrap();
    assert_eq!(world.changed("s").unwrap(), changed);
    world.fork("s", "child", &fractal::Policy::default()).unwrap();
    let show = "cp --attributes-only --preserve=xattr a new; cp -r --preserve=xattr d dir";
    world.sh("child", show).unwrap();
    let up = Promote { sandbox: Some("child".into()), ..Promote::default() };
    assert_eq!(world.promote_with(up).unwrap().verdict, Verdict::Applied);

    let archive = world.dir.path().join("archive").display().to_string();
    let export = Action::Export { sandbox: Some("s".into()), to: archive.clone(), history: false };
    world.apply(export).unwrap();
    let import = Action::Import { from: archive, name: Some("copy".into()) };
    world.apply(import).unwrap();
    let out = Action::Copy { from: "copy:d".into(), to: world.file("out").display().to_string() };
    world.apply(out).unwrap();
    assert_eq!(world.note("out"), ours());
    fs::remove_dir(world.file("out")).unwrap();
    let reply = world.promote_with(asked("copy")).unwrap();
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    for name in ["a", "d", "new", "dir"] {
        assert_eq!(world.note(name), ours(), "{name}");
    }
}
