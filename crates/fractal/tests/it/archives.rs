//! An archive knows what its changes were made on: an edit that somebody made
//! since is seen by whoever promotes the import, on any machine.

use crate::promote::{asked, conflicts};
use crate::world::World;
use fractal::model::{ArchiveReply, Promote, Verdict};
use fractal::{Action, Code, Reply};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;

const ARCHIVE: &str = "x.tar.zst";

impl World {
    fn export(&self, sandbox: &str) {
        self.export_with(sandbox, false);
    }

    fn export_with(&self, sandbox: &str, history: bool) -> ArchiveReply {
        let export = Action::Export { sandbox: Some(sandbox.into()), to: ARCHIVE.into(), history };
        let Reply::Archive(reply) = self.apply(export).unwrap() else { panic!("no archive") };
        reply
    }

    fn import(&self, name: &str) -> Result<(), Code> {
        let action = Action::Import { from: ARCHIVE.into(), name: Some(name.into()) };
        self.apply(action).map(|_| ())
    }

    /// The archive with another manifest.
    fn rewrite(&self, change: impl Fn(&mut Value)) {
        let read = zstd::Decoder::new(fs::File::open(self.file(ARCHIVE)).unwrap()).unwrap();
        let (mut old, mut new) = (tar::Archive::new(read), tar::Builder::new(Vec::new()));
        for entry in old.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (mut header, path) = (entry.header().clone(), entry.path().unwrap().into_owned());
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if path.as_os_str() == "manifest.json" {
                let mut manifest = serde_json::from_slice(&bytes).unwrap();
                change(&mut manifest);
                bytes = serde_json::to_vec(&manifest).unwrap();
                header.set_size(bytes.len() as u64);
            }
            new.append_data(&mut header, path, bytes.as_slice()).unwrap();
        }
        let tar = new.into_inner().unwrap();
        fs::write(self.file(ARCHIVE), zstd::encode_all(tar.as_slice(), 0).unwrap()).unwrap();
    }
}

fn as_of_format_1(manifest: &mut Value) {
    manifest["format"] = json!(1);
    manifest.as_object_mut().unwrap().remove("base").unwrap();
}

/// Larger than what is noted with a digest.
const LARGE: usize = (1 << 20) + 1;

#[test]
fn an_import_on_an_unmoved_reality_is_promoted() {
    let world = World::new();
    for name in ["edited", "gone", "written-again"] {
        world.write(name, name);
    }
    world.write("large", &"l".repeat(LARGE));
    world
        .make(
            "x",
            "for f in edited large written-again; do echo in > $f; done; rm gone; echo n > new",
        )
        .unwrap();
    world.export("x");
    // The same value in another file.
    fs::remove_file(world.file("written-again")).unwrap();
    world.write("written-again", "written-again");
    world.import("y").unwrap();
    let reply = world.promote("y");
    assert_eq!(reply.verdict, Verdict::Applied, "{:?}", reply.conflicts);
    assert_eq!(reply.applied.len(), 5);
    assert_eq!((world.read("edited"), world.read("large")), ("in\n".into(), "in\n".into()));
    assert!(!world.file("gone").exists());
}

#[test]
fn an_edit_before_or_after_the_export_is_a_conflict_for_the_import() {
    let world = World::new();
    for name in ["early", "late", "mode", "dropped", "gone"] {
        world.write(name, name);
    }
    let script = "for f in early late mode dropped new; do echo in > $f; done; rm gone";
    world.make("x", script).unwrap();
    world.write("early", "edited between run and export");
    world.export("x");
    world.write("late", "edited between export and import");
    world.write("new", "made between export and import");
    world.write("gone", "edited as well");
    let mut bits = fs::metadata(world.file("mode")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut bits, 0o600);
    fs::set_permissions(world.file("mode"), bits).unwrap();
    fs::remove_file(world.file("dropped")).unwrap();
    world.import("y").unwrap();
    let reply = world.promote("y");
    assert_eq!(reply.verdict, Verdict::Conflict);
    assert_eq!(conflicts(&reply), ["dropped", "early", "gone", "late", "mode", "new"]);
    assert_eq!(world.read("late"), "edited between export and import");
    let ours = Promote { ours: vec![".".into()], ..asked("y") };
    assert_eq!(world.promote_with(ours).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read("late"), "in\n");
}

#[test]
fn a_base_that_was_a_layer_travels_too() {
    let world = World::new();
    world.write("file", "host");
    world.make("parent", "echo parent > file; echo p > other").unwrap();
    world.fork("parent", "child", &Default::default()).unwrap();
    world.sh("child", "echo child > file; echo child > other; echo n > new").unwrap();
    world.export("child");
    world.import("y").unwrap();
    // It was made on the parent's work, which never came here.
    assert_eq!(conflicts(&world.promote("y")), ["file", "other"]);
    world.write("file", "parent\n");
    world.write("other", "p\n");
    assert_eq!(world.promote("y").verdict, Verdict::Applied);
    assert_eq!(world.read("file"), "child\n");
}

#[test]
fn an_archive_that_tells_no_base_takes_nothing_for_it() {
    let world = World::new();
    world.write("edited", "host");
    world.write("gone", "host");
    world.make("x", "echo in > edited; rm gone; echo n > new").unwrap();
    world.export("x");
    world.rewrite(as_of_format_1);
    world.import("y").unwrap();
    assert_eq!(conflicts(&world.promote("y")), ["edited", "gone"]);
    assert_eq!(world.read("edited"), "host");
    // A run in it changes nothing about that.
    world.sh("y", "echo more >> edited").unwrap();
    assert_eq!(conflicts(&world.promote("y")), ["edited", "gone"]);
    let new = Promote { only: vec!["new".into()], ..asked("y") };
    assert_eq!(world.promote_with(new).unwrap().verdict, Verdict::Applied);
    let ours = Promote { ours: vec!["edited".into(), "gone".into()], ..asked("y") };
    assert_eq!(world.promote_with(ours).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read("edited"), "in\nmore\n");
}

#[test]
fn a_base_that_is_no_digest_is_refused_and_leaves_nothing() {
    let world = World::new();
    world.write("edited", "host");
    world.make("x", "echo in > edited").unwrap();
    world.export("x");
    let before = fs::read_dir(world.dir.path().join("home/bases")).unwrap().count();
    world
        .rewrite(|manifest| manifest["base"][0]["was"][0]["sha256"] = json!("../../../etc/passwd"));
    assert_eq!(world.import("y"), Err(Code::Invalid));
    assert_eq!(fs::read_dir(world.dir.path().join("home/bases")).unwrap().count(), before);
    world.rewrite(|manifest| manifest["format"] = json!(4));
    assert_eq!(world.import("y"), Err(Code::Unsupported));
}

/// What a sandbox shows of the project, as text.
fn shown(world: &World, sandbox: &str) -> String {
    let list =
        "find . ! -name '*.zst' ! -type d | sort | while read -r f; do echo $f $(cat $f); done";
    world.sh(sandbox, list).unwrap().stdout
}

#[test]
fn an_archive_with_its_history_can_be_returned_to_every_snapshot() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, name);
    }
    world.make("x", "echo 1 > a; mkdir d; echo d > d/e").unwrap();
    world.snapshot("x", "one").unwrap();
    world.sh("x", "rm b; rm -r d; echo 2 > a; ln -s a l").unwrap();
    world.snapshot("x", "two").unwrap();
    // The third stands beside the second, not on it.
    world.rollback("x", "one").unwrap();
    world.sh("x", "echo 3 > c; rm a; mkdir a; echo in > a/f").unwrap();
    world.snapshot("x", "three").unwrap();
    world.sh("x", "echo now > a/f; echo new > n").unwrap();

    assert_eq!(world.export_with("x", true).snapshots, 3);
    world.import("y").unwrap();
    assert_eq!(shown(&world, "y"), shown(&world, "x"));
    for name in ["one", "two", "three"] {
        world.rollback("x", name).unwrap();
        world.rollback("y", name).unwrap();
        assert_eq!(shown(&world, "y"), shown(&world, "x"), "at {name}");
    }
    world.rollback("y", "base").unwrap();
    assert_eq!(shown(&world, "y"), "./a a\n./b b\n./c c\n");
}

#[test]
fn a_history_that_no_sandbox_had_is_refused_and_leaves_nothing() {
    let world = World::new();
    world.make("x", "echo 1 > a").unwrap();
    world.snapshot("x", "one").unwrap();
    world.export_with("x", true);
    let layers = || fs::read_dir(world.engine.home().join("layers")).unwrap().count();
    let before = layers();
    let name = |name: &'static str| {
        move |manifest: &mut Value| manifest["history"][0]["name"] = json!(name)
    };
    for bad in ["base", "../x", ""] {
        world.export_with("x", true);
        world.rewrite(name(bad));
        assert_eq!(world.import("y"), Err(Code::Invalid), "{bad}");
    }
    // Entries of a snapshot that the manifest does not tell of.
    world.rewrite(|manifest| manifest["history"] = json!([]));
    assert_eq!(world.import("y"), Err(Code::Invalid));
    assert_eq!(layers(), before, "something was left behind");
    // As it was, it is taken.
    world.export_with("x", true);
    world.import("y").unwrap();
}
