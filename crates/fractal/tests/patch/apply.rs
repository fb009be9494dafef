//! `git apply` turns the base into the top, and back.

use crate::trees::{Dice, Scene, git, read_tree, write_tree};
use fractal::patch::{PatchOptions, write_patch};
use fractal_model::SandboxPath;
use std::fs;

#[test]
fn git_applies_what_we_write_and_takes_it_back() {
    for seed in 1..=200 {
        let mut dice = Dice::new(seed, 20);
        let before = dice.tree(true);
        let after = dice.changed(&before, true);
        let scene = Scene::new(&before, &after, &mut dice);
        let mut patch = Vec::new();
        let root = SandboxPath::root();
        let options = PatchOptions::default();
        let stat =
            write_patch(&mut patch, &scene.changes.list, &scene.base, &scene.top, &root, &options)
                .expect("a patch");
        assert!(stat.skipped.is_empty(), "seed {seed}");
        assert_eq!(patch.is_empty(), before == after, "seed {seed}");
        if patch.is_empty() {
            continue;
        }
        let copy = scene.dir.path().join("copy");
        write_tree(&copy, &before);
        fs::write(scene.dir.path().join("p"), &patch).expect("write");
        let explain = |error: String| -> Vec<u8> {
            panic!("seed {seed}: {error}\n{}", String::from_utf8_lossy(&patch))
        };
        git(&copy, &["apply", "--check", "../p"]).unwrap_or_else(explain);
        git(&copy, &["apply", "../p"]).unwrap_or_else(explain);
        assert_eq!(read_tree(&copy), after, "seed {seed}\n{}", String::from_utf8_lossy(&patch));
        git(&copy, &["apply", "-R", "../p"]).unwrap_or_else(explain);
        assert_eq!(read_tree(&copy), before, "seed {seed} reversed");
    }
}
