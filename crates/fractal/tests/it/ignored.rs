//! What git ignores does not travel, also where git itself does not like to be
//! asked: beyond links, in submodules, in repositories inside.

use crate::world::World;
use fractal::model::{PromoteReply, Verdict};
use std::fs;
use std::os::unix::fs::symlink;

/// A repository whose rules name logs.
fn repository() -> World {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write(".gitignore", "*.log\nvendor/\n");
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "first"]);
    world
}

/// Names that stayed behind because they are ignored.
fn ignored(reply: &PromoteReply) -> Vec<String> {
    let rows = reply.left_out.iter().filter(|row| row.why == "ignored");
    let name = |path: &String| path.rsplit("project/").next().unwrap_or_default().to_owned();
    rows.flat_map(|row| row.paths.iter().map(name)).collect()
}

#[test]
fn a_link_that_became_a_directory_arrives_in_a_repository() {
    let world = repository();
    fs::create_dir(world.file("deep")).unwrap();
    world.write("deep/.gitignore", "secret\n");
    for link in ["link", "deep/link"] {
        symlink("nowhere", world.file(link)).unwrap();
    }
    world.git(&["add", "."]);
    world
        .make(
            "s",
            "for d in link deep/link; do rm $d; mkdir $d; echo x > $d/file; echo x > $d/a.log; \
             echo x > $d/secret; done; mkdir link/empty",
        )
        .unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(ignored(&reply), ["deep/link/a.log", "deep/link/secret", "link/a.log"]);
    assert_eq!(
        (world.read("link/file"), world.read("deep/link/file")),
        ("x\n".into(), "x\n".into())
    );
    assert!(world.file("link/empty").is_dir() && world.file("link/secret").exists());
    assert!(!world.file("link/a.log").exists() && !world.file("deep/link/secret").exists());
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert!(world.file("link").is_symlink() && world.file("deep/link").is_symlink());
    let trash = world.dir.path().join("home/trash");
    assert_eq!(fs::read_dir(trash).map_or(0, Iterator::count), 0, "nothing of ours is left");
}

#[test]
fn a_directory_that_became_a_link_arrives_in_a_repository() {
    let world = repository();
    fs::create_dir(world.file("dir")).unwrap();
    world.write("dir/file", "x");
    world.git(&["add", "."]);
    world.make("s", "rm -r dir; ln -s elsewhere dir").unwrap();
    assert_eq!(world.promote("s").verdict, Verdict::Applied);
    assert!(world.file("dir").is_symlink());
    assert_eq!(world.undo(None).unwrap().verdict, Verdict::Applied);
    assert_eq!(world.read("dir/file"), "x");
}

#[test]
fn what_lies_in_a_submodule_is_judged_by_its_own_rules() {
    let world = repository();
    world.git(&["init", "-q", "sub"]);
    world.write("sub/.gitignore", "*.o\n");
    world.git(&["-C", "sub", "add", "."]);
    world.git(&["-C", "sub", "commit", "-q", "-m", "sub"]);
    let commit = world.git(&["-C", "sub", "rev-parse", "HEAD"]);
    world.git(&["-c", "advice.addEmbeddedRepo=false", "add", "sub"]);
    // One that is not checked out is a directory like any other.
    let absent = format!("160000,{},absent", commit.trim());
    world.git(&["update-index", "--add", "--cacheinfo", &absent]);
    fs::create_dir(world.file("absent")).unwrap();
    world
        .make("s", "for d in sub absent; do for f in a.c a.o a.log; do echo x > $d/$f; done; done")
        .unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(ignored(&reply), ["absent/a.log", "sub/a.o"]);
    assert_eq!((world.read("sub/a.c"), world.read("sub/a.log")), ("x\n".into(), "x\n".into()));
    assert_eq!((world.read("absent/a.c"), world.read("absent/a.o")), ("x\n".into(), "x\n".into()));
}

#[test]
fn a_repository_inside_that_is_ignored_stays_behind_as_a_whole() {
    let world = repository();
    for name in ["vendor", "own"] {
        world.git(&["init", "-q", name]);
    }
    world.make("s", "echo x > vendor/file; echo x > own/file; echo x > own/a.log").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(ignored(&reply), ["vendor/file"]);
    assert!(world.file("own/file").exists() && world.file("own/a.log").exists());
}

#[test]
fn a_name_that_git_takes_for_magic_is_a_name() {
    let world = repository();
    world.make("s", "for f in ':(top)x' ':!y' '!z' './-o'; do echo x > \"$f\"; done").unwrap();
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    assert_eq!(reply.applied.len(), 4);
    assert!(world.file(":(top)x").exists() && world.file(":!y").exists());
}
