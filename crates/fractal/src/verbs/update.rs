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
    Code, Conflict, Error, Id, PromoteReply, Result, SandboxPath, Tier, TypedPath, Verdict,
};
use fractal_store::{SandboxRow, SnapshotRow, new_id, now_ms};
use serde_json::json;

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
            marker_ns: row.fork_ctime_ns,
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
    };
    let (keep, follow) =
        (paths(caller, &asked.ours, "--ours")?, paths(caller, &asked.theirs, "--theirs")?);
    let within =
        |list: &[SandboxPath], path: &SandboxPath| list.iter().any(|at| path.is_within(at));
    let (mut mine, mut theirs, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
    for change in &changes {
        let path = &change.path;
        match sides.weigh(path)? {
            Weighed::Skip => {}
            Weighed::OnlyTheirs => theirs.push(path.clone()),
            Weighed::Take(wish) => mine.push(wish),
            Weighed::Clash(clash) if within(&keep, path) => mine.push(clash.ours),
            Weighed::Clash(_) if within(&follow, path) => theirs.push(path.clone()),
            Weighed::Clash(clash) => conflicts.push(clash.conflict),
        }
    }
    let theirs = theirs.iter().map(|path| sides.following(path)).collect::<Result<_>>()?;
    let paths = changes.into_iter().map(|change| change.path).collect();
    Ok(Moves { ours: mine, theirs, conflicts, paths, our_view: ours, their_view: target })
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
        Ok(()) => Ok(name),
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
