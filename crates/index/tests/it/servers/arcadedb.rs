//! ArcadeDB, from PyPI: another server that speaks Bolt.

use super::bolt::Bolt;
use super::process::{Process, downloads, free_port, has, succeeds};
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

const PACKAGE: &str = "arcadedb-embedded==26.10.2.post1";
const PASSWORD: &str = "never-shown-anywhere";

/// A Python that has it, made the first time.
fn python() -> Option<PathBuf> {
    let dir = downloads("arcadedb");
    let python = dir.join("bin/python");
    if !dir.join("complete").exists() {
        let (at, python) = (dir.display().to_string(), python.display().to_string());
        if !has("python3")
            || !succeeds("python3", &["-m", "venv", &at])
            || !succeeds(&python, &["-m", "pip", "install", "-q", PACKAGE])
        {
            return None;
        }
        fs::write(dir.join("complete"), "").expect("it is written");
    }
    Some(python)
}

fn start(bolt: &Bolt) -> Process {
    let python = python().expect("it was there before").display().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/arcadedb.py");
    let dir = bolt.dir.path();
    let (at, port, http) =
        (dir.display().to_string(), bolt.port.to_string(), free_port().to_string());
    Process::start(dir, &python, &[script, &at, &port, &http, PASSWORD])
}

#[test]
fn arcadedb_answers_as_the_embedded_index_does() {
    if python().is_none() {
        return;
    }
    let bolt = Bolt {
        port: free_port(),
        user: "root",
        password: PASSWORD,
        database: Some("records"),
        dir: tempfile::tempdir().expect("a temporary directory"),
        start,
        process: RefCell::new(None),
    };
    bolt.keeps_its_promises();
}
