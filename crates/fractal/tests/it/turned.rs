//! A directory that one side works in while the other takes it away, or puts
//! a link or a file into its place.

use crate::promote::{asked, conflicts};
use crate::world::{World, shell};
use fractal::Run;
use fractal::model::{BaseKind, Promote, Verdict};
use fs::FileType;
use std::fs;
use std::os::unix::fs::symlink;

const BASES: [BaseKind; 2] = [BaseKind::Live, BaseKind::Frozen];

/// A directory with files, and a sandbox that did something in it.
fn world(base: BaseKind, script: &str) -> World {
    let world = World::new();
    fs::create_dir_all(world.file("d/deep")).unwrap();
    fs::create_dir(world.file("elsewhere")).unwrap();
    for name in ["d/f", "d/stays", "d/deep/g"] {
        world.write(name, "base\n");
    }
    let run = Run { command: shell(script), name: Some("x".into()), base, ..Run::default() };
    assert_eq!(world.run(run).unwrap().exit, 0);
    world
}

/// What others make of the directory.
const TURNS: [fn(&World); 3] = [
    |world| fs::remove_dir_all(world.file("d")).unwrap(),
    |world| {
        fs::remove_dir_all(world.file("d")).unwrap();
        world.write("d", "a file");
    },
    |world| {
        fs::remove_dir_all(world.file("d")).unwrap();
        symlink("elsewhere", world.file("d")).unwrap();
    },
];

fn kind(world: &World, name: &str) -> Option<FileType> {
    fs::symlink_metadata(world.file(name)).ok().map(|meta| meta.file_type())
}

/// Every base, and everything others may have done.
fn each(script: &str, check: impl Fn(&World)) {
    for base in BASES {
        for turn in TURNS {
            let world = world(base, script);
            turn(&world);
            check(&world);
        }
    }
}

const NEW: &str = "echo new > d/deep/new";

#[test]
fn work_in_a_directory_that_is_none_any_more_is_a_conflict() {
    each(NEW, |world| {
        let before = kind(world, "d");
        let reply = world.promote("x");
        assert_eq!((reply.verdict, conflicts(&reply)), (Verdict::Conflict, vec!["d".into()]));
        assert_eq!(kind(world, "d"), before);
        let reply = world.update("x", &[], &[]);
        assert_eq!((reply.verdict, conflicts(&reply)), (Verdict::Conflict, vec!["d".into()]));
    });
}

#[test]
fn chosen_as_ours_the_directory_comes_with_the_work() {
    each(NEW, |world| {
        let ours = Promote { ours: vec!["d".into()], ..asked("x") };
        let reply = world.promote_with(ours).unwrap();
        assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
        assert_eq!(world.read("d/deep/new"), "new\n");
        world.undo(None).unwrap();
        assert!(kind(world, "d").is_none_or(|kind| !kind.is_dir()));
    });
}

#[test]
fn chosen_as_theirs_the_work_stays_behind() {
    each(NEW, |world| {
        let before = kind(world, "d");
        let theirs = Promote { theirs: vec!["d".into()], ..asked("x") };
        assert_eq!(world.promote_with(theirs).unwrap().verdict, Verdict::Nothing);
        assert_eq!(kind(world, "d"), before);
    });
}

#[test]
fn an_update_keeps_the_work_or_follows_as_it_is_told() {
    each("echo new > d/deep/new; echo in > d/f", |world| {
        let reply = world.update("x", &["d"], &[]);
        assert_ne!(reply.verdict, Verdict::Conflict, "{reply:?}");
        let seen = world.sh("x", "cat d/deep/new d/f").unwrap();
        assert_eq!(seen.stdout, "new\nin\n");
    });
    each("echo new > d/deep/new; echo in > d/f", |world| {
        let reply = world.update("x", &[], &["d"]);
        assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
        assert_eq!(world.changed("x").unwrap(), []);
    });
}

#[test]
fn a_directory_that_the_sandbox_replaced_comes_back_when_told() {
    for base in BASES {
        let world = world(base, "rm -r d; ln -s elsewhere d");
        world.write("d/f", "outside\n");
        world.write("d/new", "outside\n");
        let reply = world.promote("x");
        assert_eq!(conflicts(&reply), ["d/f", "d/new"]);
        let reply = world.update("x", &[], &["d/f", "d/new"]);
        assert_eq!(conflicts(&reply), ["d"], "{reply:?}");
        let reply = world.update("x", &[], &["d"]);
        assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
        let seen = world.sh("x", "cat d/f d/new d/stays d/deep/g").unwrap();
        assert_eq!(seen.stdout, "outside\noutside\nbase\nbase\n", "{base:?}: {}", seen.stderr);
        assert_eq!(world.changed("x").unwrap(), []);
    }
}
