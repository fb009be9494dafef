//! A directory made whole: the same for every reader, never half of it.

use crate::support::{Scene, chmod, fifo, lines, make_dir, path, whiteout, write};
use fractal_jail::layer::{Bounds, Copied, Layer, LayerError, changes, is_whole, make_whole};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

fn make(scene: &Scene, at: &str, bounds: &Bounds) -> Result<Copied, LayerError> {
    make_dir(&scene.out("tree"));
    make_whole(&scene.top_view(), &path(at), &scene.out(""), &scene.out("staging"), bounds, false)
}

fn whole(scene: &Scene, at: &str) -> bool {
    is_whole(&scene.out(""), &path(at)).expect("a layer")
}

/// What the layer in `out` says differs from the base.
fn differences(scene: &Scene) -> Vec<String> {
    let own = Layer::open(&scene.out("tree")).expect("layer");
    lines(&changes(&[own], &scene.top_view(), &Bounds::default()).expect("changes"))
}

#[test]
fn a_whole_directory_differs_in_nothing() {
    let scene = Scene::new();
    write(scene.base("home/p/a"), "a");
    fs::hard_link(scene.base("home/p/a"), scene.base("home/p/again")).expect("link");
    write(scene.base("home/p/locked/b"), "b");
    chmod(&scene.base("home/p/locked"), 0o555);
    chmod(&scene.base("home/p"), 0o500);
    make_dir(&scene.layer("home/p/empty"));
    whiteout(&scene.layer("home/p/gone"));
    symlink("a", scene.layer("home/p/link")).expect("symlink");
    fifo(&scene.layer("home/p/pipe"));
    chmod(&scene.layer("home/p"), 0o500);
    assert!(!whole_before(&scene));
    make(&scene, "/home/p", &Bounds::default()).expect("copied");
    assert!(whole(&scene, "/home/p"));
    assert_eq!(differences(&scene), Vec::<String>::new());
    let meta = |at: &str| fs::symlink_metadata(scene.out(at)).expect("stat");
    assert_eq!(meta("tree/home/p").mode() & 0o7777, 0o500);
    assert_eq!(meta("tree/home/p/a").ino(), meta("tree/home/p/again").ino());
    let before = fs::metadata(scene.base("home/p/a")).expect("stat");
    assert_eq!(meta("tree/home/p/a").mtime_nsec(), before.mtime_nsec());
    for at in [scene.base("home/p"), scene.base("home/p/locked"), scene.layer("home/p")] {
        chmod(&at, 0o755);
    }
    chmod(&scene.out("tree/home/p"), 0o755);
    chmod(&scene.out("tree/home/p/locked"), 0o755);
    fs::remove_file(scene.out("tree/home/p/locked/b")).expect("unlink");
    assert!(differences(&scene).contains(&"D /home/p/locked/b".to_owned()));
}

fn whole_before(scene: &Scene) -> bool {
    make_dir(&scene.out("tree"));
    whole(scene, "/home/p")
}

#[test]
fn what_cannot_be_copied_leaves_no_half_copy() {
    let scene = Scene::new();
    write(scene.base("p/small"), "x");
    write(scene.base("p/large"), vec![0; 10_000]);
    let bounds = Bounds { bytes_max: 5_000, ..Bounds::default() };
    let error = make(&scene, "/p", &bounds).expect_err("too large");
    assert!(matches!(error, LayerError::TooLarge { bytes: 10_001, .. }), "{error}");
    assert!(!whole(&scene, "/p") && !scene.out("tree/p").exists());
    make(&scene, "/p", &Bounds::default()).expect("copied");
    assert!(whole(&scene, "/p"));
}

#[test]
fn what_the_layer_said_before_is_replaced_at_once() {
    let scene = Scene::new();
    write(scene.base("p/a"), "a");
    write(scene.layer("p/b"), "b");
    write(scene.out("tree/p/b"), "b");
    make(&scene, "/p", &Bounds::default()).expect("copied");
    assert!(scene.out("tree/p/a").exists() && scene.out("tree/p/b").exists());
    assert!(scene.out("staging/p/b").exists(), "kept for whoever clears the staging");
}

#[test]
fn links_on_the_way_are_never_followed() {
    let scene = Scene::new();
    write(scene.base("home/p/a"), "a");
    make_dir(&scene.dir.path().join("victim/p"));
    make_dir(&scene.out("tree"));
    symlink(scene.dir.path().join("victim"), scene.out("tree/home")).expect("symlink");
    assert!(!whole(&scene, "/home/p"));
    // The writer takes the link away or refuses it; it never goes through.
    let _ = make(&scene, "/home/p", &Bounds::default());
    let left = fs::read_dir(scene.dir.path().join("victim/p")).expect("list").count();
    assert_eq!(left, 0);
    assert!(!scene.dir.path().join("victim/p/a").exists());
}
