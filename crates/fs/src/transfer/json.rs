//! A view as JSON: for people, templates and other programs.

use super::{Coming, Leaving, OutKind};
use crate::about::NewMeta;
use crate::error::{Fault, FsError, Kind};
use crate::view::Vfs;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fractal_model::SandboxPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format.
const VERSION: u32 = 1;

/// The most bytes of files that are written as JSON, which takes them all
/// into memory.
const CONTENT_BYTES_MAX: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    fractal_tree: u32,
    entries: Vec<Entry>,
}

/// Bytes, as text where they are text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    Base64 { base64: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: Words,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified_ns: Option<i64>,
    /// A file; without this, `link` and `same_as` it is a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Words>,
    /// A symlink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<Words>,
    /// Another name of a file that came before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    same_as: Option<Words>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    xattrs: BTreeMap<String, Words>,
}

impl Words {
    fn of(bytes: &[u8]) -> Words {
        match std::str::from_utf8(bytes) {
            Ok(text) => Words::Text(text.to_owned()),
            Err(_) => Words::Base64 { base64: STANDARD.encode(bytes) },
        }
    }

    fn bytes(self) -> Result<Vec<u8>, Fault> {
        match self {
            Words::Text(text) => Ok(text.into_bytes()),
            Words::Base64 { base64 } => STANDARD
                .decode(base64)
                .map_err(|error| Fault::because(Kind::Invalid, error.to_string())),
        }
    }

    fn path(self) -> Result<SandboxPath, Fault> {
        crate::source::parse(&self.bytes()?)
    }
}

impl Vfs {
    /// All below a path as JSON, with everything that is known about it. Holes
    /// are written as zeros; files are read as a whole.
    pub fn export_json(&self, at: &SandboxPath) -> Result<String, FsError> {
        let leaving = Leaving::new(self, at);
        let (mut entries, mut bytes) = (Vec::new(), 0u64);
        for out in leaving.entries()? {
            bytes = bytes.saturating_add(out.stat.size);
            if bytes > CONTENT_BYTES_MAX {
                let reason = format!("more than {CONTENT_BYTES_MAX} bytes; a tar takes more");
                return Err(Fault::because(Kind::TooLarge, reason).at(&leaving.path(&out.path)));
            }
            let place = leaving.path(&out.path);
            let (mut content, mut link, mut same_as) = (None, None, None);
            match &out.kind {
                OutKind::Dir => {}
                OutKind::File => content = Some(Words::of(&leaving.view.read(&place)?)),
                OutKind::Link(target) => link = Some(Words::of(target)),
                OutKind::Same(first) => same_as = Some(Words::of(&crate::error::shown(first))),
            }
            let mut xattrs = BTreeMap::new();
            for (name, value) in &out.xattrs {
                let name = String::from_utf8(name.clone()).map_err(|_| {
                    let reason = "the name of an attribute is not text";
                    Fault::because(Kind::Unsupported, reason).at(&place)
                })?;
                xattrs.insert(name, Words::of(value));
            }
            let meta = out.stat.meta;
            entries.push(Entry {
                path: Words::of(&crate::error::shown(&out.path)),
                mode: Some(format!("{:04o}", meta.mode)),
                uid: Some(meta.uid),
                gid: Some(meta.gid),
                modified_ns: Some(meta.modified_ns),
                content,
                link,
                same_as,
                xattrs,
            });
        }
        let document = Document { fractal_tree: VERSION, entries };
        let text = serde_json::to_string_pretty(&document);
        text.map_err(|error| Fault::because(Kind::Source, error.to_string()).at(b"/"))
    }

    /// Makes what JSON tells at a path where nothing is yet. All but `path` may
    /// be left out. Returns how many entries there were.
    pub fn import_json(&self, at: &SandboxPath, json: &[u8]) -> Result<u64, FsError> {
        let read = serde_json::from_slice::<Document>(json);
        let document = read.map_err(|error| {
            Fault::because(Kind::Invalid, format!("not a tree in JSON: {error}")).at(b"/")
        })?;
        if document.fractal_tree != VERSION {
            let reason = format!("a tree of version {}", document.fractal_tree);
            return Err(Fault::because(Kind::Unsupported, reason).at(b"/"));
        }
        let mut coming = Coming::new(self.limits());
        for entry in document.entries {
            let shown = format!("{:?}", entry.path);
            take(&mut coming, entry)
                .map_err(|stop| stop.unwrap_or_else(|fault| fault.at(shown.as_bytes())))?;
        }
        coming.arrive(self, at)
    }
}

/// An error that knows its path, or one that does not yet.
type Refused = Result<FsError, Fault>;

fn take(coming: &mut Coming, entry: Entry) -> Result<(), Refused> {
    let path = entry.path.path().map_err(Err)?;
    let mode = entry.mode.map(|mode| {
        u32::from_str_radix(&mode, 8).map_err(|_| {
            Err(Fault::because(Kind::Invalid, format!("the mode {mode:?} is not octal")))
        })
    });
    let meta = NewMeta {
        mode: mode.transpose()?,
        uid: entry.uid,
        gid: entry.gid,
        modified_ns: entry.modified_ns,
    };
    let made = match (entry.content, entry.link, entry.same_as) {
        (Some(content), None, None) => {
            coming.file(&path, Bytes::from(content.bytes().map_err(Err)?), meta)
        }
        (None, Some(target), None) => coming.link(&path, &target.bytes().map_err(Err)?, meta),
        (None, None, Some(first)) => coming.same(&path, &first.path().map_err(Err)?),
        (None, None, None) => coming.dir(&path, meta),
        _ => return Err(Err(Fault::because(Kind::Invalid, "it is more than one thing"))),
    };
    made.map_err(Ok)?;
    for (name, value) in entry.xattrs {
        let value = value.bytes().map_err(Err)?;
        coming.xattr(&path, name.as_bytes(), &value).map_err(Ok)?;
    }
    Ok(())
}
