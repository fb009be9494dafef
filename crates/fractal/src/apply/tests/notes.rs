//! Attributes of directories, which change in place: all of them or none.

use super::world::{TIME_NS, World};
use crate::apply::{New, Noted, Step, What, apply};
use fractal_jail::layer::Attributes;
use fractal_model::Code;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn attributes(list: &[(&str, &str)]) -> Attributes {
    let pair = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    Attributes::new(list.iter().map(pair)).unwrap()
}

fn has(world: &World) -> (u32, Attributes) {
    let path = world.root.join("dir");
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    (mode, Attributes::of_path(&path).unwrap())
}

/// A directory about which something was noted; `None` where nothing can be.
fn world() -> Option<(World, Noted)> {
    let world = World::new();
    let dir = world.root.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let noted = Noted {
        old: attributes(&[("user.stays", "same"), ("user.moves", "old"), ("user.goes", "old")]),
        new: attributes(&[("user.stays", "same"), ("user.moves", "new"), ("user.comes", "new")]),
    };
    for (name, value) in noted.old.iter() {
        if rustix::fs::setxattr(&dir, name, value, XattrFlags::empty()).is_err() {
            eprintln!("skipped: no user attributes on this filesystem");
            return None;
        }
    }
    Some((world, noted))
}

fn step(world: &World, noted: &Noted, mode: u32) -> Step {
    let noted = Some(noted.clone());
    let new = New { mode, owner: None, mtime_ns: TIME_NS, noted, what: What::Directory };
    Step { path: world.path("dir"), old: world.see("dir"), new: Some(new) }
}

#[test]
fn attributes_of_a_directory_are_old_or_new_whenever_the_disk_breaks() {
    let Some((mut world, noted)) = world() else { return };
    // One that can be written all the time, and one that closes.
    for mode in [0o1750, 0o555] {
        let (old, new) = ((0o755, noted.old.clone()), (mode, noted.new.clone()));
        for for_good in [false, true] {
            let mut stop = 0;
            loop {
                stop += 1;
                world.engine.set_fault_hook(move |_, number| {
                    match number == stop || for_good && number > stop {
                        true => Err(Errno::IO.into()),
                        false => Ok(()),
                    }
                });
                let done =
                    apply(&world.engine, world.job(vec![step(&world, &noted, mode)])).is_ok();
                world.reopen();
                let now = has(&world);
                assert!(now == old || now == new, "{mode:o} at {stop}: {now:?}");
                if now == new {
                    assert!(world.undo(None).unwrap().conflicts.is_empty(), "{stop}");
                }
                assert_eq!(has(&world), old, "{mode:o} at {stop}");
                if done {
                    assert!(stop > 8, "it never failed: {stop}");
                    break;
                }
            }
        }
    }
}

#[test]
fn attributes_that_somebody_else_set_are_left_alone() {
    let Some((world, noted)) = world() else { return };
    let dir = world.root.join("dir");
    let job = world.job(vec![step(&world, &noted, 0o755)]);
    let flags = XattrFlags::empty();
    rustix::fs::setxattr(&dir, "user.moves", b"theirs", flags).unwrap();
    let error = apply(&world.engine, job).unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error}");
    assert_eq!(has(&world).1.get(b"user.moves"), Some(&b"theirs"[..]));
}
