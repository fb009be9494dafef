//! A copy of a layer is the layer, to the last mark.

use crate::support::{Scene, chmod, fifo, make_dir, opaque, whiteout, write};
use fractal_jail::layer::{Bounds, Layer, LayerError, changes, duplicate};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Everything that counts about an entry, its inode replaced by its first name.
fn read(root: &Path) -> BTreeMap<String, String> {
    let mut list = BTreeMap::new();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(at) = todo.pop() {
        let name = at.strip_prefix(root).expect("below").display().to_string();
        let meta = fs::symlink_metadata(&at).expect("stat");
        let mut same = String::new();
        if meta.is_dir() {
            let mut inside: Vec<_> = fs::read_dir(&at).expect("list").flatten().collect();
            inside.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            todo.extend(inside.into_iter().map(|entry| entry.path()));
        } else {
            same = names.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
        }
        let content = match meta.file_type() {
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&at).expect("link")),
            kind if kind.is_file() => {
                format!(
                    "{:?}",
                    fs::read(&at).map(|bytes| (bytes.len(), bytes.first().copied())).ok()
                )
            }
            _ => String::new(),
        };
        let mut value = [0u8; 8];
        let mark = rustix::fs::lgetxattr(&at, "user.overlay.opaque", &mut value[..]).unwrap_or(0);
        let own = rustix::fs::lgetxattr(&at, "user.own", &mut value[..]).unwrap_or(0);
        let what = format!(
            "{:o} {}:{} {} {}.{} {content} {same} {mark} {own}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.rdev(),
            meta.mtime(),
            meta.mtime_nsec(),
        );
        list.insert(name, what);
    }
    list
}

fn full_layer(scene: &Scene) {
    write(scene.layer("d/file"), "text");
    write(scene.layer("d/unreadable"), "secret");
    write(scene.layer("d/program"), "x");
    chmod(&scene.layer("d/program"), 0o4751);
    fs::hard_link(scene.layer("d/file"), scene.layer("other-name")).expect("link");
    std::os::unix::fs::symlink("/etc/passwd", scene.layer("d/link")).expect("symlink");
    whiteout(&scene.layer("gone/away"));
    opaque(&scene.layer("closed"));
    write(scene.layer("closed/in"), "");
    fifo(&scene.layer("d/pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(scene.layer("d/socket")).expect("bind");
    let attribute = rustix::fs::setxattr(
        scene.layer("d/file"),
        "user.own",
        b"mine",
        rustix::fs::XattrFlags::empty(),
    );
    attribute.expect("a filesystem with user xattrs");
    let sparse = fs::File::create(scene.layer("sparse")).expect("create");
    sparse.set_len(1 << 40).expect("a hole");
    make_dir(&scene.layer("d/deep/er"));
    let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
    for name in ["d/file", "d"] {
        fs::File::open(scene.layer(name)).expect("open").set_modified(past).expect("time");
    }
    chmod(&scene.layer("d/unreadable"), 0);
    chmod(&scene.layer("closed"), 0o555);
}

#[test]
fn a_copy_is_like_the_layer_in_everything() {
    let scene = Scene::new();
    full_layer(&scene);
    let copied = duplicate(&scene.own(), &scene.out(""), &Bounds::default(), &mut || true);
    let (from, to) = (read(&scene.layer("")), read(&scene.out("")));
    assert_eq!(copied.expect("a copy") + 1, from.len() as u64, "and the root");
    assert_eq!(from, to);
    assert!(fs::metadata(scene.out("sparse")).expect("stat").blocks() < 1000, "holes stay holes");
    assert!(fs::symlink_metadata(scene.out("d/socket")).expect("stat").file_type().is_socket());
    let copy = Layer::open(&scene.out("")).expect("layer");
    assert_eq!(
        changes(&[copy], &scene.base_view(), &Bounds::default()).expect("changes").list,
        scene.changes().list
    );
    chmod(&scene.layer("closed"), 0o755);
    chmod(&scene.out("closed"), 0o755);
}

#[test]
fn what_owners_and_marks_say_is_kept_by_root() {
    let scene = Scene::new();
    write(scene.layer("theirs"), "x");
    let set = |at: &Path, name: &str| {
        rustix::fs::setxattr(at, name, b"y", rustix::fs::XattrFlags::empty())
    };
    make_dir(&scene.layer("closed"));
    if set(&scene.layer("closed"), "trusted.overlay.opaque").is_err() {
        return println!("skipped: not root");
    }
    std::os::unix::fs::chown(scene.layer("theirs"), Some(1234), Some(4321)).expect("chown");
    // Giving a file away would clear this bit if it were set first.
    chmod(&scene.layer("theirs"), 0o6755);
    duplicate(&scene.own(), &scene.out(""), &Bounds::default(), &mut || true).expect("a copy");
    assert_eq!(read(&scene.layer("")), read(&scene.out("")));
    let mut value = [0u8; 2];
    let mark = rustix::fs::getxattr(scene.out("closed"), "trusted.overlay.opaque", &mut value[..]);
    assert_eq!((mark, value[0]), (Ok(1), b'y'));
}

#[test]
fn a_copy_is_whole_or_an_error() {
    let scene = Scene::new();
    let mut at = scene.layer("");
    for _ in 0..300 {
        at.push("d");
    }
    make_dir(&at);
    let copied = duplicate(&scene.own(), &scene.out(""), &Bounds::default(), &mut || true);
    assert!(matches!(copied, Err(LayerError::Bound { .. })), "{copied:?}");
    let scene = Scene::new();
    for index in 0..200 {
        write(scene.layer(&format!("f{index}")), "x");
    }
    let copied = duplicate(&scene.own(), &scene.out(""), &Bounds::default(), &mut || false);
    assert!(matches!(copied, Err(LayerError::Stopped)), "{copied:?}");
}
