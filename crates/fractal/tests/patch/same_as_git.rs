//! For text, the patch and its short forms are byte for byte what git prints.

use crate::trees::{Dice, Scene, Tree, git, write_tree};
use fractal::patch::{PatchOptions, write_name_status, write_patch, write_stat};
use fractal_model::{EntryKind, SandboxPath};
use std::fs;
use std::path::Path;

/// A repository whose index holds `after` on a commit of `before`.
fn repository(at: &Path, before: &Tree, after: &Tree) {
    write_tree(at, before);
    let run = |arguments: &[&str]| git(at, arguments).expect("git");
    run(&["init", "-q"]);
    run(&["add", "-A"]);
    run(&["commit", "-q", "--allow-empty", "-m", "before"]);
    for entry in fs::read_dir(at).expect("readable").map(|entry| entry.expect("entry")) {
        if entry.file_name() == ".git" {
            continue;
        }
        match entry.file_type().expect("type").is_dir() {
            true => fs::remove_dir_all(entry.path()).expect("remove"),
            false => fs::remove_file(entry.path()).expect("remove"),
        }
    }
    write_tree(at, after);
    run(&["add", "-A"]);
}

fn check(actual: &[u8], expect: &[u8], what: &str, seed: u64) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        actual == expect,
        "{what}, seed {seed}\nours:\n{}\ngit:\n{}",
        text(actual),
        text(expect)
    );
}

#[test]
fn text_patches_and_summaries_are_gits() {
    for seed in 1..=80 {
        // Few lines repeat: where they do, two diffs can be equally short.
        let mut dice = Dice::new(seed, 100_000);
        let with_binary = seed % 4 == 0;
        let before = dice.tree(with_binary);
        let after = dice.changed(&before, with_binary);
        let scene = Scene::new(&before, &after, &mut dice);
        let git_dir = scene.dir.path().join("git");
        repository(&git_dir, &before, &after);
        let diff = |format: &[&str]| {
            let fixed = ["diff", "--cached", "--full-index", "--no-renames"];
            git(&git_dir, &[&fixed[..], format].concat()).expect("git diff")
        };
        let (root, options) = (SandboxPath::root(), PatchOptions::default());
        let mut ours = Vec::new();
        let list = &scene.changes.list;
        let stat = write_patch(&mut ours, list, &scene.base, &scene.top, &root, &options)
            .expect("a patch");
        if !with_binary {
            check(&ours, &diff(&["--binary"]), "patch", seed);
        }
        if before != after {
            for width in [80, 40, 200] {
                let mut ours = Vec::new();
                write_stat(&mut ours, &stat, width).expect("stat");
                check(&ours, &diff(&[&format!("--stat={width}")]), "stat", seed);
            }
        }
        let mut ours = Vec::new();
        let files: Vec<_> =
            list.iter().filter(|change| change.entry != EntryKind::Directory).cloned().collect();
        write_name_status(&mut ours, &files, &root).expect("names");
        let theirs = String::from_utf8(diff(&["--name-status"])).expect("quoted is ASCII");
        // A changed type is a modification in our words.
        let theirs = theirs.replace("T\t", "M\t");
        if !list.iter().any(|change| change.entry == EntryKind::Directory) {
            check(&ours, theirs.as_bytes(), "name-status", seed);
        }
    }
}
