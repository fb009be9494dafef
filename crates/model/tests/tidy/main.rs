//! Reads the whole tree and fails when it breaks a rule that the compiler
//! cannot hold: who may use whom, where `unsafe` lives, words that mean
//! nothing, links that lead nowhere. It belongs to no crate; it lives in the
//! one that all others stand on because it needs nothing but the standard
//! library.

mod links;
mod manifests;
mod text;

use std::path::{Path, PathBuf};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("a crate lies two levels below the root")
        .to_path_buf()
}

/// Directories that hold nothing of ours.
const SKIPPED: [&str; 4] = ["target", ".git", "node_modules", "__pycache__"];

/// Every file of ours below the root with one of these endings, by its path
/// from the root, with its text.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut queue = vec![root.clone()];
    while let Some(dir) = queue.pop() {
        for entry in std::fs::read_dir(&dir).expect("the tree is readable") {
            let path = entry.expect("the tree is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Links are not followed: they may lead out of the tree.
            let kind = path.symlink_metadata().expect("it was just listed").file_type();
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                queue.push(path);
            } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                let shown = path.strip_prefix(&root).expect("it lies below").display().to_string();
                let bytes = std::fs::read(&path).expect("the tree is readable");
                found.push((shown, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no file ends with any of {endings:?}");
    found
}

/// Fails with one line per breach, so that all of them show at once.
fn assert_none(breaches: &[String], rule: &str) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}
