//! The plan as data: what stands where, what shall, and in which order.
//!
//! It is written to `undo/<id>/plan` before anything in reality changes and
//! never afterwards; how far the work has come is read from the disk. So the
//! one who goes on after a crash, and the one who takes a promotion back weeks
//! later, know exactly what the first one knew. `docs/format.md` describes
//! the file.

use super::{Noted, Seen};
use fractal_model::{EntryKind, Error, RecordBody, Result, SandboxPath};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// The version of the file; another one is refused.
const FORMAT: u32 = 1;

/// A file with more than this on one line was not written by us.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Everything about one write.
pub(super) struct Plan {
    pub head: Head,
    /// In the order of a walk: a directory before its entries.
    pub steps: Vec<Planned>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub format: u32,
    pub steps: u64,
    /// What the journal says when it is done.
    pub record: RecordBody,
}

/// One line per path.
#[derive(Serialize, Deserialize)]
pub(super) struct Planned {
    /// From the root, without a slash in front.
    pub path: Bytes,
    /// Which stage it passes through.
    pub stage: usize,
    pub old: Option<Seen>,
    pub new: Option<Made>,
}

/// What was made for a path, or what is set there.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Made {
    pub kind: EntryKind,
    pub mode: u32,
    /// Owner and group, where they are set.
    pub owner: Option<(u32, u32)>,
    pub mtime_ns: i64,
    pub size: u64,
    /// Hash of a file's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Bytes>,
    /// Digest of the attributes that it has, where it brings any or has none
    /// for certain; empty when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<String>,
    /// Attributes of a directory that change in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<Noted>,
    /// What was staged; `None` changes what is there in place.
    pub inode: Option<(u64, u64)>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Add,
    Replace,
    Remove,
    /// Only mode, owner or attributes, in place.
    Change,
}

/// One entry of the order in which a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Carry out a step.
    Swap(usize),
    /// Give a new directory its final mode and time, after its entries.
    Dress(usize),
}

impl Planned {
    pub fn act(&self) -> Act {
        match (&self.old, &self.new) {
            (_, None) => Act::Remove,
            (None, Some(_)) => Act::Add,
            (Some(_), Some(new)) if new.inode.is_none() => Act::Change,
            (Some(_), Some(_)) => Act::Replace,
        }
    }

    fn is_directory(&self) -> bool {
        self.new.as_ref().is_some_and(|new| new.kind == EntryKind::Directory)
    }

    /// Whether a directory stays one that we can work in.
    fn stays_open(&self) -> bool {
        self.is_directory() && self.new.as_ref().is_some_and(|new| new.mode & 0o300 == 0o300)
    }
}

impl Plan {
    /// Directories that open come first and those that close last; removals
    /// from the bottom up, so that a directory is empty when its turn comes;
    /// then everything new from the top down. The way back is the reverse.
    pub fn moves(&self) -> Vec<Move> {
        let all = |wanted: &dyn Fn(&Planned) -> bool| -> Vec<usize> {
            (0..self.steps.len()).filter(|at| wanted(&self.steps[*at])).collect()
        };
        let changes = |step: &Planned| step.act() == Act::Change;
        let opens = all(&|step| changes(step) && step.stays_open());
        let removes = all(&|step| step.act() == Act::Remove);
        let brings = all(&|step| matches!(step.act(), Act::Add | Act::Replace));
        let closes = all(&|step| changes(step) && !step.stays_open());
        let dresses =
            all(&|step| matches!(step.act(), Act::Add | Act::Replace) && step.is_directory());
        let swaps = opens.into_iter().chain(removes.into_iter().rev()).chain(brings);
        let last = dresses.into_iter().rev().map(Move::Dress);
        swaps.map(Move::Swap).chain(last).chain(closes.into_iter().rev().map(Move::Swap)).collect()
    }

    /// Writes it as lines of JSON.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, &self.head)?;
        out.write_all(b"\n")?;
        for step in &self.steps {
            serde_json::to_writer(&mut *out, step)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// Reads it back.
    pub fn read(path: &Path) -> Result<Plan> {
        let bad = |why: &str| {
            Error::new(
                fractal_model::Code::Corrupt,
                format!("{} does not read as it was written: {why}", path.display()),
            )
            .hint("run `fractal doctor`")
        };
        let file = std::fs::File::open(path).map_err(|error| bad(&error.to_string()))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        let mut next = || -> Result<Option<Vec<u8>>> {
            line.clear();
            let mut bounded = std::io::Read::take(&mut lines, LINE_BYTES_MAX);
            let got = bounded.read_until(b'\n', &mut line).map_err(|e| bad(&e.to_string()))?;
            Ok((got > 0).then(|| line.clone()))
        };
        let first = next()?.ok_or_else(|| bad("it is empty"))?;
        let head: Head = serde_json::from_slice(&first).map_err(|e| bad(&e.to_string()))?;
        if head.format != FORMAT {
            return Err(bad(&format!("its format is {}", head.format)));
        }
        let mut steps = Vec::new();
        while let Some(line) = next()? {
            steps.push(serde_json::from_slice(&line).map_err(|e| bad(&e.to_string()))?);
        }
        match steps.len() as u64 == head.steps {
            true => Ok(Plan { head, steps }),
            false => Err(bad("it is cut short")),
        }
    }
}

impl Plan {
    /// A digest of everything that was written, path by path: the same for
    /// the same promotion, whoever computes it.
    pub fn digest(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut hasher = Sha256::new();
        for step in &self.steps {
            let value = match &step.new {
                None => "deleted".to_owned(),
                Some(new) => {
                    let target = new.target.clone().map(String::from);
                    let content = new.sha256.clone().or(target).unwrap_or_default();
                    let kind = format!("{:?}", new.kind).to_lowercase();
                    let noted = new.attributes.as_deref().filter(|digest| !digest.is_empty());
                    let noted = noted.map_or_else(String::new, |digest| format!(" {digest}"));
                    format!("{kind} {:o} {content}{noted}", new.mode)
                }
            };
            hasher.update(format!("{} {value}\n", String::from(step.path.clone())));
        }
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Head {
    pub fn new(steps: usize, record: RecordBody) -> Head {
        Head { format: FORMAT, steps: steps as u64, record }
    }
}

/// Bytes of a path or link target in JSON: printable ASCII stands for itself,
/// everything else and `%` as `%` and two hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Bytes(pub Vec<u8>);

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        let mut text = String::with_capacity(bytes.0.len());
        for byte in bytes.0 {
            match byte {
                b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02x}")),
            }
        }
        text
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Bytes, String> {
        let bytes = fractal_model::decode_percent(text.as_bytes());
        bytes.map(Bytes).ok_or_else(|| format!("`{text}` breaks off after a %"))
    }
}

impl Bytes {
    /// The path from the root of the machine, for people.
    pub fn shown(&self, root: &Path) -> String {
        let below = String::from_utf8_lossy(&self.0);
        let path = if self.0.is_empty() { root.to_owned() } else { root.join(&*below) };
        path.to_string_lossy().into_owned()
    }

    /// Refuses what could lead out of the root: a plan is our own file, and
    /// still nothing in it is believed that can be checked.
    pub fn is_safe(&self) -> bool {
        SandboxPath::parse(&self.0).is_ok_and(|path| path.relative() == self.0)
    }
}

/// A key that sorts paths in the order of a walk, where `a/b` stands before
/// `a-b`: no name holds a NUL, so it can stand for the slash.
pub(super) fn walk_key(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect()
}
