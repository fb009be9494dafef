//! Somebody else edits the same tree meanwhile: no edit is ever lost.

use super::thousand::{self, Ends, forget, measure};
use super::world::{Want, World};
use fractal_model::Code;
use fractal_store::Reads;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const STEPS: usize = 60;

/// Ways to edit a path, as programs do it.
const WAYS: [fn(&Path); 4] = [
    |path| {
        if !path.is_symlink() {
            let _ = fs::write(path, "edited in place");
        }
    },
    |path| {
        let beside = path.with_extension("editor");
        if fs::write(&beside, "edited beside").is_ok() && fs::rename(&beside, path).is_err() {
            let _ = fs::remove_file(beside);
        }
    },
    |path| drop(fs::remove_file(path)),
    |path| {
        let _ = fs::remove_file(path);
        let _ = std::os::unix::fs::symlink("edited", path);
    },
];

/// Before change number `stop`, somebody edits one path in one way.
fn edit_at(
    world: &mut World,
    path: PathBuf,
    stop: u64,
    way: fn(&Path),
) -> Arc<Mutex<Option<String>>> {
    let edited = Arc::new(Mutex::new(None));
    let result = edited.clone();
    world.reopen();
    let once = AtomicBool::new(false);
    world.engine.set_fault_hook(move |_, number| {
        if number == stop && !once.swap(true, Ordering::Relaxed) {
            let before = look(&path);
            way(&path);
            // Deleting what is not there, say, is no edit.
            *result.lock().unwrap() = Some(look(&path)).filter(|now| *now != before);
        }
        Ok(())
    });
    edited
}

fn look(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Err(_) => "nothing".to_owned(),
        Ok(meta) if meta.is_dir() => "directory".to_owned(),
        Ok(meta) if meta.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        Ok(_) => fs::read_to_string(path).unwrap(),
    }
}

/// All paths but one are as before, or all are new.
fn is_whole(world: &World, ends: &Ends, but: &[u8]) -> Option<&'static str> {
    let (mut now, mut old, mut new) = (world.tree(), ends.old.clone(), ends.new.clone());
    for tree in [&mut now, &mut old, &mut new] {
        // A directory that holds somebody's file stays with it.
        tree.retain(|name, _| !but.starts_with(name));
    }
    match () {
        () if now == old => Some("old"),
        () if now == new => Some("new"),
        () => None,
    }
}

fn check_edits_of(steps: impl Iterator<Item = usize>) {
    let mut world = World::fast();
    let ends = measure(&mut world, STEPS);
    for at in steps {
        let name = thousand::name(at);
        let path = world.root.join(&name);
        for stop in (1 + at as u64 % 3..=ends.calls).step_by(3) {
            let way = WAYS[(stop as usize / 3 + at) % WAYS.len()];
            let edited = edit_at(&mut world, path.clone(), stop, way);
            let result = thousand::apply(&world, STEPS);
            let when = format!("{name} at change {stop}: {result:?}");
            match &*edited.lock().unwrap() {
                Some(edited) => assert_eq!(look(&path), *edited, "lost: {when}"),
                None => assert!(result.is_ok(), "{when}"),
            }
            let whole = is_whole(&world, &ends, name.as_bytes());
            let expected = if result.is_ok() { "new" } else { "old" };
            assert_eq!(whole, Some(expected), "{when}");
            if let Err(error) = result {
                assert_eq!(error.code, Code::Conflict, "{when}");
            }
            assert!(world.engine.store.unfinished_applies().unwrap().is_empty(), "{when}");
            forget(&world);
            thousand::lay_out(&world, STEPS);
        }
    }
}

#[test]
fn an_edit_of_a_changed_file_is_kept_whenever_it_comes() {
    check_edits_of([7, 17].into_iter());
}

#[test]
fn an_edit_of_a_removed_file_is_kept_whenever_it_comes() {
    check_edits_of([1, 12].into_iter());
}

#[test]
fn an_edit_of_a_link_or_what_becomes_one_is_kept_whenever_it_comes() {
    check_edits_of([5, 16].into_iter());
}

#[test]
fn an_edit_where_something_new_comes_is_kept_whenever_it_comes() {
    check_edits_of([8, 29].into_iter());
}

/// Another thread saves files the way editors do, all the time.
#[test]
fn files_saved_by_another_thread_all_stay() {
    let mut world = World::fast();
    measure(&mut world, STEPS);
    let saved: Mutex<Vec<(PathBuf, String)>> = Mutex::default();
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let save = |number: u64| {
        let path = world.root.join(thousand::name(7 + 10 * (number as usize % 3)));
        let (beside, text) = (path.with_extension("editor"), format!("saved {number}"));
        fs::write(&beside, &text).unwrap();
        // One lock for the file and the note of it, as seen by this test.
        let mut saved = saved.lock().unwrap();
        fs::rename(&beside, &path).unwrap();
        saved.retain(|(known, _)| *known != path);
        saved.push((path, text));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                save(count.fetch_add(1, Ordering::Relaxed));
                std::thread::yield_now();
            }
        });
        for _ in 0..40 {
            let job = {
                // What was saved before is known to the plan.
                let mut saved = saved.lock().unwrap();
                saved.clear();
                thousand::job(&world, STEPS)
            };
            let result = crate::apply::apply(&world.engine, job);
            let saved = saved.lock().unwrap();
            for (path, text) in saved.iter() {
                assert_eq!(look(path), *text, "{result:?}");
            }
            if result.is_ok() {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_parent_that_becomes_a_link_leads_nowhere() {
    let mut world = World::fast();
    world.write("dir/sub/a", "old");
    world.write("outside/a", "outside");
    let outside = world.dir.path().join("elsewhere");
    fs::create_dir(&outside).unwrap();
    let before = ["dir/sub/a", "dir/sub/b", "dir/new"];
    for stop in 1..40 {
        fs::write(outside.join("a"), "outside").unwrap();
        let (root, away) = (world.root.clone(), outside.clone());
        world.reopen();
        world.engine.set_fault_hook(move |_, number| {
            if number == stop {
                let _ = fs::rename(root.join("dir/sub"), root.join("dir/moved"));
                let _ = std::os::unix::fs::symlink(&away, root.join("dir/sub"));
            }
            Ok(())
        });
        let result = world.apply(&[(before[0], Want::File("new")), (before[1], Want::File("new"))]);
        assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "outside", "{stop}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{stop}");
        if let Err(error) = result {
            assert_eq!(error.code, Code::Conflict, "{stop}: {error}");
        }
        let _ = fs::remove_dir_all(world.root.join("dir"));
        world.write("dir/sub/a", "old");
        forget(&world);
    }
}

#[test]
fn what_others_wrote_after_it_was_brought_stays_and_the_old_is_kept() {
    let mut world = World::fast();
    world.write("a", "old a");
    world.write("b", "old b");
    let path = world.root.join("a");
    world.reopen();
    // `a` is exchanged first; then somebody edits it, and `b` cannot be.
    let exchanges = AtomicU64::new(0);
    world.engine.set_fault_hook(move |call, _| {
        if call == "exchange" && exchanges.fetch_add(1, Ordering::Relaxed) == 1 {
            fs::write(&path, "work on the new one").unwrap();
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(())
    });
    let error = world.apply(&[("a", Want::File("new a")), ("b", Want::File("new b"))]).unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error}");
    assert!(error.message.contains("stays as it is"), "{error}");
    assert_eq!(look(&world.root.join("a")), "work on the new one");
    assert_eq!(look(&world.root.join("b")), "old b");
    let row = world.engine.store.applies().unwrap().remove(0);
    let kept = world.engine.store.undo_dir(row.id).join("0/0");
    assert_eq!(look(&kept), "old a");
    assert!(world.undo(None).is_err(), "there is nothing that could be taken back");
    assert_eq!(world.tree().len(), 2);
}
