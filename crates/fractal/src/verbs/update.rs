//! `update`: move a sandbox onto today's reality, with its own changes.
//!
//! On a live base the sandbox sees the host anyway, but for the files that it
//! holds copies of; on a frozen one it sees what was captured. Afterwards it
//! stands on what the host has now: edits of one text are joined, files that
//! it only copied follow the host, and what clashes is listed and nothing is
//! moved. What it was before stays under a snapshot's name.

use super::promote::choose::paths;
use super::promote::plan::is_complete;
use super::promote::rehearse::put;
use super::promote::weigh::{Live, Side, Sides, Weighed, Wish};
use crate::base::{self, Notes};
use crate::view::path_of;
use crate::{Caller, Engine, capture, insert_layer, record, stages, stale};
use fractal_jail::layer::{View, Writer};
use fractal_model::{
    Change, Code, Conflict, Error, Id, PromoteReply, Result, SandboxPath, Tier, TypedPath, Verdict,
};
use fractal_store::{SandboxRow, SnapshotRow, new_id, now_ms};
use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// How clashes are settled, and whether it only looks.
pub struct Asked {
    pub ours: Vec<TypedPath>,
    pub theirs: Vec<TypedPath>,
    pub dry_run: bool,
}

pub fn update(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
    asked: &Asked,
) -> Result<PromoteReply> {
    let row = engine.find(caller, selector)?;
    stages::refuse_write(&row, "update")?;
    engine.require_idle(&row, "update")?;
    if row.parent.is_some() {
        return Err(Error::new(
            Code::Unsupported,
            format!("`{}` is a child of a sandbox, not of reality", row.name),
        )
        .hint("fork the parent anew and promote into it"));
    }
    // Before the first look: what is edited meanwhile counts as new.
    let marker_ns = stale::file_clock_ns(engine.home());
    let base = match row.base {
        None => None,
        Some(_) => Some(capture::capture(engine, &row)?),
    };
    let moves = weigh(engine, caller, &row, base, asked)?;
    if !moves.conflicts.is_empty() || asked.dry_run {
        let verdict = match moves.conflicts.is_empty() {
            true => Verdict::Planned,
            false => Verdict::Conflict,
        };
        return Ok(moves.reply(&row, verdict, Vec::new()));
    }
    if moves.is_empty() && base == row.base {
        return Ok(moves.reply(&row, Verdict::Nothing, Vec::new()));
    }
    let before = carry_out(engine, caller, &row, base, marker_ns, &moves)?;
    // Notes that are missing make the next promotion more careful.
    let _ = base::note_moved(engine, &row, moves.paths.iter());
    let note = format!("`fractal rollback {} {before}` takes it back", row.name);
    Ok(moves.reply(&row, Verdict::Applied, vec![note]))
}

/// What the sandbox is to show differently, and what stands in the way.
struct Moves {
    /// Its own changes, as they are to be.
    ours: Vec<Wish>,
    /// Where it follows the host.
    theirs: Vec<Wish>,
    conflicts: Vec<Conflict>,
    /// Every path that it changed.
    paths: Vec<SandboxPath>,
    our_view: View,
    their_view: View,
}

impl Moves {
    fn is_empty(&self) -> bool {
        self.theirs.is_empty() && self.ours.iter().all(|wish| !wish.merged)
    }

    fn reply(&self, row: &SandboxRow, verdict: Verdict, notes: Vec<String>) -> PromoteReply {
        let merged = self.ours.iter().filter(|wish| wish.merged);
        PromoteReply {
            sandbox: Some(row.name.clone()),
            stage: row.name.clone(),
            verdict,
            applied: match verdict {
                Verdict::Applied | Verdict::Planned => {
                    merged.chain(&self.theirs).map(Wish::applied).collect()
                }
                _ => Vec::new(),
            },
            conflicts: self.conflicts.clone(),
            undo: None,
            checks: Vec::new(),
            left_out: Vec::new(),
            autorun: Vec::new(),
            made: None,
            notes,
            recorded: None,
        }
    }
}

fn weigh(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    base: Option<Id>,
    asked: &Asked,
) -> Result<Moves> {
    let (views, changes) = super::diff::changes(engine, row, None)?;
    let notes = Notes::read(engine, row.id);
    let target = match base {
        None => engine.host_view(row, Vec::new())?,
        Some(base) => engine.views(&SandboxRow { top: base, ..row.clone() }, None)?.top(),
    };
    let live = match base {
        Some(_) => None,
        None => Some(Live {
            notes: &notes,
            complete: is_complete(engine, row, &notes)?,
            project: path_of(&row.directory)?,
            marker_ns: notes.fork_ns(row),
        }),
    };
    let (before, ours) = (views.base(), views.top());
    let keep_owner = rustix::process::geteuid().is_root();
    let sides = Sides {
        base: Side::from(&before),
        ours: Side::from(&ours),
        theirs: Side::from(&target),
        live,
        keep_owner,
        turned: RefCell::default(),
    };
    let mut sorted = Sorted {
        sides,
        keep: paths(caller, &asked.ours, "--ours")?,
        follow: paths(caller, &asked.theirs, "--theirs")?,
        fates: BTreeMap::new(),
        conflicts: BTreeMap::new(),
    };
    sorted.sort(&changes)?;
    sorted.open_again();
    sorted.find_the_way()?;
    let Sorted { sides, fates, conflicts, .. } = sorted;
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for (path, fate) in fates {
        match fate {
            Fate::Ours(wish) => mine.push(*wish),
            Fate::Theirs => theirs.push(sides.following(&path)?),
        }
    }
    let (conflicts, paths) = (
        conflicts.into_values().collect(),
        changes.into_iter().map(|change| change.path).collect(),
    );
    Ok(Moves { ours: mine, theirs, conflicts, paths, our_view: ours, their_view: target })
}

/// Whose value a path is to show.
enum Fate {
    Ours(Box<Wish>),
    Theirs,
}

/// Every change of the sandbox, sorted.
struct Sorted<'a> {
    sides: Sides<'a>,
    keep: Vec<SandboxPath>,
    follow: Vec<SandboxPath>,
    fates: BTreeMap<SandboxPath, Fate>,
    /// By their paths: each is told once.
    conflicts: BTreeMap<String, Conflict>,
}

fn names(list: &[SandboxPath], path: &SandboxPath) -> bool {
    list.iter().any(|at| path.is_within(at))
}

impl Sorted<'_> {
    fn sort(&mut self, changes: &[Change]) -> Result<()> {
        for path in changes.iter().map(|change| &change.path) {
            let fate = match self.sides.weigh(path)? {
                Weighed::Skip => continue,
                Weighed::OnlyTheirs => Fate::Theirs,
                Weighed::Take(wish) => Fate::Ours(Box::new(wish)),
                Weighed::Clash(clash) if names(&self.keep, path) => {
                    Fate::Ours(Box::new(clash.ours))
                }
                Weighed::Clash(_) if names(&self.follow, path) => Fate::Theirs,
                Weighed::Clash(clash) => {
                    self.clash(clash.conflict);
                    continue;
                }
            };
            self.fates.insert(path.clone(), fate);
        }
        Ok(())
    }

    fn clash(&mut self, conflict: Conflict) {
        self.conflicts.entry(conflict.path.clone()).or_insert(conflict);
    }

    /// What follows the host in a directory that the sandbox took away, or put
    /// something else in place of, needs that directory with all it holds.
    fn open_again(&mut self) {
        let mut needed = BTreeSet::new();
        for (path, _) in self.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Theirs)) {
            let above = std::iter::successors(path.parent(), SandboxPath::parent);
            let ended = |dir: &SandboxPath| matches!(self.fates.get(dir), Some(Fate::Ours(wish)) if wish.ends_directory());
            needed.extend(above.filter(ended));
        }
        for dir in needed {
            if names(&self.follow, &dir) {
                let below = self.fates.iter_mut().filter(|(path, _)| path.is_within(&dir));
                below.for_each(|(_, fate)| *fate = Fate::Theirs);
            } else {
                let why = "the sandbox took this directory away, and something in it is to stay";
                self.clash(Conflict { path: dir.to_string(), why: why.to_owned() });
            }
        }
    }

    /// What the sandbox has in a directory that others took away, or put
    /// something else in place of, would go with the directory.
    fn find_the_way(&mut self) -> Result<()> {
        let ours = |fate: &Fate| matches!(fate, Fate::Ours(wish) if wish.new.is_some());
        let ours: Vec<SandboxPath> = (self.fates.iter())
            .filter(|(_, fate)| ours(fate))
            .map(|(path, _)| path.clone())
            .collect();
        for path in ours {
            let Some(conflict) = self.sides.turned(&path)? else { continue };
            if names(&self.keep, &path) {
                for wish in self.sides.way_to(&path)? {
                    self.fates.insert(wish.path.clone(), Fate::Ours(Box::new(wish)));
                }
            } else if names(&self.follow, &path) {
                self.fates.insert(path, Fate::Theirs);
            } else {
                self.clash(conflict);
            }
        }
        Ok(())
    }
}

/// Writes the moved state and makes it the sandbox's; returns the name of the
/// snapshot with what it was.
fn carry_out(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    base: Option<Id>,
    marker_ns: i64,
    moves: &Moves,
) -> Result<String> {
    let store = &engine.store;
    let top = new_id();
    store.new_layer_dir(top)?;
    store.sync_layer(row.top)?;
    let name = super::snapshot::free_name(engine, row, "before-update")?;
    // A frozen base has layers of its own, so all that is ours is written
    // anew on top of them; on a live one what is there can stay.
    let below = if base.is_some() { base } else { Some(row.top) };
    let moved = write(engine, base, top, moves).and_then(|()| {
        let mut body = record(caller, "update", Some(row));
        body.after = Some(top);
        body.detail = json!({ "snapshot": name, "paths": moves.theirs.len(),
            "merged": moves.ours.iter().filter(|wish| wish.merged).count() });
        store.transact(|tx| {
            tx.seal_layer(row.top, 0)?;
            insert_layer(tx, top, below)?;
            tx.insert_snapshot(&SnapshotRow {
                sandbox: row.id,
                name: name.clone(),
                layer: row.top,
                created_ms: now_ms(),
            })?;
            tx.set_top(row.id, row.epoch, top)?;
            tx.update_sandbox(&SandboxRow {
                base,
                fork_ctime_ns: marker_ns,
                touched_ms: now_ms(),
                ..row.clone()
            })?;
            tx.append(body)
        })?;
        Ok(())
    });
    match moved {
        Ok(()) => {
            base::mark(engine, row, row.top);
            Ok(name)
        }
        Err(error) => {
            let _ = store.discard_layer(top);
            Err(error)
        }
    }
}

fn write(engine: &Engine, base: Option<Id>, top: Id, moves: &Moves) -> Result<()> {
    let is_frozen = base.is_some();
    let below = if is_frozen { &moves.their_view } else { &moves.our_view };
    let tree = engine.store.layer_tree(top);
    let writer = Writer::open(&tree, below, engine.tier()? >= Tier::Masked)?;
    let merged: Vec<Wish> =
        moves.ours.iter().filter(|wish| is_frozen || wish.merged).cloned().collect();
    put(&writer, &moves.our_view, &merged)?;
    if !is_frozen {
        put(&writer, &moves.their_view, &moves.theirs)?;
    }
    engine.store.dirty_layer(top, "update")?;
    Ok(engine.store.sync_layer(top)?)
}
