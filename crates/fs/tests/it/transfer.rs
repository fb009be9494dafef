//! Trees in and out: nothing is lost, nothing is written over, and an error
//! changes nothing.

use crate::common::{all, kind, mounted, path, text};
use crate::dice::Dice;
use fractal_fs::{
    Archive, ArchiveBounds, Freshness, Kind, Limits, LoadBounds, Memory, NewMeta, Vfs,
};
use fractal_fs::{load, save};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::Arc;

/// A tree with one of everything.
fn rich() -> Vfs {
    let view = Vfs::default();
    view.write_all("/t/a.txt", "hello").unwrap();
    view.write_all("/t/sub/run", vec![0u8, 159, 146, 150]).unwrap();
    view.write_all(b"/t/odd \xff\n/name", "odd").unwrap();
    view.write_all(format!("/t/{}/x", "long".repeat(40)), "").unwrap();
    view.make_dir("/t/empty", 0o700).unwrap();
    view.symlink("/t/link", "sub/../a.txt").unwrap();
    view.symlink("/t/out", "/etc/passwd").unwrap();
    view.link("/t/a.txt", "/t/sub/same").unwrap();
    view.link("/t/a.txt", "/t/z-same").unwrap();
    view.set_xattr("/t/a.txt", b"user.note", b"bytes \0\n=\xff").unwrap();
    view.set_xattr("/t/sub", b"user.dir", b"d").unwrap();
    let meta = |mode, ns| NewMeta { mode: Some(mode), modified_ns: Some(ns), ..NewMeta::default() };
    view.set_meta("/t/sub/run", meta(0o755, 1_234_567_890_123_456_789)).unwrap();
    view.set_meta("/t/a.txt", meta(0o640, -5_000_000_001)).unwrap();
    view.set_meta("/t/empty", meta(0o1777, 1_000_000_000)).unwrap();
    view.set_meta("/t/link", NewMeta { modified_ns: Some(7_000_000_000), ..NewMeta::default() })
        .unwrap();
    view
}

/// The same tree with a file of holes and large owners.
fn richest() -> Vfs {
    let view = rich();
    view.create("/t/holes", 0o644).unwrap();
    view.write_at("/t/holes", 1 << 19, b"middle").unwrap();
    view.truncate("/t/holes", 1 << 20).unwrap();
    let owner = NewMeta { uid: Some(4_000_000_000), gid: Some(3), ..NewMeta::default() };
    view.set_meta("/t/sub/run", owner).unwrap();
    view
}

fn tar(view: &Vfs) -> Vec<u8> {
    let mut bytes = Vec::new();
    view.export_tar(&path("/t"), &mut bytes).unwrap();
    bytes
}

fn archive(bytes: Vec<u8>) -> Archive {
    Archive::of_bytes(bytes, ArchiveBounds::default()).unwrap()
}

#[test]
fn a_tar_brings_everything_back() {
    let view = richest();
    let bytes = tar(&view);
    assert!(bytes.len() < 1 << 19, "holes stay holes: {} bytes", bytes.len());
    let other = Vfs::default();
    other.import_archive(&path("/t"), &archive(bytes)).unwrap();
    assert_eq!(all(&other, b"/t"), all(&view, b"/t"));
    assert_eq!(
        other.stat("/t").unwrap().meta.modified_ns,
        view.stat("/t").unwrap().meta.modified_ns
    );
    assert_eq!(other.extents("/t/holes").unwrap(), view.extents("/t/holes").unwrap());
    let (one, two) = (other.stat("/t/a.txt").unwrap(), other.stat("/t/sub/same").unwrap());
    assert_eq!((one.inode, one.names), (two.inode, 3));
}

#[test]
fn real_tar_reads_what_we_write() {
    let (view, dir) = (richest(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.tar"), tar(&view)).unwrap();
    let args = ["-xf", "a.tar", "--no-same-owner", "-C", "out"];
    fs::create_dir(dir.path().join("out")).unwrap();
    let done = Command::new("tar").args(args).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let at = |name: &str| dir.path().join("out").join(name);
    assert_eq!(fs::read_to_string(at("a.txt")).unwrap(), "hello");
    assert_eq!(fs::metadata(at("a.txt")).unwrap().ino(), fs::metadata(at("z-same")).unwrap().ino());
    let run = fs::metadata(at("sub/run")).unwrap();
    assert_eq!((run.mode() & 0o777, run.mtime_nsec()), (0o755, 123_456_789));
    let holes = fs::read(at("holes")).unwrap();
    assert!(holes.len() == 1 << 20 && &holes[1 << 19..(1 << 19) + 6] == b"middle");
    // And real tar's own way of telling all this.
    let args = ["--format=pax", "-Scf", "b.tar", "-C", "out", "."];
    let done = Command::new("tar").args(args).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success());
    let back = Vfs::default();
    let bytes = fs::read(dir.path().join("b.tar")).unwrap();
    back.import_archive(&path("/t"), &archive(bytes)).unwrap();
    assert_eq!(back.read("/t/holes").unwrap(), holes);
    assert_eq!(back.stat("/t/a.txt").unwrap().names, 3);
    assert_eq!(back.stat("/t/sub/run").unwrap().meta.modified_ns, 1_234_567_890_123_456_789);
}

#[test]
fn a_zip_brings_back_what_zips_can_say() {
    let view = rich();
    let mut bytes = Vec::new();
    view.export_zip(&path("/t"), &mut bytes).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.zip"), &bytes).unwrap();
    let code = "import zipfile\nz = zipfile.ZipFile('a.zip')\nassert z.testzip() is None\nassert z.read('a.txt') == b'hello'";
    let done = Command::new("python3").args(["-c", code]).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let other = Vfs::default();
    other.import_archive(&path("/t"), &archive(bytes)).unwrap();
    let paths = |view: &Vfs| -> Vec<String> {
        let lines = all(view, b"/t").into_iter();
        lines.map(|line| line.split(' ').take(1).collect()).collect()
    };
    assert_eq!(paths(&other), paths(&view));
    assert_eq!(text(&other, "/t/sub/same"), "hello");
    assert_eq!(other.stat("/t/sub/run").unwrap().meta.mode, 0o755);
    assert_eq!(other.stat("/t/empty").unwrap().meta.mode, 0o1777);
    assert_eq!(other.stat("/t/sub/run").unwrap().meta.modified_ns, 1_234_567_890_000_000_000);
    assert_eq!(other.read_link("/t/out").unwrap(), b"/etc/passwd");
}

#[test]
fn json_brings_everything_back_but_holes() {
    let view = richest();
    let json = view.export_json(&path("/t")).unwrap();
    let other = Vfs::default();
    other.import_json(&path("/t"), json.as_bytes()).unwrap();
    assert_eq!(all(&other, b"/t"), all(&view, b"/t"));
    let template = br#"{"fractal_tree": 1, "entries": [
        {"path": "/docs"}, {"path": "/docs/a.md", "content": "text", "mode": "0600"},
        {"path": "/bin", "content": {"base64": "//4="}}, {"path": "/l", "link": "docs"}]}"#;
    let fresh = Vfs::default();
    assert_eq!(fresh.import_json(&path("/"), template).unwrap(), 4);
    assert_eq!(text(&fresh, "/l/a.md"), "text");
    assert_eq!(fresh.stat("/docs/a.md").unwrap().meta.mode, 0o600);
    let bad = |json: &str| {
        let view = Vfs::default();
        let error = view.import_json(&path("/x"), json.as_bytes()).unwrap_err();
        assert!(!view.exists("/x"));
        error.kind
    };
    let entry = |entry: &str| bad(&format!(r#"{{"fractal_tree": 1, "entries": [{entry}]}}"#));
    assert_eq!(bad("{"), Kind::Invalid);
    assert_eq!(bad(r#"{"fractal_tree": 2, "entries": []}"#), Kind::Unsupported);
    assert_eq!(entry(r#"{"path": "/../x"}"#), Kind::Invalid);
    assert_eq!(entry(r#"{"path": "/x", "mode": "9"}"#), Kind::Invalid);
    assert_eq!(entry(r#"{"path": "/x", "content": "", "link": "y"}"#), Kind::Invalid);
    assert_eq!(entry(r#"{"path": "/x", "same_as": "/y"}"#), Kind::NotFound);
    assert_eq!(entry(r#"{"path": "/x", "colour": "red"}"#), Kind::Invalid);
    assert_eq!(entry(r#"{"path": "/x", "content": {"base64": "?"}}"#), Kind::Invalid);
}

#[test]
fn a_directory_goes_out_and_comes_back() {
    let (view, dir) = (rich(), tempfile::tempdir().unwrap());
    view.create("/t/holes", 0o600).unwrap();
    view.write_at("/t/holes", 1 << 23, b"end").unwrap();
    view.set_meta("/t/sub/run", NewMeta { mode: Some(0o6755), ..NewMeta::default() }).unwrap();
    let out = dir.path().join("out");
    view.export_dir(&path("/t"), &out).unwrap();
    assert_eq!(kind(view.export_dir(&path("/t"), &out)), Kind::Exists);
    assert_eq!(fs::read_to_string(out.join("a.txt")).unwrap(), "hello");
    let run = fs::metadata(out.join("sub/run")).unwrap();
    assert_eq!(run.permissions().mode() & 0o7777, 0o755, "no set-uid on the host");
    assert!(fs::metadata(out.join("holes")).unwrap().blocks() < 1000, "holes stay holes");
    let other = Vfs::default();
    other.import_dir(&path("/t"), &out).unwrap();
    let (uid, gid) = (run.uid(), run.gid());
    let without_owner = |lines: Vec<String>, owner: &str| -> Vec<String> {
        lines.into_iter().map(|line| line.replacen(owner, "", 1)).collect()
    };
    view.set_meta("/t/sub/run", NewMeta { mode: Some(0o755), ..NewMeta::default() }).unwrap();
    let expect = without_owner(all(&view, b"/t"), " 1000:1000");
    let got = without_owner(all(&other, b"/t"), &format!(" {uid}:{gid}"));
    // The host may have no attributes.
    let cut = |lines: Vec<String>| -> Vec<String> {
        let plain = |line: String| match line.contains("x3 [") || line.contains("x1 [(") {
            true => line.split(" [").next().unwrap_or_default().to_owned(),
            false => line,
        };
        lines.into_iter().map(plain).collect()
    };
    assert_eq!(cut(got), cut(expect));
}

#[test]
fn nothing_is_written_over_and_an_error_changes_nothing() {
    let (view, bytes) = (Vfs::default(), tar(&rich()));
    view.write_all("/t/mine", "mine").unwrap();
    let before = view.tree();
    assert_eq!(kind(view.import_archive(&path("/t"), &archive(bytes.clone()))), Kind::NotEmpty);
    assert_eq!(kind(view.import_archive(&path("/t/mine"), &archive(bytes.clone()))), Kind::Exists);
    assert!(view.tree().is(&before));
    let small = Vfs::new(Limits { bytes_max: 8, ..Limits::default() });
    assert_eq!(kind(small.import_archive(&path("/t"), &archive(bytes.clone()))), Kind::Full);
    assert!(!small.exists("/t"));
    view.make_dir("/empty", 0o755).unwrap();
    view.import_archive(&path("/empty"), &archive(bytes)).unwrap();
    assert_eq!(text(&view, "/empty/sub/same"), "hello");
    // Both names are one file, here as there.
    view.append("/empty/a.txt", b"!").unwrap();
    assert_eq!(text(&view, "/empty/z-same"), "hello!");
    assert_eq!(view.fork().changes().unwrap(), []);
}

fn saved(view: &Vfs, names: &[&str], trees: &[fractal_fs::Tree]) -> Vec<u8> {
    let trees: Vec<_> = names.iter().copied().zip(trees).collect();
    let mut bytes = Vec::new();
    save(view, &trees, &mut bytes).unwrap();
    bytes
}

#[test]
fn trees_with_history_come_back_and_share_what_they_shared() {
    let view = richest();
    view.write("/big", vec![7u8; 1 << 20]).unwrap();
    let mut trees = vec![view.tree()];
    for round in 0..20 {
        view.write_at("/big", round * 1000, b"edit").unwrap();
        view.write(format!("/t/new-{round}"), "n").unwrap();
        trees.push(view.tree());
    }
    view.remove_file("/t/a.txt").unwrap();
    trees.push(view.tree());
    let names: Vec<String> = (0..trees.len()).map(|n| format!("step {n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bytes = saved(&view, &names, &trees);
    assert!(bytes.len() < 5 << 20, "22 trees of more than a megabyte: {}", bytes.len());
    let back = load(&bytes[..], LoadBounds::default()).unwrap();
    assert_eq!(back.len(), trees.len());
    for (tree, (name, loaded)) in trees.iter().zip(&back) {
        let (old, new) = (view.at(tree), view.at(loaded));
        assert_eq!(all(&new, b""), all(&old, b""), "{name}");
        assert_eq!(new.usage(), old.usage(), "{name}");
        assert_eq!(new.changes_since(tree).unwrap(), [], "{name}");
    }
    // It goes on living, and history stays what it was.
    let on = view.at(&back[3].1);
    on.append("/t/a.txt", b" more").unwrap();
    assert_eq!(text(&on, "/t/sub/same"), "hello more");
    assert_eq!(text(&view.at(&back[3].1), "/t/a.txt"), "hello");
    assert_eq!(
        saved(&on, &["again"], &[back[5].1.clone()]),
        saved(&on, &["again"], &[back[5].1.clone()])
    );
}

#[test]
fn what_is_still_at_its_source_is_saved_too() {
    let view =
        mounted(Arc::new(Memory::new([("d/a", "lazy"), ("b", "")]).unwrap()), Freshness::Frozen);
    let bytes = saved(&view, &["now"], &[view.tree()]);
    let back = load(&bytes[..], LoadBounds::default()).unwrap();
    assert_eq!(text(&Vfs::default().at(&back[0].1), "/m/d/a"), "lazy");
    let deep = Vfs::default();
    deep.make_dir_all("/d".repeat(900)).unwrap();
    let bytes = saved(&deep, &["deep"], &[deep.tree()]);
    assert_eq!(load(&bytes[..], LoadBounds::default()).unwrap().len(), 1);
}

#[test]
fn corrupt_trees_are_refused() {
    let view = rich();
    let bytes = saved(&view, &["one"], &[view.tree()]);
    let refused = |bytes: &[u8]| load(bytes, LoadBounds::default()).map(drop).unwrap_err();
    assert_eq!(refused(b"").kind, Kind::Source);
    assert_eq!(refused(b"something else entirely").kind, Kind::Invalid);
    for len in 8..bytes.len() {
        let error = refused(&bytes[..len]);
        assert!(error.to_string().contains("cut off") || len < 9, "{len}: {error}");
    }
    let mut dice = Dice::new(97);
    for _ in 0..2000 {
        let mut bad = bytes.clone();
        let at = dice.below(bad.len() as u64) as usize;
        bad[at] ^= 1 << dice.below(8);
        refused(&bad);
    }
    let small = LoadBounds { bytes_max: 100, ..LoadBounds::default() };
    assert_eq!(kind(load(&bytes[..], small).map(drop)), Kind::TooLarge);
    let few = LoadBounds { records_max: 3, ..LoadBounds::default() };
    assert_eq!(kind(load(&bytes[..], few).map(drop)), Kind::TooLarge);
    // A record that claims more than there is takes no memory for it.
    let claim = [&b"FRTREES\x01B"[..], &[0xff, 0xff, 0xff, 0xff, 0x07]].concat();
    assert_eq!(refused(&claim).kind, Kind::Source);
}

#[test]
fn holes_that_a_format_cannot_say_are_refused_when_they_are_large() {
    let view = Vfs::default();
    view.create("/holes", 0o644).unwrap();
    view.write_at("/holes", 1 << 40, b"end").unwrap();
    assert_eq!(kind(view.export_zip(&path("/"), std::io::sink())), Kind::TooLarge);
    assert_eq!(kind(view.export_json(&path("/"))), Kind::TooLarge);
    let mut bytes = Vec::new();
    view.export_tar(&path("/"), &mut bytes).unwrap();
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    let other = Vfs::default();
    other.import_archive(&path("/"), &archive(bytes)).unwrap();
    assert_eq!(other.read_range("/holes", 1 << 40..u64::MAX).unwrap(), "end");
    let saved = saved(&other, &["t"], &[other.tree()]);
    let back = load(&saved[..], LoadBounds::default()).unwrap();
    assert_eq!(view.at(&back[0].1).stat("/holes").unwrap().size, (1 << 40) + 3);
}
