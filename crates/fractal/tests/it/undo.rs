//! Taking a part of a promotion back.

use crate::promote::conflicts;
use crate::world::World;
use fractal::model::{PromoteReply, TypedPath, Verdict};
use fractal::{Action, Code, Reply};
use std::fs;
use std::os::unix::fs::MetadataExt;

impl World {
    fn undo_only(&self, promotion: &str, only: &[&str]) -> Result<PromoteReply, Code> {
        let only = only.iter().map(|path| TypedPath::from(path.as_bytes())).collect();
        let action = Action::Undo { promotion: Some(promotion.into()), only, dry_run: false };
        match self.apply(action)? {
            Reply::Promote(reply) => Ok(*reply),
            other => panic!("undo answered {other:?}"),
        }
    }

    fn tree(&self) -> Vec<(String, String)> {
        let files = ["a", "b", "dir/old", "dir/new", "gone/x", "gone/y"];
        let read =
            |name: &&str| Some(((*name).to_owned(), fs::read_to_string(self.file(name)).ok()?));
        files.iter().filter_map(read).collect()
    }
}

fn promoted() -> (World, String, Vec<(String, String)>) {
    let world = World::new();
    for dir in ["dir", "gone"] {
        fs::create_dir(world.file(dir)).unwrap();
    }
    for name in ["a", "b", "dir/old", "gone/x", "gone/y"] {
        world.write(name, &format!("old {name}\n"));
    }
    let before = world.tree();
    let script = "for f in a b dir/old dir/new; do echo new > $f; done; rm -r gone; echo f > gone";
    world.make("s", script).unwrap();
    let id = world.promote("s").undo.unwrap().to_string();
    (world, id, before)
}

#[test]
fn a_part_is_taken_back_and_the_rest_stands() {
    let (world, id, before) = promoted();
    world.write("b", "mine\n");
    let reply = world.undo(Some(&id)).unwrap();
    assert_eq!((reply.verdict, conflicts(&reply)), (Verdict::Conflict, vec!["b".to_owned()]));
    let reply = world.undo_only(&id, &["a", "dir"]).unwrap();
    assert_eq!((reply.verdict, reply.applied.len()), (Verdict::Applied, 3), "{:?}", reply.applied);
    assert_eq!((world.read("a"), world.read("b")), ("old a\n".into(), "mine\n".into()));
    assert!(world.read("dir/old") == "old dir/old\n" && !world.file("dir/new").exists());
    assert!(world.file("gone").is_file(), "nobody asked for it");
    assert_eq!(fs::metadata(world.file("a")).unwrap().nlink(), 1, "what is kept is kept apart");

    // What is in a directory that went brings the directory, and nothing else.
    assert_eq!(world.undo_only(&id, &["gone/x"]).unwrap().verdict, Verdict::Applied);
    assert!(world.file("gone/x").is_file() && !world.file("gone/y").exists());
    let nothing = world.undo_only(&id, &["gone/x"]).unwrap();
    assert_eq!((nothing.verdict, nothing.applied.len()), (Verdict::Nothing, 0));
    assert_eq!(world.undo_only(&id, &["never"]).err(), Some(Code::Invalid));

    // The rest still is what a bare undo means, and comes back as well.
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Conflict);
    world.write("b", "new\n");
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.tree(), before);
    assert_eq!(world.undo(Some(&id)).err(), Some(Code::NotFound), "all of it is back");
}

#[test]
fn a_part_that_was_taken_back_can_be_brought_again() {
    let (world, id, _) = promoted();
    let after = world.tree();
    let part = world.undo_only(&id, &["a"]).unwrap().undo.unwrap().to_string();
    assert_eq!(world.read("a"), "old a\n");
    // An edit in place is of the file that came back, not of what is kept.
    world.write("a", "edited in place\n");
    for id in [&part, &id] {
        assert_eq!(world.undo(Some(id)).unwrap().verdict, Verdict::Conflict, "{id}");
    }
    world.write("a", "old a\n");
    assert_eq!(world.undo(Some(&part)).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.tree(), after);
    assert_eq!(world.undo(Some(&id)).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read("a"), "old a\n");
}
