//! The one small file that says which parts of the others count.
//!
//! It is written anew beside itself and renamed: a reader sees all of a change
//! or nothing. It ends with a digest of what is before, so that half of one is
//! never taken for a whole.

use super::VectorsError;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

const NAME: &str = "manifest";

/// The form of all files; another one is not read.
const FORM: u64 = 1;

/// What counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) model: String,
    pub(super) dimensions: usize,
    /// The number in the names of the other files.
    pub(super) generation: u64,
    pub(super) rows: usize,
    pub(super) entries: usize,
    /// Sums over all rows and entries.
    pub(super) rows_sum: u64,
    pub(super) entries_sum: u64,
}

impl Manifest {
    /// None where nothing was ever written.
    pub(super) fn read(dir: &Path) -> Result<Option<Manifest>, VectorsError> {
        let path = dir.join(NAME);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| VectorsError::io("read", &path, error))?,
        };
        let damaged = || VectorsError::damaged(dir, "its manifest is not whole");
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
        let (json, digest) = text.split_once('\n').ok_or_else(damaged)?;
        if digest != format!("{}\n", digest_of(json)) {
            return Err(damaged());
        }
        let json: Value = serde_json::from_str(json).map_err(|_| damaged())?;
        if json.get("form") != Some(&json!(FORM)) {
            return Err(VectorsError::damaged(dir, "it was written by another version"));
        }
        let number = |key: &str| json.get(key).and_then(Value::as_u64).ok_or_else(damaged);
        let model = json.get("model").and_then(Value::as_str).ok_or_else(damaged)?;
        Ok(Some(Manifest {
            model: model.to_owned(),
            dimensions: number("dimensions")? as usize,
            generation: number("generation")?,
            rows: number("rows")? as usize,
            entries: number("entries")? as usize,
            rows_sum: number("rows_sum")?,
            entries_sum: number("entries_sum")?,
        }))
    }

    /// Makes this what counts; the caller is the only writer, and what it
    /// names is on the disk.
    pub(super) fn write(&self, dir: &Path) -> Result<(), VectorsError> {
        let json = json!({
            "form": FORM,
            "model": self.model,
            "dimensions": self.dimensions,
            "generation": self.generation,
            "rows": self.rows,
            "entries": self.entries,
            "rows_sum": self.rows_sum,
            "entries_sum": self.entries_sum,
        })
        .to_string();
        let (path, new) = (dir.join(NAME), dir.join("manifest.new"));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(format!("{json}\n{}\n", digest_of(&json)).as_bytes())?;
            file.sync_data()
        });
        written.map_err(|error| VectorsError::io("write", &new, error))?;
        fs::rename(&new, &path).map_err(|error| VectorsError::io("rename", &new, error))
    }
}

fn digest_of(json: &str) -> String {
    format!("{:x}", Sha256::digest(json))
}
