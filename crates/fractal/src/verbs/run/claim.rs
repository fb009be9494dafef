//! Rows and directories that say "a run is under way here".

use super::place::Place;
use crate::{Engine, insert_layer, template};
use fractal_jail::Living;
use fractal_model::{Code, Error, Id, MountSource, Result, Tier};
use fractal_store::{Reads, RunRow, SandboxRow, now_ms, process_start};
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes what must exist before the run, and says that it is under way.
/// Returns whom to join where something runs in the sandbox already.
pub(super) fn claim(engine: &Engine, place: &Place) -> Result<Option<Living>> {
    if place.in_memory.is_some() {
        return Ok(None);
    }
    let (store, row, run_id) = (&engine.store, &place.row, place.run_id);
    if place.is_new {
        if store.sandbox_named(&row.name)?.is_some() {
            return Err(Error::new(
                Code::Exists,
                format!("there is already a sandbox `{}`", row.name),
            )
            .hint(format!(
                "run in it with `fractal run --in {} -- CMD`, or choose another name",
                row.name
            )));
        }
        store.new_layer_dir(row.top)?;
        prepare_scratch(engine, row)?;
    } else if !store.layer_tree(row.top).exists() {
        // A power cut may take a fresh directory and leave its row.
        store.new_layer_dir(row.top)?;
    }
    let pid = std::process::id() as i32;
    let living = RunRow {
        id: run_id,
        sandbox: row.id,
        pid,
        pid_start: process_start(pid).unwrap_or(0),
        epoch: row.epoch,
        cgroup: Some(label(run_id)),
        started_ms: now_ms(),
    };
    engine.is_running(row.id)?;
    let inserted = store.transact_relaxed(|tx| {
        if place.is_new {
            insert_layer(tx, row.top, None)?;
            tx.insert_sandbox(row)?;
        }
        let others = tx.runs_of(row.id)?;
        tx.insert_run(&living)?;
        Ok(others)
    });
    let others = match inserted {
        Ok(others) => others,
        Err(error) => {
            if place.is_new {
                let _ = store.discard_layer(row.top);
            }
            return Err(error.into());
        }
    };
    store.dirty_layer(row.top, &label(run_id))?;
    if others.is_empty() {
        clear_work(&store.layer_work(row.top));
        return Ok(None);
    }
    let found = living_run(engine, row, run_id);
    match &found {
        Ok(Some(_)) => {}
        Ok(None) => clear_work(&store.layer_work(row.top)),
        Err(_) => abandon(engine, place),
    }
    found
}

/// Another run in this sandbox to join, once it is built; none when we are
/// the oldest, for then it is ours to build.
fn living_run(engine: &Engine, row: &SandboxRow, own: Id) -> Result<Option<Living>> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (start, layer) = (Instant::now(), row.top.to_string());
    while start.elapsed() < PATIENCE {
        let others = engine.store.runs_of(row.id)?;
        for label in others.iter().filter(|run| run.id != own).map(|run| label(run.id)) {
            if let Some(living) = Living::open(&engine.store.layers_dir(), &layer, &label) {
                return Ok(Some(living));
            }
        }
        if others.iter().all(|run| run.id >= own) {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(3));
        engine.is_running(row.id)?;
    }
    Err(Error::new(Code::Busy, format!("something else starts or ends in `{}`", row.name))
        .hint("try again in a moment"))
}

pub(super) fn label(run_id: Id) -> String {
    run_id.as_str().to_lowercase()
}

/// Work directories of earlier runs; the kernel makes new ones each time.
fn clear_work(work: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(work).into_iter().flatten().flatten() {
        for inner in fractal_jail::LOCKED_IN_WORK {
            let rights = std::fs::Permissions::from_mode(0o700);
            let _ = std::fs::set_permissions(entry.path().join(inner), rights);
        }
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// Scratch directories live in the sandbox's first layer and are opaque there,
/// so that nothing of the host shows through.
fn prepare_scratch(engine: &Engine, row: &SandboxRow) -> Result<()> {
    let tree = engine.store.layer_tree(row.top);
    let failed =
        |error: std::io::Error| Error::internal(format!("cannot prepare scratch space: {error}"));
    for mount in row.mounts.iter().filter(|mount| mount.source == MountSource::Scratch) {
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
        if place.is_new {
            tx.delete_sandbox(row.id)?;
            tx.delete_layer_if_unused(row.top)?;
        }
        Ok(())
    });
    if place.is_new && removed.is_ok() {
        let _ = engine.store.discard_layer(row.top);
    }
}
