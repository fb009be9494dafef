//! What a promotion would leave behind, as a sandbox: a fork of the target as
//! it is now, reality or a stage, with the wishes written into it. The gate's checks run there, and patches
//! and commits are read from there.

use super::plan::Plan;
use super::weigh::Wish;
use crate::apply::{Content, What};
use crate::{Caller, Engine, check, insert_layer, stale};
use fractal_jail::layer::{View, Writer};
use fractal_model::{Check, CheckReport, Id, Result, Tier};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};

/// A sandbox for a moment; it is dropped with the value.
pub struct Rehearsal<'a> {
    pub row: SandboxRow,
    engine: &'a Engine,
    caller: Caller,
}

impl<'a> Rehearsal<'a> {
    /// Writes what is planned onto what stands in a stage, or onto today's
    /// reality.
    pub fn new(
        engine: &'a Engine,
        caller: &Caller,
        from: &SandboxRow,
        stage: Option<&SandboxRow>,
        plan: &Plan,
    ) -> Result<Rehearsal<'a>> {
        let base = stage.map_or(Ok(None), |stage| stands_on(engine, stage))?;
        let row = SandboxRow { base, ..passing(engine, stage.unwrap_or(from)) };
        engine.store.new_layer_dir(row.top)?;
        let written = write(engine, &row, stage, plan).and_then(|()| {
            engine.store.transact_relaxed(|tx| {
                insert_layer(tx, row.top, base)?;
                tx.insert_sandbox(&row)
            })?;
            Ok(())
        });
        if let Err(error) = written {
            let _ = engine.store.discard_layer(row.top);
            return Err(error);
        }
        // Checks start where the project is, wherever the caller stands.
        let caller = caller.for_steps_in(&row);
        Ok(Rehearsal { row, engine, caller })
    }

    /// What the checks say there.
    pub fn check(&self, checks: &[Check]) -> Result<Vec<CheckReport>> {
        check::run_checks(self.engine, &self.caller, &self.row.name, checks, 1)
    }
}

impl Drop for Rehearsal<'_> {
    fn drop(&mut self) {
        let _ = super::super::drop::forget(self.engine, &self.row);
    }
}

/// A sandbox for a moment, like another one, with an empty top on reality.
pub fn passing(engine: &Engine, from: &SandboxRow) -> SandboxRow {
    let (id, now) = (new_id(), now_ms());
    SandboxRow {
        id,
        name: name(id),
        parent: None,
        base: None,
        top: new_id(),
        // Not the latest sandbox of anybody.
        template: "gate".to_owned(),
        mounts: Vec::new(),
        created_ms: now,
        touched_ms: now,
        // Should our process be killed, it goes with the next collection; an
        // hour more than nothing keeps others from taking it meanwhile.
        ttl_ms: Some(3_600_000),
        fork_ctime_ns: stale::file_clock_ns(engine.home()),
        epoch: 0,
        ..from.clone()
    }
}

fn name(id: Id) -> String {
    format!("gate-{}", id.as_str()[16..].to_lowercase())
}

/// The sealed layer under the top of a stage, which nobody writes to.
fn stands_on(engine: &Engine, stage: &SandboxRow) -> Result<Option<Id>> {
    Ok(engine.store.layer(stage.top)?.and_then(|top| top.below))
}

fn write(engine: &Engine, row: &SandboxRow, stage: Option<&SandboxRow>, plan: &Plan) -> Result<()> {
    let below = match stage {
        None => engine.host_view(row, Vec::new())?,
        Some(stage) => engine.views(stage, stage.base)?.top(),
    };
    let tree = engine.store.layer_tree(row.top);
    let writer = Writer::open(&tree, &below, engine.tier()? >= Tier::Masked)?;
    put(&writer, &plan.ours, &plan.wishes)
}

/// Writes wishes into a layer: what goes before what comes, so that a file
/// can take a directory's place, and the modes of directories last, deepest
/// first: one may keep us from writing what lies in it.
pub fn put(writer: &Writer<'_>, ours: &View, wishes: &[Wish]) -> Result<()> {
    for wish in wishes.iter().rev().filter(|wish| wish.new.is_none() || wish.ends_directory()) {
        writer.delete(&wish.path)?;
    }
    for wish in wishes {
        let Some(new) = &wish.new else { continue };
        let owner = new.owner.unwrap_or((0, 0));
        match &new.what {
            What::Directory => writer.directory(&wish.path, new.mode | 0o700, owner)?,
            // Only an undo brings one, and only into reality.
            What::Special(_) => {}
            What::Symlink(target) => writer.symlink(&wish.path, target)?,
            What::File(Content::Bytes(bytes)) => {
                let noted = new.noted.as_ref().map(|noted| noted.new.clone()).unwrap_or_default();
                writer.file(&wish.path, new.mode, owner, &noted, &mut bytes.as_slice())?;
            }
            What::File(_) => {
                let (noted, mut file) = (ours.attributes(&wish.path)?, ours.open_file(&wish.path)?);
                writer.file(&wish.path, new.mode, owner, &noted, &mut file)?;
            }
        }
    }
    for wish in wishes.iter().rev() {
        let Some(new) = &wish.new else { continue };
        if matches!(new.what, What::Directory) {
            let noted = ours.attributes(&wish.path)?;
            writer.dress(&wish.path, new.mode, new.owner.unwrap_or((0, 0)), &noted)?;
        }
    }
    Ok(())
}
