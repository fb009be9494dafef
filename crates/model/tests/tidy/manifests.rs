//! Who may use whom.

use crate::{assert_none, files, root};

/// Each crate's folder and the workspace crates it may use, in tests too.
/// A row that grows changes the architecture: change ARCHITECTURE.md with it.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("model", &[]),
    ("store", &["fractal-model"]),
    ("jail", &["fractal-model"]),
    ("fs", &["fractal-model"]),
    ("shell", &["fractal-model", "fractal-fs"]),
    ("index", &["fractal-model"]),
    (
        "fractal",
        &[
            "fractal-model",
            "fractal-store",
            "fractal-jail",
            "fractal-fs",
            "fractal-shell",
            "fractal-index",
        ],
    ),
    ("envd", &[]),
    ("server", &["fractal", "fractal-envd"]),
    ("cli", &["fractal", "fractal-envd", "fractal-server"]),
    ("py", &["fractal", "fractal-fs", "fractal-shell"]),
];

/// Names of workspace crates among a manifest's dependencies of all kinds.
fn used(manifest: &str) -> Vec<String> {
    let mut used = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            if let Some((_, name)) = section.rsplit_once("dependencies.") {
                used.push(name.to_owned());
            }
        } else if inside && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            used.push(name.trim_matches('"').to_owned());
        }
    }
    used.retain(|name| name == "fractal" || name.starts_with("fractal-"));
    used
}

fn folders() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("crates")).expect("the tree is readable");
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_crate_uses_only_what_the_table_allows() {
    let mut breaches = Vec::new();
    for folder in folders() {
        let manifest = std::fs::read_to_string(root().join(format!("crates/{folder}/Cargo.toml")))
            .expect("the tree is readable");
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == folder) else {
            breaches.push(format!("crates/{folder} has no row in the table"));
            continue;
        };
        for name in used(&manifest).iter().filter(|name| !allowed.contains(&name.as_str())) {
            breaches.push(format!("crates/{folder} may not use {name}"));
        }
    }
    assert_none(&breaches, "dependencies between crates are fixed");
}

#[test]
fn every_row_of_the_table_is_a_crate() {
    let gone: Vec<String> = MAY_USE
        .iter()
        .filter(|(name, _)| !folders().iter().any(|folder| folder == name))
        .map(|(name, _)| format!("crates/{name}"))
        .collect();
    assert_none(&gone, "rows without a crate");
}

#[test]
fn every_crate_stands_in_the_code_map() {
    let pages = files(&["ARCHITECTURE.md"]);
    let missing: Vec<String> = folders()
        .into_iter()
        .filter(|folder| {
            !pages.iter().any(|(_, text)| text.contains(&format!("`crates/{folder}`")))
        })
        .collect();
    assert_none(&missing, "crates that ARCHITECTURE.md does not name");
}

#[test]
fn dependencies_are_found_in_every_form() {
    let manifest = "[package]\nname = \"fractal-x\"\n[dependencies]\nfractal-model.workspace = true\n\
                    serde = \"1\"\n# fractal-no = 1\n[dev-dependencies]\nfractal = { path = \"../fractal\" }\n\
                    [target.'cfg(unix)'.dependencies.fractal-jail]\npath = \"x\"\n[lints]\nworkspace = true\n";
    assert_eq!(used(manifest), ["fractal-model", "fractal", "fractal-jail"]);
}
