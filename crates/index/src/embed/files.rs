//! Small files of a model, read with a bound: a model comes from elsewhere.

use super::EmbedError;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Settings.
pub(super) const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Vocabularies; that of a hundred languages has five megabytes as JSON, and
/// what is parsed takes many times its size in memory.
pub(super) const VOCABULARY_BYTES_MAX: u64 = 16 << 20;

/// The text of a file.
pub(super) fn text(path: &Path, bytes_max: u64) -> Result<String, EmbedError> {
    let fault = |why: String| EmbedError::model(path.display(), why);
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    read.map_err(|error| fault(error.to_string()))?;
    match text.len() as u64 > bytes_max {
        true => Err(fault(format!("it is longer than {bytes_max} bytes"))),
        false => Ok(text),
    }
}

/// The JSON in a file.
pub(super) fn json(path: &Path, bytes_max: u64) -> Result<Value, EmbedError> {
    let text = text(path, bytes_max)?;
    serde_json::from_str(&text)
        .map_err(|error| EmbedError::model(path.display(), format!("it is not JSON: {error}")))
}

/// The JSON in a file of settings.
pub(super) fn small_json(path: &Path) -> Result<Value, EmbedError> {
    json(path, CONFIG_BYTES_MAX)
}
