//! Reading the notes: which states count as the base of a path.

use super::way::{Back, Noted, Way};
use super::{State, decode, file};
use crate::Engine;
use fractal_jail::layer::{Entry, View};
use fractal_model::{EntryKind, Id, SandboxPath};
use fractal_store::SandboxRow;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// Which notes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// All: the base was the host.
    All,
    /// Only what was left behind by a promotion or an update: the base was a
    /// layer, whatever the host had there.
    Landed,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Run {
        run: Id,
    },
    Was {
        path: String,
        was: Option<State>,
        /// Nothing that was noted before counts any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anew: bool,
        /// The promotion that left it there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Id>,
    },
    /// A promotion was taken back (or brought again): what it left counts no
    /// more (or again).
    Undone {
        undone: Id,
        again: bool,
    },
}

/// The base of a text file.
pub struct Kept {
    pub text: Vec<u8>,
    pub mode: u32,
    /// Digest of what programs noted about it.
    pub attributes: String,
}

/// All that is known about the base of one sandbox.
#[derive(Debug, Default)]
pub struct Notes {
    pub(super) dir: PathBuf,
    /// Every state that counts as the base, oldest first; `None` is nothing.
    states: BTreeMap<SandboxPath, Vec<Option<State>>>,
    /// Paths that a promotion left as the first of these.
    promoted: HashSet<SandboxPath>,
    /// Paths where nothing stood when the sandbox first made something there,
    /// whatever a promotion brought since.
    absent: HashSet<SandboxPath>,
    /// The last run whose notes are complete.
    last_run: Option<Id>,
    /// The last time that the sandbox went back to a snapshot.
    pub back: Option<Back>,
}

impl Notes {
    /// Reads what there is; a line that was cut short ends it.
    pub fn read(engine: &Engine, sandbox: Id) -> Notes {
        let dir = engine.store.base_dir(sandbox);
        let text = fs::read_to_string(file(&dir)).unwrap_or_default();
        let mut notes = Notes { dir, ..Notes::default() };
        let mut way = Way::read(&notes.dir);
        let mut undone: HashSet<Id> = HashSet::new();
        let mut bytes = 0;
        for line in text.lines() {
            if way.follow(bytes) {
                notes.last_run = None;
            }
            bytes += line.len() as u64 + 1;
            match serde_json::from_str(line) {
                Ok(Line::Run { run }) => notes.last_run = Some(run),
                Ok(Line::Was { path, was, anew, by }) => {
                    let Ok(path) = decode(&path) else { break };
                    way.push(path, Noted { was, by }, anew);
                }
                Ok(Line::Undone { undone: id, again: true }) => drop(undone.remove(&id)),
                Ok(Line::Undone { undone: id, again: false }) => drop(undone.insert(id)),
                Err(_) => {
                    notes.last_run = None;
                    break;
                }
            }
        }
        if way.follow(u64::MAX) {
            notes.last_run = None;
        }
        notes.back = way.back;
        for (path, mut states) in way.states() {
            if states.iter().any(|noted| noted.by.is_none() && noted.was.is_none()) {
                notes.absent.insert(path.clone());
            }
            states.retain(|noted| noted.by.is_none_or(|by| !undone.contains(&by)));
            // What a promotion left is the base from then on, and nothing else.
            if let Some(last) = states.iter().rposition(|noted| noted.by.is_some()) {
                states.drain(..last);
                notes.promoted.insert(path.clone());
            }
            // A path that only a promotion noted, which was taken back, is as if
            // it had never been noted: what lies above it may tell.
            if !states.is_empty() {
                notes.states.insert(path, states.into_iter().map(|noted| noted.was).collect());
            }
        }
        notes
    }

    /// The host's file clock when the sandbox began to see it.
    pub fn fork_ns(&self, row: &SandboxRow) -> i64 {
        self.back.map_or(row.fork_ctime_ns, |back| back.fork_ns(row.fork_ctime_ns))
    }

    /// Whether the base of a path is what a promotion left there.
    pub fn has_promoted(&self, path: &SandboxPath) -> bool {
        self.promoted.contains(path)
    }

    /// Whether a sandbox still has what a promotion brought from it.
    pub fn is_promoted(&self, path: &SandboxPath, ours: Option<&Entry>, view: &View) -> bool {
        let states = self.states.get(path).filter(|_| self.has_promoted(path));
        match (states.and_then(|states| states.first()), ours) {
            (Some(None), None) => true,
            (Some(Some(was)), Some(ours)) => was.is_value_of(ours, view, path, &mut None),
            _ => false,
        }
    }

    /// The last run that was noted completely.
    pub fn last_run(&self) -> Option<Id> {
        self.last_run
    }

    /// What stood at a path: `None` when nothing was noted. Below a place
    /// where nothing stood, nothing stood either.
    pub fn of(&self, path: &SandboxPath) -> Option<&[Option<State>]> {
        if let Some(states) = self.states.get(path) {
            return Some(states);
        }
        let mut above = path.parent();
        while let Some(dir) = above {
            match self.states.get(&dir) {
                Some(states) if !states.is_empty() && states.iter().all(Option::is_none) => {
                    return Some(states);
                }
                _ => above = dir.parent(),
            }
        }
        None
    }

    /// Nothing, for a path in a directory that the sandbox made: only the
    /// directory was noted, and a promotion may have brought it without all
    /// that lies in it.
    fn below_nothing(&self, path: &SandboxPath) -> Option<&[Option<State>]> {
        let mut above = std::iter::successors(path.parent(), SandboxPath::parent);
        above.any(|dir| self.absent.contains(&dir)).then_some(&[None])
    }

    /// Whether what the host has now is what was noted.
    pub fn is_base(
        &self,
        path: &SandboxPath,
        now: Option<&Entry>,
        host: &View,
        count: Count,
    ) -> Option<bool> {
        let states = self.of(path).or_else(|| self.below_nothing(path))?;
        let mut hash: Option<Option<String>> = None;
        Some(states.iter().any(|was| match (was, now) {
            (None, None) => count == Count::All || self.has_promoted(path),
            (Some(was), Some(now)) if was.counts(count) => {
                was.same_inode(now) || was.is_value_of(now, host, path, &mut hash)
            }
            _ => false,
        }))
    }

    /// Whose it was, where that was noted. The latest one counts.
    pub fn owner(&self, path: &SandboxPath) -> Option<(u32, u32)> {
        let states = self.states.get(path)?;
        states.iter().rev().flatten().find(|was| was.sure)?.owner
    }

    /// The base's text, where it was kept. The latest one counts.
    pub fn content(&self, path: &SandboxPath, count: Count) -> Option<Kept> {
        let states = self.states.get(path)?;
        let was = states.iter().rev().flatten().find(|was| was.counts(count))?;
        let name = was.sha256.as_deref().filter(|_| was.kind == EntryKind::File)?;
        let text = fs::read(self.dir.join(name)).ok()?;
        Some(Kept { text, mode: was.mode, attributes: was.attributes.clone() })
    }
}
