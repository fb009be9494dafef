//! What a patch cannot hold is counted or named.

use crate::trees::Scene;
use fractal::patch::{PatchOptions, SkipReason, write_patch};
use fractal_model::SandboxPath;
use rustix::fs::{CWD, FileType, Mode};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_git_cannot_say_is_counted_and_what_is_too_large_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (base, layer) = (dir.path().join("base"), dir.path().join("layer"));
    for at in [&base, &layer] {
        fs::create_dir_all(at.join("p")).expect("mkdir");
    }
    fs::create_dir(layer.join("p/empty")).expect("mkdir");
    fs::write(layer.join("outside"), "x").expect("write");
    let fifo = layer.join("p/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).expect("mkfifo");
    let huge = fs::File::create(layer.join("p/huge")).expect("create");
    huge.set_len(8 << 40).expect("a sparse file");
    for (at, mode) in [(&base, 0o644), (&layer, 0o600)] {
        fs::write(at.join("p/private"), "same").expect("write");
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(at.join("p/private"), mode).expect("chmod");
    }
    let scene = Scene::open(dir);
    let root = SandboxPath::parse("/p").expect("a path");
    let mut out = Vec::new();
    let options = PatchOptions::default();
    let stat = write_patch(&mut out, &scene.changes.list, &scene.base, &scene.top, &root, &options)
        .expect("a patch");
    assert!(out.is_empty(), "{}", String::from_utf8_lossy(&out));
    assert_eq!((stat.directories, stat.special, stat.attributes, stat.outside), (1, 1, 1, 1));
    let skipped: Vec<_> = stat.skipped.iter().map(|s| (s.path.to_string(), s.reason)).collect();
    assert_eq!(skipped, [("/p/huge".to_owned(), SkipReason::TooLarge { size_bytes: 8 << 40 })]);
}

#[test]
fn large_text_is_binary() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(dir.path().join("base")).expect("mkdir");
    fs::create_dir(dir.path().join("layer")).expect("mkdir");
    fs::write(dir.path().join("layer/t"), "line\n".repeat(100)).expect("write");
    let scene = Scene::open(dir);
    let options = PatchOptions { text_bytes_max: 100, ..PatchOptions::default() };
    let mut out = Vec::new();
    let root = SandboxPath::root();
    write_patch(&mut out, &scene.changes.list, &scene.base, &scene.top, &root, &options)
        .expect("a patch");
    assert!(String::from_utf8_lossy(&out).contains("GIT binary patch\nliteral 500\n"));
}
