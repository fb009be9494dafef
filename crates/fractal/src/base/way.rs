//! The way a sandbox went among its snapshots.
//!
//! What was noted since a snapshot is of layers that the sandbox no longer
//! shows once it went back to it, and counts again when it returns from there.
//! So a line in `bases/<sandbox>/ways` tells how long the notes were when each
//! snapshot was taken and at each way back. The lines stand beside the notes,
//! not among them, because the time of that file tells when a run was noted.
//!
//! A line that is missing (a crash, an older version, a snapshot amid a run)
//! makes the next promotion more careful: what is not noted is judged by time.

use super::{State, failed, file};
use crate::{Engine, stale};
use fractal_model::{Id, Result, SandboxPath};
use fractal_store::{LayerRow, Reads, SandboxRow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// A snapshot was taken.
    Mark {
        mark: Id,
        notes_bytes: u64,
        /// The host's file clock at the fork, or at the last update.
        fork_ns: i64,
        /// The sandbox's base then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<Id>,
    },
    /// The sandbox went back to a snapshot, or to its base.
    Back {
        back: Option<Id>,
        notes_bytes: u64,
        /// The host's file clock then.
        clock_ns: i64,
    },
}

impl Line {
    fn notes_bytes(&self) -> u64 {
        match self {
            Line::Mark { notes_bytes, .. } | Line::Back { notes_bytes, .. } => *notes_bytes,
        }
    }
}

/// A snapshot of the present was taken, as this layer.
pub fn mark(engine: &Engine, row: &SandboxRow, layer: Id) {
    let (fork_ns, base) = (row.fork_ctime_ns, row.base);
    let line = |notes_bytes| Line::Mark { mark: layer, notes_bytes, fork_ns, base };
    let _ = append(&engine.store.base_dir(row.id), line);
}

/// The sandbox is about to go back to a snapshot's layer, or to its base.
pub fn note_back(engine: &Engine, row: &SandboxRow, back: Option<Id>) -> Result<()> {
    let clock_ns = stale::file_clock_ns(engine.home());
    let line = |notes_bytes| Line::Back { back, notes_bytes, clock_ns };
    append(&engine.store.base_dir(row.id), line)
}

/// The base that a snapshot stands on, where an update has moved the sandbox to
/// another one since.
pub fn base_of(engine: &Engine, row: &SandboxRow, layer: Id) -> Result<Option<Id>> {
    let is_marked = |line: &Line| match line {
        Line::Mark { mark, base, .. } if *mark == layer => *base,
        _ => None,
    };
    let base = read(&engine.store.base_dir(row.id)).iter().rev().find_map(is_marked);
    let stack = engine.store.stack(layer)?;
    let has = |base: &Id| stack.iter().any(|layer| layer.id == *base);
    Ok(base.filter(|base| row.base.is_some_and(|now| now != *base && !has(&now)) && has(base)))
}

fn read(dir: &Path) -> Vec<Line> {
    let text = fs::read_to_string(ways(dir)).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

fn ways(dir: &Path) -> PathBuf {
    dir.join("ways")
}

fn append(dir: &Path, line: impl FnOnce(u64) -> Line) -> Result<()> {
    let path = ways(dir);
    let line = line(fs::metadata(file(dir)).map_or(0, |meta| meta.len()));
    let mut text = serde_json::to_string(&line).expect("it is plain data");
    text.push('\n');
    fs::create_dir_all(dir)
        .and_then(|()| fs::OpenOptions::new().append(true).create(true).open(&path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| failed(&path, &error))
}

/// A state, and the promotion that left it there.
pub(super) struct Noted {
    pub was: Option<State>,
    pub by: Option<Id>,
}

/// One noted state among those that were noted before it on the same way.
struct Node {
    path: SandboxPath,
    noted: Noted,
    anew: bool,
    before: Option<usize>,
}

/// Where a sandbox went back to, and when by the host's file clock.
#[derive(Clone, Copy, Debug)]
pub struct Back {
    /// A snapshot's layer; none is the base.
    pub to: Option<Id>,
    pub clock_ns: i64,
    /// The clock at the fork, if another one counts there than the sandbox's.
    fork_ns: i64,
}

/// The states on the present way, and the ends of others.
pub(super) struct Way {
    lines: std::iter::Peekable<std::vec::IntoIter<Line>>,
    nodes: Vec<Node>,
    head: Option<usize>,
    marks: HashMap<Id, (Option<usize>, i64)>,
    pub back: Option<Back>,
}

impl Way {
    pub fn read(dir: &Path) -> Way {
        Way {
            lines: read(dir).into_iter().peekable(),
            nodes: Vec::new(),
            head: None,
            marks: HashMap::new(),
            back: None,
        }
    }

    /// Goes as far as it went when the notes were so long, and says whether it
    /// went back.
    pub fn follow(&mut self, notes_bytes: u64) -> bool {
        let mut went_back = false;
        while let Some(line) = self.lines.next_if(|line| line.notes_bytes() <= notes_bytes) {
            match line {
                Line::Mark { mark, fork_ns, .. } => {
                    let then_ns = self.back.map_or(fork_ns, |back| back.fork_ns(fork_ns));
                    self.marks.insert(mark, (self.head, then_ns));
                }
                Line::Back { back: to, clock_ns, .. } => {
                    // Of a snapshot that was not marked nothing is known.
                    let unknown = (None, if to.is_some() { i64::MIN } else { i64::MAX });
                    let mark = to.and_then(|to| self.marks.get(&to)).copied();
                    let (head, fork_ns) = mark.unwrap_or(unknown);
                    self.head = head;
                    self.back = Some(Back { to, clock_ns, fork_ns });
                    went_back = true;
                }
            }
        }
        went_back
    }

    pub fn push(&mut self, path: SandboxPath, noted: Noted, anew: bool) {
        // What a promotion left is a fact about the host, whatever way the
        // sandbox went since.
        let is_fact = noted.by.is_some();
        self.nodes.push(Node { path, noted, anew, before: self.head });
        if !is_fact {
            self.head = Some(self.nodes.len() - 1);
        }
    }

    /// All states that count, oldest first.
    pub fn states(self) -> BTreeMap<SandboxPath, Vec<Noted>> {
        let mut counts: Vec<bool> = self.nodes.iter().map(|node| node.noted.by.is_some()).collect();
        let mut head = self.head;
        while let Some(at) = head {
            counts[at] = true;
            head = self.nodes[at].before;
        }
        let mut all: BTreeMap<SandboxPath, Vec<Noted>> = BTreeMap::new();
        for (node, _) in self.nodes.into_iter().zip(counts).filter(|(_, counts)| *counts) {
            let states = all.entry(node.path).or_default();
            if node.anew {
                states.clear();
            }
            states.push(node.noted);
        }
        all
    }
}

impl Back {
    /// The clock at the fork that counts, for a sandbox whose row has this one:
    /// it moved with updates, and only one since the way back is still there.
    pub fn fork_ns(&self, by_row_ns: i64) -> i64 {
        if by_row_ns < self.clock_ns { self.fork_ns.min(by_row_ns) } else { by_row_ns }
    }

    /// Whether a stack (top first) is what a sandbox put on this state since:
    /// the line is written before the way back, which may have failed.
    pub fn leads_to(&self, stack: &[LayerRow], base: Option<Id>) -> bool {
        let to = self.to.or(base);
        let mut above = stack.iter().take_while(|layer| Some(layer.id) != to);
        above.all(|layer| (layer.created_ms as i64 + 1) * 1_000_000 > self.clock_ns)
    }
}
