//! Reaching an entry by its inode, hearing of changes, and pieces of
//! directories: what a mount is built on.

use fractal_fs::{Kind, Limits, Vfs};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn an_operation_that_was_given_an_inode_reaches_that_one_or_none() {
    let vfs = Vfs::default();
    vfs.write("/a", "one").unwrap();
    let inode = vfs.lstat("/a").unwrap().inode;
    let only = vfs.given([(&b"/a"[..], inode)]);
    only.append("/a", b" more").unwrap();
    vfs.rename("/a", "/b").unwrap();
    vfs.write("/a", "another").unwrap();
    for error in [
        only.append("/a", b"x").unwrap_err(),
        only.read("/a").unwrap_err(),
        only.remove_file("/a").unwrap_err(),
        vfs.given([(&b"/gone/for/good"[..], inode)]).write("/a", "x").unwrap_err(),
    ] {
        assert_eq!(error.kind, Kind::Changed, "{error}");
    }
    assert_eq!(vfs.read("/a").unwrap(), "another");
    assert_eq!(vfs.given([(&b"/b"[..], inode)]).read("/b").unwrap(), "one more");
}

#[test]
fn whoever_watches_hears_of_others_and_not_of_itself() {
    let (vfs, heard) = (Vfs::default(), Arc::new(AtomicU64::new(0)));
    let tell: Arc<dyn Fn() + Send + Sync> = Arc::new({
        let heard = heard.clone();
        move || {
            heard.fetch_add(1, Ordering::SeqCst);
        }
    });
    let own = vfs.watched(&tell);
    let count = || heard.load(Ordering::SeqCst);
    own.write("/a", "x").unwrap();
    assert_eq!(count(), 0);
    vfs.write("/b", "x").unwrap();
    vfs.clone().remove_file("/b").unwrap();
    assert_eq!(count(), 2);
    // What failed, what only looked and what happened in a fork is no change.
    vfs.remove_file("/b").unwrap_err();
    vfs.read("/a").unwrap();
    vfs.fork().write("/c", "x").unwrap();
    assert_eq!(count(), 2);
    let before = vfs.tree();
    vfs.restore(&before).unwrap();
    vfs.set_limits(Limits::default());
    assert_eq!(count(), 4);
    drop(tell);
    vfs.write("/b", "x").unwrap();
    assert_eq!(count(), 4);
}

#[test]
fn pieces_of_a_directory_are_all_of_it_while_others_come_and_go() {
    let vfs = Vfs::default();
    for number in 0..1000 {
        vfs.write(format!("/stays-{number}"), "x").unwrap();
        vfs.write(format!("/goes-{number}"), "x").unwrap();
    }
    let (mut place, mut seen, mut turns) = (0, Vec::new(), 0);
    loop {
        let page = vfs.page("/", place, 7).unwrap();
        let Some(last) = page.last() else { break };
        assert!(last.next > place && last.next < 1 << 62);
        place = last.next;
        for paged in page {
            assert_eq!(paged.stat.unwrap().inode, paged.listed.inode);
            seen.push(paged.listed.name.to_string());
        }
        vfs.remove_file(format!("/goes-{turns}")).unwrap_or_default();
        vfs.write(format!("/comes-{turns}"), "x").unwrap();
        turns += 1;
    }
    let stays: Vec<_> = seen.iter().filter(|name| name.starts_with("stays")).collect();
    let once: BTreeSet<_> = seen.iter().collect();
    assert_eq!((stays.len(), once.len()), (1000, seen.len()));
    assert!(vfs.page("/", 0, 0).unwrap().is_empty());
}

#[test]
fn two_entries_change_places() {
    let vfs = Vfs::default();
    vfs.write_all("/d/f", "file").unwrap();
    vfs.write("/x", "other").unwrap();
    let (held, before) = (vfs.usage(), vfs.tree());
    vfs.exchange("/d", "/x").unwrap();
    assert_eq!(
        (vfs.read("/d").unwrap(), vfs.read("/x/f").unwrap()),
        ("other".into(), "file".into())
    );
    assert_eq!(vfs.usage(), held);
    vfs.exchange("/d", "/x").unwrap();
    assert_eq!(vfs.changes_since(&before).unwrap(), []);
    for (one, two, kind) in
        [("/d", "/d/f", Kind::Invalid), ("/d", "/none", Kind::NotFound), ("/", "/d", Kind::Busy)]
    {
        assert_eq!(vfs.exchange(one, two).unwrap_err().kind, kind, "{one} {two}");
    }
    assert!(vfs.rename_name("/d", "/x", false).is_err_and(|error| error.kind == Kind::Exists));
}

#[test]
fn what_lost_its_last_name_can_be_given_one_again() {
    let (vfs, attic) = (Vfs::default(), Vfs::default());
    vfs.write("/a", "text").unwrap();
    vfs.link("/a", "/b").unwrap();
    let inode = vfs.lstat("/a").unwrap().inode;
    assert!(!attic.adopt("/1", &vfs.remove_name("/a").unwrap()).unwrap());
    assert_eq!(vfs.name_of(inode).unwrap(), b"/b");
    assert!(attic.adopt("/1", &vfs.remove_name("/b").unwrap()).unwrap());
    assert_eq!(vfs.name_of(inode), None);
    let stat = attic.lstat("/1").unwrap();
    assert_eq!((stat.inode, stat.names, stat.size), (inode, 1, 4));
    assert_eq!((vfs.usage().bytes, attic.usage().bytes), (0, 4));
    vfs.write("/c", "over").unwrap();
    vfs.write("/d", "it").unwrap();
    let (_, gone) = vfs.rename_name("/d", "/c", true).unwrap().unwrap();
    attic.adopt("/2", &gone.unwrap()).unwrap();
    assert_eq!(attic.read("/2").unwrap(), "over");
}

#[test]
fn a_hole_gives_its_memory_back() {
    let vfs = Vfs::default();
    vfs.write("/f", vec![1; 1 << 20]).unwrap();
    vfs.punch("/f", 100..(1 << 20) - 100).unwrap();
    let stat = vfs.lstat("/f").unwrap();
    assert_eq!(stat.size, 1 << 20);
    assert!(stat.held <= 128 * 1024 && vfs.usage().bytes == stat.held, "{stat:?}");
    let text = vfs.read("/f").unwrap();
    assert!(text[..100].iter().chain(&text[(1 << 20) - 100..]).all(|byte| *byte == 1));
    assert!(text[100..(1 << 20) - 100].iter().all(|byte| *byte == 0));
}
