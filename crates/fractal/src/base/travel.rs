//! What a base held, for an archive: by value, so that it means the same on
//! any machine and at any time.
//!
//! Inodes and times stay at home. Contents do too: an archive holds nothing
//! of the host but what was changed. So an edit made outside since is seen,
//! and is a conflict where at home two edits of one text might be joined.

use super::notes::{Count, Line, Notes};
use super::pen::Pen;
use super::{State, attributes, digest, encode, failed, file};
use crate::Engine;
use crate::view::Views;
use fractal_jail::layer::{Entry, Source, View};
use fractal_model::{Change, ChangeKind, EntryKind, Error, Result, SandboxPath};
use fractal_store::SandboxRow;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;

/// What counts as the base of one path: any of these, `None` being nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    path: SandboxPath,
    was: Vec<Option<Value>>,
}

/// What stood at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Value {
    kind: EntryKind,
    mode: u32,
    size: u64,
    /// Of a file's content, or of a link's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    /// Digest of what programs noted there; empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    attributes: String,
}

/// What a sandbox's changes were made on, as far as that is known.
pub fn held(
    engine: &Engine,
    row: &SandboxRow,
    views: &Views,
    changes: &[Change],
) -> Result<Vec<Held>> {
    let look = Look { notes: Notes::read(engine, row.id), base: views.base(), row };
    let mut reader = look.base.reader();
    let mut list = Vec::new();
    for change in changes {
        let entry = reader.lookup(&change.path)?;
        let was = look.was(&change.path, entry.as_ref());
        if !was.is_empty() {
            list.push(Held { path: change.path.clone(), was });
        }
    }
    Ok(list)
}

struct Look<'a> {
    notes: Notes,
    base: View,
    row: &'a SandboxRow,
}

impl Look<'_> {
    fn was(&self, path: &SandboxPath, entry: Option<&Entry>) -> Vec<Option<Value>> {
        let on_host = match entry {
            Some(entry) => entry.source == Source::Host,
            None => self.base.layers.is_empty(),
        };
        match (on_host, self.notes.of(path)) {
            (true, Some(states)) => self.noted(path, states, entry, Count::All),
            (true, None) if entry.is_none_or(|entry| self.is_old(entry)) => self.read(path, entry),
            (true, None) => Vec::new(),
            (false, states) => {
                let mut was = self.noted(path, states.unwrap_or_default(), entry, Count::Landed);
                if !self.notes.has_promoted(path) {
                    was.extend(self.read(path, entry));
                }
                was
            }
        }
    }

    /// Whether the host has had it since before the fork.
    fn is_old(&self, entry: &Entry) -> bool {
        entry.kind == EntryKind::Directory || entry.ctime_ns < self.notes.fork_ns(self.row)
    }

    fn noted(
        &self,
        path: &SandboxPath,
        states: &[Option<State>],
        now: Option<&Entry>,
        count: Count,
    ) -> Vec<Option<Value>> {
        let nothing_counts = count == Count::All || self.notes.has_promoted(path);
        let mut was = Vec::new();
        for state in states {
            match state {
                None if nothing_counts => was.push(None),
                Some(state) if state.counts(count) => {
                    let now = now.filter(|now| state.same_inode(now));
                    was.extend(self.noted_value(path, state, now).map(Some));
                }
                _ => {}
            }
        }
        was
    }

    /// Large files are noted without a digest; one that nobody touched since
    /// can still be read.
    fn noted_value(&self, path: &SandboxPath, state: &State, now: Option<&Entry>) -> Option<Value> {
        let sha256 = match (&state.sha256, state.kind) {
            (None, EntryKind::Directory) => None,
            (Some(digest), _) => Some(digest.clone()),
            (None, _) => Some(digest(&self.base, path, now?)?),
        };
        let attributes = state.attributes.clone();
        Some(Value { kind: state.kind, mode: state.mode, size: state.size, sha256, attributes })
    }

    fn read(&self, path: &SandboxPath, entry: Option<&Entry>) -> Vec<Option<Value>> {
        let Some(entry) = entry else { return vec![None] };
        let (kind, mode, size) = (entry.kind, entry.mode, entry.size);
        let sha256 = digest(&self.base, path, entry);
        match attributes(&mut self.base.reader(), path, entry) {
            Some(attributes) if kind == EntryKind::Directory || sha256.is_some() => {
                vec![Some(Value { kind, mode, size, sha256, attributes })]
            }
            _ => Vec::new(),
        }
    }
}

/// Notes the base of an imported sandbox. What an archive does not tell of
/// (older ones tell nothing) was not there if the sandbox added it, and else
/// is something unknown, which nothing on this host is taken for.
pub fn note_imported(
    engine: &Engine,
    row: &SandboxRow,
    changes: &[Change],
    held: &[Held],
) -> Result<()> {
    let held: HashMap<&SandboxPath, &Held> = held.iter().map(|held| (&held.path, held)).collect();
    let mut pen = Pen::new(engine, row)?;
    for change in changes {
        let was = match held.get(&change.path) {
            Some(held) => held.was.iter().map(state).collect::<Result<_>>()?,
            None if change.kind == ChangeKind::Added => vec![None],
            None => vec![Some(unknown(change))],
        };
        for was in was {
            let path = encode(&change.path);
            pen.line(&Line::Was { path, was, anew: false, by: None });
        }
    }
    pen.finish()?;
    // Without these notes a promotion would take what stands here for the base.
    let path = file(&engine.store.base_dir(row.id));
    File::open(&path).and_then(|notes| notes.sync_all()).map_err(|error| failed(&path, &error))
}

/// Digests name files of the state directory, so nothing else may pass.
fn state(value: &Option<Value>) -> Result<Option<State>> {
    let Some(Value { kind, mode, size, sha256, attributes }) = value.clone() else {
        return Ok(None);
    };
    let is_digest = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if sha256.as_ref().is_some_and(|text| !is_digest(text)) {
        return Err(Error::invalid("it names a base by something that is no digest"));
    }
    Ok(Some(State { sha256, size, attributes, sure: true, ..nowhere(kind, mode) }))
}

fn unknown(change: &Change) -> State {
    nowhere(change.entry, change.mode)
}

/// Of no inode on this host, and not to be counted.
fn nowhere(kind: EntryKind, mode: u32) -> State {
    let (size, ctime_ns, inode) = (0, 0, (0, 0));
    let (sha256, attributes) = (None, String::new());
    let (owner, sure, landed) = (None, false, false);
    State { kind, mode, size, ctime_ns, inode, owner, sha256, attributes, sure, landed }
}
