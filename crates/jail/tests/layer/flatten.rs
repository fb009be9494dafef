//! A flattened stack shows what the stack shows, to our view and to overlayfs.

use crate::overlay::{Dice, Tree, overlay_script, read_disk, read_view};
use crate::support::{chmod, make_dir, whiteout, write};
use fractal_jail::layer::{Bounds, Layer, LayerError, Marks, View, changes, flatten};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn layer(dir: &Path, name: &str, marks: Marks) -> Layer {
    Layer::open(&dir.join(name)).expect("layer").marked_by(marks)
}

/// Flattens the layers from `from` to `to` of a stack (1 is the lowest) and
/// returns the stack with the result in their place, top first.
fn flattened(dir: &Path, count: usize, part: (usize, usize), marks: Marks) -> Vec<String> {
    let names: Vec<String> = (1..=count).rev().map(|at| format!("l{at}")).collect();
    let range = count - part.1..=count - part.0;
    let layers: Vec<Layer> =
        names[range.clone()].iter().map(|name| layer(dir, name, marks)).collect();
    let flat = format!("flat-{}-{}", part.0, part.1);
    make_dir(&dir.join(&flat));
    flatten(&layers, &dir.join(&flat), &Bounds::default()).expect("a flat layer");
    let mut stack = names;
    stack.splice(range, [flat]);
    stack
}

#[test]
fn random_stacks_mean_the_same_when_flattened() {
    for seed in 1..=24u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (option, marks) = match seed % 2 {
            0 => (",userxattr", Marks::User),
            _ => (",redirect_dir=off,metacopy=off", Marks::Trusted),
        };
        let count = 2 + dice.roll(4) as usize;
        let mut script = format!("umask 022; mkdir base m; (cd base; {})\n", dice.script(20));
        let mut lower = "base".to_owned();
        for at in 1..=count {
            script += &overlay_script(&lower, &format!("l{at}"), option, &dice.script(12));
            script += "umount m\n";
            lower = format!("l{at}:{lower}");
        }
        script += &format!("mount -t overlay o -o lowerdir={lower}{option} m || exit 77\n");
        script += "cp -a m see; umount m\n";
        if let Err(reason) = crate::overlay::sh(dir.path(), &script) {
            println!("skipped: {reason}");
            return;
        }
        let first = 1 + dice.roll(count as u64) as usize;
        let last = first + dice.roll((count - first + 1) as u64) as usize;
        let see = read_disk(&dir.path().join("see"));
        let base = View { host: Some(layer(dir.path(), "base", marks)), ..View::default() };
        for part in [(1, count), (first, last), (2, count)] {
            if dir.path().join(format!("flat-{}-{}", part.0, part.1)).exists() {
                continue;
            }
            let stack = flattened(dir.path(), count, part, marks);
            let layers: Vec<Layer> =
                stack.iter().map(|name| layer(dir.path(), name, marks)).collect();
            let what = format!("seed {seed}, layers {part:?} of {count}");
            assert_eq!(read_view(&base.with_layers_on_top(&layers)), see, "{what}");
            assert_eq!(mounted(dir.path(), &stack, option), see, "{what}, mounted");
            let own: Vec<Layer> =
                (1..=count).rev().map(|at| layer(dir.path(), &format!("l{at}"), marks)).collect();
            let of = |own: &[Layer]| changes(own, &base, &Bounds::default()).expect("changes").list;
            assert_eq!(of(&layers), of(&own), "{what}, changes");
        }
    }
}

/// What overlayfs shows for these layers over the base.
fn mounted(dir: &Path, stack: &[String], option: &str) -> Tree {
    let lower = stack.join(":");
    let script = format!(
        "rm -rf again; mount -t overlay o -o lowerdir={lower}:base{option} m || exit 77
cp -a m again; umount m"
    );
    crate::overlay::sh(dir, &script).expect("it could be mounted before");
    read_disk(&dir.join("again"))
}

#[test]
fn files_are_linked_and_directories_keep_their_looks() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |path: &str| dir.path().join(path);
    write(at("low/d/old"), "old");
    write(at("low/d/kept"), "kept");
    write(at("high/d/old"), "new");
    whiteout(&at("high/d/gone"));
    make_dir(&at("high/closed"));
    chmod(&at("high/d"), 0o2750);
    chmod(&at("high/closed"), 0o555);
    make_dir(&at("flat"));
    let layers = ["high", "low"].map(|name| layer(dir.path(), name, Marks::User));
    assert_eq!(flatten(&layers, &at("flat"), &Bounds::default()).expect("flat"), 5);
    let meta = |path: &str| fs::symlink_metadata(at(path)).expect("stat");
    assert_eq!(meta("flat/d/old").ino(), meta("high/d/old").ino());
    assert_eq!(meta("flat/d/kept").ino(), meta("low/d/kept").ino());
    assert_eq!(meta("flat/d").mode() & 0o7777, 0o2750);
    assert_eq!(meta("flat/d").mtime_nsec(), meta("high/d").mtime_nsec());
    assert_eq!(meta("flat/closed").mode() & 0o7777, 0o555);
    chmod(&at("high/closed"), 0o755);
    chmod(&at("flat/closed"), 0o755);
}

#[test]
fn a_tree_too_deep_is_an_error_and_one_within_bounds_is_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layers = ["a", "b", "c"].map(|name| {
        make_dir(&dir.path().join(name).join(["d/"; 200].concat()));
        write(dir.path().join(name).join(["d/"; 200].concat()).join(name), name);
        layer(dir.path(), name, Marks::User)
    });
    make_dir(&dir.path().join("flat"));
    let made = flatten(&layers, &dir.path().join("flat"), &Bounds::default()).expect("flat");
    assert_eq!(made, 203);
    make_dir(&dir.path().join("a").join(["d/"; 300].concat()));
    make_dir(&dir.path().join("other"));
    let made = flatten(&layers, &dir.path().join("other"), &Bounds::default());
    assert!(matches!(made, Err(LayerError::Bound { .. })), "{made:?}");
}
