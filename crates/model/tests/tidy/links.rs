//! Links between pages lead somewhere.

use crate::{assert_none, files, root};
use std::path::{Component, Path, PathBuf};

/// Targets of `[text](target)` outside of code.
fn targets(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second piece between backquotes is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            found.push(piece.split([')', ' ']).next().unwrap_or_default().to_owned());
        }
    }
    found
}

fn resolve(page: &str, target: &str) -> PathBuf {
    let path = target.split('#').next().unwrap_or_default();
    let mut at = Path::new(page).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(at.pop()),
            Component::Normal(name) => at.push(name),
            _ => {}
        }
    }
    at
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut dead = Vec::new();
    for (page, text) in files(&[".md"]) {
        for target in targets(&text) {
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if elsewhere || target.starts_with('#') {
                continue;
            }
            if !root().join(resolve(&page, &target)).exists() {
                dead.push(format!("{page}: {target}"));
            }
        }
    }
    assert_none(&dead, "dead links");
}

#[test]
fn every_test_that_the_specification_names_exists() {
    let pages = files(&["SPEC.md"]);
    let names = pages.iter().flat_map(|(_, text)| text.split('`').skip(1).step_by(2));
    let ours = ["crates/", "examples/", "python/"];
    let ours = names.filter(|name| ours.iter().any(|folder| name.starts_with(folder)));
    let gone: Vec<String> =
        ours.filter(|name| !root().join(name).exists()).map(str::to_owned).collect();
    assert_none(&gone, "named in SPEC.md and not there");
}

#[test]
fn links_in_code_are_not_links() {
    let page = "[a](x.md) `[b](y.md)` [c](d/e.md#f)\n```\n[g](h.md)\n```\n";
    assert_eq!(targets(page), ["x.md", "d/e.md#f"]);
    assert_eq!(resolve("docs/adr/1.md", "../../README.md"), PathBuf::from("README.md"));
}
