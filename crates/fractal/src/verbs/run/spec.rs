//! From a place to what the jail is asked: stack, mounts, variables.

use super::claim::label;
use super::place::Place;
use crate::{Caller, Engine, environment, record, template};
use fractal_jail::{LastWords, Placed, Spec, Stack, Top};
use fractal_model::{Error, Mount, MountAccess, MountSource, Name, Network, Result, Run};
use fractal_store::Reads;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) fn spec(engine: &Engine, caller: &Caller, run: &Run, place: &Place) -> Result<Spec> {
    let row = &place.row;
    // The top of a fork of reality stands on nothing, and may be in no table.
    let bare = place.is_new && place.parent.is_none();
    let stack = if bare { Vec::new() } else { engine.store.stack(row.top)? };
    engine.adopt_copies(row, &stack)?;
    let sealed = stack.iter().skip(1).map(|layer| layer.id.to_string()).collect();
    let top = match place.in_memory {
        Some(size_bytes) => Top::Memory { size_bytes },
        None => Top::Disk(row.top.to_string()),
    };
    let mut mounts = Vec::new();
    for mount in &row.mounts {
        mounts.push(placed(engine, &row.tenant, mount)?);
    }
    let cwd = run
        .cwd
        .clone()
        .or_else(|| place.template.as_ref().and_then(|template| template.cwd.clone()));
    let cwd = cwd.map_or_else(|| caller.directory.clone(), |cwd| caller.directory.join(cwd));
    Ok(Spec {
        command: run.command.iter().map(OsString::from).collect(),
        env: variables(caller, run, place),
        cwd,
        stack: Stack {
            layers_dir: engine.layers_dir(),
            sealed,
            top,
            state_dir: engine.home().to_path_buf(),
            project: row.directory.clone(),
            mounts,
        },
        limits: place.policy.limits.clone(),
        network: place.policy.network.clone(),
        hidden: place.policy.hidden.iter().map(PathBuf::from).collect(),
        read_only: place.policy.read_only.iter().map(PathBuf::from).collect(),
        tier: place.tier,
        terminal: false,
        label: label(place.run_id),
        join: place.join.clone(),
        door: run.door,
        last_words: place.in_memory.map(|_| last_words(engine, caller, run, place)),
    })
}

/// A throw-away run has no row that would tell of it if we are killed, and
/// writing one would make every run wait for the journal before it starts.
fn last_words(engine: &Engine, caller: &Caller, run: &Run, place: &Place) -> LastWords {
    let mut body = record(caller, "run", Some(&place.row));
    (body.before, body.after) = (None, None);
    body.detail = json!({
        "run": place.run_id, "command": run.command, "outcome": "lost", "tier": place.tier,
    });
    LastWords {
        path: fractal_store::last_words_file(engine.home(), place.run_id),
        text: serde_json::to_vec(&body).unwrap_or_default(),
    }
}

pub(super) fn placed(engine: &Engine, tenant: &str, mount: &Mount) -> Result<Placed> {
    let source = match &mount.source {
        MountSource::Scratch => None,
        MountSource::Host(path) => Some(PathBuf::from(path)),
        MountSource::Volume(name) => {
            let name = Name::parse(name)?;
            let data = super::super::volume::ensure(engine, tenant, &name)?;
            if mount.at == "/data" {
                for dir in template::DATA_DIRS {
                    let _ = std::fs::create_dir(data.join(dir));
                }
            }
            Some(data)
        }
    };
    if let Some(missing) = source.as_ref().filter(|source| !source.is_dir()) {
        return Err(Error::not_found(format!(
            "the mount at {} needs {}, which is no directory",
            mount.at,
            missing.display()
        )));
    }
    Ok(Placed {
        at: PathBuf::from(&mount.at),
        source,
        writable: mount.access == MountAccess::Write,
    })
}

fn variables(caller: &Caller, run: &Run, place: &Place) -> Vec<(OsString, OsString)> {
    let mut env = environment::filter(&caller.environment, &place.policy.network);
    let mut set = |key: &str, value: &str| {
        env.retain(|(other, _)| other != key);
        env.push((key.into(), value.into()));
    };
    set("FRACTAL_SANDBOX", &place.row.name);
    if matches!(place.policy.network, Network::Allow(_)) {
        for (key, value) in fractal_jail::proxy::environment() {
            set(&key, &value);
        }
    }
    for (key, value) in place.template.iter().flat_map(|template| &template.env).chain(&run.env) {
        set(key, value);
    }
    env
}
