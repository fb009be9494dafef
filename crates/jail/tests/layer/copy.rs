//! Copying out: what arrives, what stays behind, what is never followed.

use crate::support::{Scene, chmod, fifo, make_dir, path, whiteout, write};
use fractal_jail::layer::{Bounds, Copied, CopyOptions, copy_out};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};

fn copy(scene: &Scene, from: &str, name: &str, options: &CopyOptions) -> Result<Copied, String> {
    let to = File::open(scene.out("")).expect("destination");
    copy_out(&scene.top_view(), &path(from), to.as_fd(), OsStr::new(name), options)
        .map_err(|error| error.to_string())
}

#[test]
fn a_tree_arrives_as_the_view_shows_it() {
    let scene = Scene::new();
    write(scene.base("d/below"), "below");
    write(scene.base("d/gone"), "");
    whiteout(&scene.layer("d/gone"));
    write(scene.layer("d/sub/su"), "su");
    chmod(&scene.layer("d/sub/su"), 0o4755);
    chmod(&scene.layer("d/sub"), 0o555);
    symlink("/etc/passwd", scene.layer("d/link")).expect("symlink");
    fifo(&scene.layer("d/pipe"));
    let done = copy(&scene, "/d", "copy", &CopyOptions::default()).expect("copied");
    let expect = Copied { files: 2, directories: 2, symlinks: 1, bytes: 7, skipped: 1, ..done };
    assert_eq!(done, expect);
    assert!(!done.truncated && done.unreadable == 0);
    assert_eq!(fs::read_to_string(scene.out("copy/below")).expect("read"), "below");
    let mode = |at: &str| fs::symlink_metadata(scene.out(at)).expect("stat").mode() & 0o7777;
    assert_eq!(mode("copy/sub/su"), 0o755);
    assert_eq!(mode("copy/sub"), 0o555);
    let link = fs::read_link(scene.out("copy/link")).expect("link");
    assert_eq!(link.to_str(), Some("/etc/passwd"));
    let mut names: Vec<_> = fs::read_dir(scene.out("copy")).expect("list").collect();
    assert_eq!(names.len(), 3, "{names:?}");
    names.clear();
    chmod(&scene.out("copy/sub"), 0o755);
    chmod(&scene.layer("d/sub"), 0o755);
}

#[test]
fn a_symlink_at_the_destination_is_replaced_or_refused_but_not_followed() {
    let scene = Scene::new();
    write(scene.base("victim"), "untouched");
    make_dir(&scene.base("victims"));
    write(scene.layer("f"), "new");
    write(scene.layer("d/f"), "new");
    symlink(scene.base("victim"), scene.out("f")).expect("symlink");
    symlink(scene.base("victims"), scene.out("d")).expect("symlink");
    copy(&scene, "/f", "f", &CopyOptions::default()).expect("replaced");
    assert_eq!(fs::read_to_string(scene.base("victim")).expect("read"), "untouched");
    assert!(fs::symlink_metadata(scene.out("f")).expect("stat").is_file());
    assert!(copy(&scene, "/d", "d", &CopyOptions::default()).is_err());
    assert!(!scene.base("victims/f").exists());
}

#[test]
fn a_name_cannot_climb_and_a_bound_is_kept() {
    let scene = Scene::new();
    write(scene.layer("d/small"), "1234");
    File::create(scene.layer("d/sparse")).expect("create").set_len(1 << 40).expect("sparse");
    for name in ["..", "a/b", "", "."] {
        assert!(copy(&scene, "/d", name, &CopyOptions::default()).is_err(), "{name:?}");
    }
    let bounds = Bounds { bytes_max: 1 << 20, ..Bounds::default() };
    let done = copy(&scene, "/d", "d", &CopyOptions { bounds, ..CopyOptions::default() });
    let done = done.expect("copied");
    assert!(done.truncated && done.files == 1);
    assert!(!scene.out("d/sparse").exists());
    let all = copy(&scene, "/d", "d", &CopyOptions { ..CopyOptions::default() });
    assert!(all.expect("copied").truncated, "a claimed tebibyte is over the default bound");
}

#[test]
fn holes_stay_holes() {
    let scene = Scene::new();
    let file = File::create(scene.layer("f")).expect("create");
    file.set_len(1 << 30).expect("sparse");
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 512 << 20).expect("write");
    copy(&scene, "/f", "f", &CopyOptions::default()).expect("copied");
    let copied = fs::metadata(scene.out("f")).expect("stat");
    assert_eq!(copied.len(), 1 << 30);
    assert!(copied.blocks() * 512 < 1 << 20);
    let mut middle = [0; 6];
    let file = File::open(scene.out("f")).expect("open");
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut middle, 512 << 20).expect("read");
    assert_eq!(&middle, b"middle");
}
