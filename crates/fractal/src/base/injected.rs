//! Inputs that somebody copied in: no work, until somebody works on them.

use super::{decode, digest, encode, failed};
use crate::Engine;
use fractal_jail::layer::View;
use fractal_model::{Result, SandboxPath};
use fractal_store::SandboxRow;
use std::collections::HashSet;
use std::fs;
use std::io::Write;

/// Notes files that were copied in, by their value: an input is not work, as
/// long as nobody works on it.
pub fn note_injected(
    engine: &Engine,
    row: &SandboxRow,
    top: &View,
    at: &[SandboxPath],
) -> Result<()> {
    let dir = engine.store.base_dir(row.id);
    let path = dir.join("injected");
    let mut lines = String::new();
    for at in at {
        let Some(digest) = top.lookup(at)?.and_then(|entry| digest(top, at, &entry)) else {
            continue;
        };
        lines.push_str(&format!("{digest} {}\n", encode(at)));
    }
    let open = || fs::OpenOptions::new().append(true).create(true).open(&path);
    fs::create_dir_all(&dir)
        .and_then(|()| open()?.write_all(lines.as_bytes()))
        .map_err(|error| failed(&path, &error))
}

/// Paths that still hold what was copied in there.
pub fn injected(engine: &Engine, row: &SandboxRow) -> Result<HashSet<SandboxPath>> {
    let list = fs::read_to_string(engine.store.base_dir(row.id).join("injected"));
    let mut found = HashSet::new();
    let Ok(list) = list else { return Ok(found) };
    let top = engine.views(row, row.base)?.top();
    for line in list.lines() {
        let Some((was, path)) = line.split_once(' ') else { continue };
        let path = decode(path)?;
        let now = top.lookup(&path)?.and_then(|entry| digest(&top, &path, &entry));
        if now.as_deref() == Some(was) {
            found.insert(path);
        }
    }
    Ok(found)
}
