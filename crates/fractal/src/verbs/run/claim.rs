//! Rows and directories that say "a run is under way here".

use super::super::seal;
use super::place::Place;
use crate::{Engine, capture, insert_layer, living, template};
use fractal_jail::Living;
use fractal_model::{BaseKind, Code, Error, Id, Mount, MountSource, Result, Tier, World};
use fractal_store::{Reads, RunRow, SandboxRow, Tx, new_id, now_ms, process_start};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a run waits for another one in its sandbox that starts or ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes what must exist before the run, and says that it is under way.
/// Notes in `place` whom to join where something runs in the sandbox already.
///
/// Of all runs in a sandbox, one builds the mounts and the others join them: a
/// second overlay on the same layer would lose files of the first. So a row is
/// written either when there is no other, or while the one we hold the
/// namespaces of still has its own. Who must wait has no row, so whoever has
/// one never waits for anybody.
pub(super) fn claim(engine: &Engine, place: &mut Place) -> Result<()> {
    if place.in_memory.is_some() {
        return Ok(());
    }
    if let Some(parent) = place.parent.clone() {
        return claim_child(engine, place, parent);
    }
    if place.is_new {
        return claim_new(engine, place);
    }
    if place.world == World::Virtual {
        engine.rest_servers(place.row.id);
    }
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if place.world == World::Virtual {
            stand_on_sealed(engine, place)?;
        }
        // A tree in memory and an overlay must not write one layer at once.
        let joined = match place.world {
            World::Native => living_run(engine, place.row.id)?,
            World::Virtual => None,
        };
        if joined.is_some() {
            refuse_wider_company(place)?;
        }
        if claim_existing(engine, place, joined.as_ref().map(|(id, _)| *id))? {
            // Somebody may have written and ended since it was sealed; from
            // here on nobody else begins.
            if place.world == World::Virtual && !engine.top_is_empty(&place.row)? {
                engine.store.transact_relaxed(|tx| tx.delete_run(place.run_id))?;
                continue;
            }
            let (store, top) = (&engine.store, place.row.top);
            store.dirty_layer(top, &label(place.run_id))?;
            if joined.is_none() {
                // Of earlier runs; the kernel makes new ones each time.
                store.clear_work(top);
                super::copied::clear(engine, top);
            }
            place.join = joined.map(|(_, living)| living);
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(3));
        engine.is_running(place.row.id)?;
    }
    let name = &place.row.name;
    let others = engine.store.runs_of(place.row.id)?;
    if let Some(run) = others.iter().find(|run| living::is_in_memory(run)) {
        return Err(living::open_in_memory(&place.row, run));
    }
    if place.world == World::Virtual && !others.is_empty() {
        return Err(Error::new(Code::Busy, format!("real programs run in `{name}`"))
            .hint(format!("wait for them, or use a fork: `fractal fork {name}`")));
    }
    Err(Error::new(Code::Busy, format!("something else starts or ends in `{name}`"))
        .hint("try again in a moment"))
}

/// Who joins a run has its network and sees its files, which may be all that the
/// sandbox allows; who may have less must not come to more by it. What is only
/// to be left as it is, as programs of tools ask for their own directories, is
/// in the sandbox's copy all the same.
fn refuse_wider_company(place: &Place) -> Result<()> {
    let (own, all) = (&place.policy, &place.row.policy);
    if own.network == all.network && own.hidden.is_subset(&all.hidden) {
        return Ok(());
    }
    let name = &place.row.name;
    let why =
        format!("something runs in `{name}` with a network or files that this run may not have");
    Err(Error::new(Code::Busy, why)
        .hint(format!("wait for it, or run in a fork: `fractal fork {name}`")))
}

fn claim_new(engine: &Engine, place: &mut Place) -> Result<()> {
    let living = living_row(place);
    insert_new(engine, place, false, |tx| tx.insert_run(&living))?;
    Ok(engine.store.dirty_layer(place.row.top, &label(place.run_id))?)
}

/// Makes directory and rows of a new sandbox, and what is written with them;
/// `durable` when somebody is told of it now and not after a run.
pub(super) fn insert_new(
    engine: &Engine,
    place: &mut Place,
    durable: bool,
    with: impl FnOnce(&Tx<'_>) -> fractal_store::Result<()>,
) -> Result<()> {
    let store = &engine.store;
    let row = &place.row;
    if store.sandbox_named(&row.tenant, &row.name)?.is_some() {
        return Err(Error::new(Code::Exists, format!("there is already a sandbox `{}`", row.name))
            .hint(format!(
                "run in it with `fractal run --in {} -- CMD`, or choose another name",
                row.name
            )));
    }
    let made = freeze(engine, place)?;
    let row = &place.row;
    store.new_layer_dir(row.top)?;
    prepare_scratch(engine, &row.mounts, &store.layer_tree(row.top))?;
    let write = |tx: &Tx<'_>| {
        if let Some(base) = made {
            insert_layer(tx, base, None)?;
            tx.seal_layer(base, 0)?;
        }
        insert_layer(tx, row.top, row.base)?;
        tx.insert_sandbox(row)?;
        with(tx)
    };
    let inserted = if durable { store.transact(write) } else { store.transact_relaxed(write) };
    if let Err(error) = inserted {
        let _ = store.discard_layer(row.top);
        made.into_iter().for_each(|base| drop(store.discard_layer(base)));
        return Err(error.into());
    }
    Ok(())
}

/// Gives a new sandbox a base of its own, where it is to have one; returns the
/// layer if it is in no table yet.
fn freeze(engine: &Engine, place: &mut Place) -> Result<Option<Id>> {
    if place.tier == Tier::Copied {
        return super::copied::freeze(engine, place).map(Some);
    }
    if place.base == BaseKind::Frozen {
        place.row.base = Some(capture::capture(engine, &place.row)?);
        // Ids grow with time, and what stands on a layer is younger than it.
        place.row.top = new_id();
    }
    Ok(None)
}

/// Seals what the parent holds now and puts an empty top on it, in one
/// transaction: nobody can take the sealed layer away in between.
fn claim_child(engine: &Engine, place: &mut Place, parent: SandboxRow) -> Result<()> {
    let store = &engine.store;
    store.new_layer_dir(place.row.top)?;
    let claimed = seal::while_sealed(engine, parent, |parent, seal| {
        place.row.base = seal.layer;
        let living = living_row(place);
        store.transact_relaxed(|tx| {
            seal.write(tx, parent)?;
            insert_layer(tx, place.row.top, place.row.base)?;
            tx.insert_sandbox(&place.row)?;
            tx.insert_run(&living)
        })
    });
    if let Err(error) = claimed {
        let _ = store.discard_layer(place.row.top);
        return Err(error);
    }
    Ok(store.dirty_layer(place.row.top, &label(place.run_id))?)
}

/// Seals what the sandbox holds, if nothing runs in it. A tree in memory goes on
/// reading what it was made from for as long as it lives, while what it becomes
/// is written into the top: the two must not be one layer.
fn stand_on_sealed(engine: &Engine, place: &mut Place) -> Result<()> {
    place.row = engine.find_again(&place.row)?;
    if engine.is_running(place.row.id)? || engine.top_is_empty(&place.row)? {
        return Ok(());
    }
    let row = place.row.clone();
    let store = &engine.store;
    seal::while_sealed(engine, row, |row, seal| store.transact_relaxed(|tx| seal.write(tx, row)))?;
    place.row = engine.find_again(&place.row)?;
    Ok(())
}

/// False when we have to look again: somebody came, or the one to join went.
fn claim_existing(engine: &Engine, place: &mut Place, joined: Option<Id>) -> Result<bool> {
    let (name, id) = (place.row.name.clone(), place.row.id);
    if !engine.store.layer_tree(place.row.top).is_dir() {
        return look_again(engine, place);
    }
    // Whoever copies the layer has frozen those who write it, and a newcomer
    // would write all the same.
    let Some(_hold) = engine.store.hold_layer(place.row.top, false)? else { return Ok(false) };
    let held = place.row.top;
    let claimed = engine.store.transact_relaxed(|tx| {
        let others = tx.runs_of(id)?;
        let free = match joined {
            Some(joined) => others.iter().any(|run| run.id == joined),
            None => others.is_empty(),
        };
        if !free {
            return Ok(Some(false));
        }
        // Its top may have moved since we decided to run in it.
        let Some(row) = tx.sandbox(id)? else { return Ok(None) };
        place.row = row;
        if place.row.top != held {
            return Ok(Some(false));
        }
        tx.insert_run(&living_row(place)).map(|()| Some(true))
    })?;
    let claimed = claimed.ok_or_else(|| {
        Error::not_found(format!("the sandbox `{name}` was dropped meanwhile"))
            .hint("`fractal list` shows what there is")
    })?;
    Ok(claimed)
}

/// The layer to write is not there: somebody moved the top since we decided,
/// or it is lost. An empty one in its place would hide that.
fn look_again(engine: &Engine, place: &mut Place) -> Result<bool> {
    let name = place.row.name.clone();
    let now = engine.find_again(&place.row)?;
    if now.top != place.row.top {
        place.row = now;
        return Ok(false);
    }
    Err(Error::new(
        Code::Corrupt,
        format!("the layer that `{name}` writes is missing from the state directory"),
    )
    .hint(format!("restore it from a backup, or give it up with `fractal drop {name}`")))
}

fn living_row(place: &Place) -> RunRow {
    let pid = std::process::id() as i32;
    RunRow {
        id: place.run_id,
        sandbox: place.row.id,
        pid,
        pid_start: process_start(pid).unwrap_or(0),
        epoch: place.row.epoch,
        cgroup: (place.world == World::Native).then(|| label(place.run_id)),
        started_ms: now_ms(),
    }
}

/// A run in the sandbox whose mounts are ready, held so that they stay.
fn living_run(engine: &Engine, sandbox: Id) -> Result<Option<(Id, Living)>> {
    let runs = engine.store.runs_of(sandbox)?;
    if runs.is_empty() {
        return Ok(None);
    }
    let Some(row) = engine.store.sandbox(sandbox)? else { return Ok(None) };
    let (layers_dir, layer) = (engine.store.layers_dir(), row.top.to_string());
    let open = |id: Id| Living::open(&layers_dir, &layer, &label(id)).map(|living| (id, living));
    Ok(runs.iter().find_map(|run| open(run.id)))
}

pub fn label(run_id: Id) -> String {
    run_id.as_str().to_lowercase()
}

/// Scratch directories live in the sandbox's first layer and are opaque there,
/// so that nothing of the host shows through.
pub(super) fn prepare_scratch(engine: &Engine, mounts: &[Mount], tree: &Path) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::internal(format!("cannot prepare scratch space: {error}"));
    for mount in mounts.iter().filter(|mount| mount.source == MountSource::Scratch) {
        let dir = tree.join(mount.at.trim_start_matches('/'));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        if Path::new(&mount.at).is_dir() {
            let name = if engine.tier()? >= Tier::Masked {
                "trusted.overlay.opaque"
            } else {
                "user.overlay.opaque"
            };
            rustix::fs::setxattr(&dir, name, b"y", rustix::fs::XattrFlags::empty())
                .map_err(|errno| failed(errno.into()))?;
        }
        if mount.at == "/workspace" {
            for name in template::WORKSPACE_DIRS {
                std::fs::create_dir_all(dir.join(name)).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Undoes `claim` after a run that could not start.
pub(super) fn abandon(engine: &Engine, place: &Place) {
    if place.in_memory.is_some() {
        return;
    }
    let row = &place.row;
    let removed = engine.store.transact_relaxed(|tx| {
        tx.delete_run(place.run_id)?;
        if place.is_new { forget(tx, row) } else { Ok(Vec::new()) }
    });
    for layer in removed.unwrap_or_default() {
        let _ = engine.store.discard_layer(layer);
    }
}

/// Removes the rows of a sandbox that one run made; returns the layers whose
/// directories can go.
pub(super) fn forget(tx: &Tx<'_>, row: &SandboxRow) -> fractal_store::Result<Vec<Id>> {
    tx.delete_sandbox(row.id)?;
    let mut unused = Vec::new();
    for layer in [row.top].into_iter().chain(row.base) {
        if tx.delete_layer_if_unused(layer)? {
            unused.push(layer);
        }
    }
    Ok(unused)
}
