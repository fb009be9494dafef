//! Trees into bytes.

use super::{BLOB, DIR, END, FILE, LINK, MAGIC, TREE};
use crate::content::Content;
use crate::entry::{Dir, Entries, Entry, File, Link, Meta, Xattrs};
use crate::error::{Fault, FsError, Kind};
use crate::map::Map;
use crate::source::{Answers, Stop};
use crate::tree::Tree;
use crate::view::Vfs;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::any::Any;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// Writes trees with their names. Entries that are still at their source are
/// asked for in the name of `view`; those of live mounts are written as they
/// are now.
pub fn save(view: &Vfs, trees: &[(&str, &Tree)], into: impl Write) -> Result<(), FsError> {
    let mut saving = Saving {
        view,
        into,
        sum: Sha256::new(),
        count: 0,
        known: HashMap::new(),
        hold: Vec::new(),
    };
    let done = saving.all(trees);
    done.map_err(|fault| fault.at(b"/"))
}

/// What was written already, by where it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Known(usize, usize);

struct Saving<'a, W> {
    view: &'a Vfs,
    into: W,
    sum: Sha256,
    count: u64,
    known: HashMap<Known, u64>,
    /// What was written stays in memory until the end, so that no address is
    /// used twice.
    hold: Vec<Box<dyn Any>>,
}

impl<W: Write> Saving<'_, W> {
    fn all(&mut self, trees: &[(&str, &Tree)]) -> Result<(), Fault> {
        self.raw(&MAGIC)?;
        for (name, tree) in trees {
            let mut body = Vec::new();
            blob(&mut body, name.as_bytes());
            let root = self.dir(&tree.root)?;
            int(&mut body, root);
            int(&mut body, tree.shared.len() as u64);
            for (inode, shared) in &tree.shared {
                int(&mut body, *inode);
                let file = self.file(&shared.0)?;
                int(&mut body, file);
            }
            self.record(TREE, &body)?;
        }
        let mut end = vec![END];
        int(&mut end, 32);
        self.raw(&end)?;
        let sum = self.sum.clone().finalize();
        self.raw(&sum)?;
        self.into.flush().map_err(failed)
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.sum.update(bytes);
        self.into.write_all(bytes).map_err(failed)
    }

    fn record(&mut self, sort: u8, body: &[u8]) -> Result<u64, Fault> {
        let mut head = vec![sort];
        int(&mut head, body.len() as u64);
        self.raw(&head)?;
        self.raw(body)?;
        self.count += 1;
        Ok(self.count - 1)
    }

    fn dir(&mut self, dir: &Arc<Dir>) -> Result<u64, Fault> {
        let key = Known(Arc::as_ptr(dir) as usize, 0);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let map = self.names(dir)?;
        let mut body = Vec::new();
        meta(&mut body, &dir.meta, &dir.xattrs);
        int(&mut body, map.len() as u64);
        for (name, entry) in map.sorted() {
            blob(&mut body, name.bytes());
            let (sort, number) = match entry {
                Entry::Dir(dir) => (DIR, self.dir(dir)?),
                Entry::File(file) => (FILE, self.file(file)?),
                Entry::Link(link) => (LINK, self.link(link)?),
                Entry::Shared(inode) => (TREE, *inode),
            };
            body.push(sort);
            int(&mut body, number);
        }
        let number = self.record(DIR, &body)?;
        self.hold.push(Box::new(dir.clone()));
        self.known.insert(key, number);
        Ok(number)
    }

    fn file(&mut self, file: &Arc<File>) -> Result<u64, Fault> {
        let key = Known(Arc::as_ptr(file) as usize, 0);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let content = self.asking(|answers| answers.content(&file.content))?;
        let mut body = Vec::new();
        meta(&mut body, &file.meta, &file.xattrs);
        int(&mut body, file.names.into());
        int(&mut body, content.len().unwrap_or(0));
        let pieces = content.pieces();
        int(&mut body, pieces.len() as u64);
        for (at, bytes) in pieces {
            int(&mut body, at);
            let number = match file.content {
                // Nobody else has it, and it need not stay in memory.
                Content::Lazy(_) => self.record(BLOB, &bytes)?,
                _ => self.blob(bytes)?,
            };
            int(&mut body, number);
        }
        let number = self.record(FILE, &body)?;
        self.hold.push(Box::new(file.clone()));
        self.known.insert(key, number);
        Ok(number)
    }

    fn link(&mut self, link: &Arc<Link>) -> Result<u64, Fault> {
        let key = Known(Arc::as_ptr(link) as usize, 0);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let mut body = Vec::new();
        meta(&mut body, &link.meta, &None);
        blob(&mut body, &link.target);
        let number = self.record(LINK, &body)?;
        self.hold.push(Box::new(link.clone()));
        self.known.insert(key, number);
        Ok(number)
    }

    fn blob(&mut self, bytes: Bytes) -> Result<u64, Fault> {
        let key = Known(bytes.as_ptr() as usize, bytes.len());
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let number = self.record(BLOB, &bytes)?;
        self.hold.push(Box::new(bytes));
        self.known.insert(key, number);
        Ok(number)
    }

    fn names(&self, dir: &Dir) -> Result<Map, Fault> {
        match &dir.entries {
            Entries::Here(map) => Ok(map.clone()),
            Entries::Lazy(_) => self.asking(|answers| answers.entries(dir).cloned()),
        }
    }

    fn asking<T>(&self, work: impl FnMut(&Answers) -> Result<T, Stop>) -> Result<T, Fault> {
        let done = self.view.asking(b"/", work);
        done.map_err(|error| Fault { kind: error.kind, reason: error.reason })
    }
}

fn failed(error: std::io::Error) -> Fault {
    Fault::because(Kind::Source, format!("writing the trees: {error}"))
}

/// Seven bits in a byte, the lowest first; the eighth says that more come.
fn int(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn blob(out: &mut Vec<u8>, bytes: &[u8]) {
    int(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn meta(out: &mut Vec<u8>, meta: &Meta, xattrs: &Xattrs) {
    int(out, meta.mode.into());
    int(out, meta.uid.into());
    int(out, meta.gid.into());
    out.extend_from_slice(&meta.modified_ns.to_le_bytes());
    out.extend_from_slice(&meta.changed_ns.to_le_bytes());
    int(out, xattrs.as_ref().map_or(0, |all| all.len()) as u64);
    for (name, value) in xattrs.iter().flat_map(|all| all.iter()) {
        blob(out, name);
        blob(out, value);
    }
}

impl Content {
    /// The pieces with data and where they begin. Not for lazy content.
    fn pieces(&self) -> Vec<(u64, Bytes)> {
        match self {
            Content::Whole(bytes) if bytes.is_empty() => Vec::new(),
            Content::Whole(bytes) => vec![(0, bytes.clone())],
            Content::Blocks(blocks) => blocks.pieces_held(),
            Content::Lazy(_) => unreachable!("asked for before"),
        }
    }
}
