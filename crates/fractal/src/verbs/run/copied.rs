//! Runs where nothing can be mounted: in a copy of the project.
//!
//! A new sandbox gets two copies. The first is sealed and becomes its base,
//! so that a diff tells what a program changed and not what you edited since;
//! the second is its top, where programs write. Both are ordinary layers with
//! the project as an opaque directory, and every other verb takes them as
//! such. A top that is not whole (new after a snapshot, or written in another
//! tier) is made so before the next run.

use super::claim::label;
use super::place::Place;
use super::spec::spec;
use crate::view::path_of;
use crate::{Caller, Engine};
use fractal_jail::layer::{Bounds, LayerError, View, is_whole, make_whole};
use fractal_model::{Code, Error, Id, Result, Run, Tier};
use fractal_store::{Reads, new_id};

/// What a project may hold where no disk limit says otherwise.
const PROJECT_BYTES_MAX: u64 = 4 << 30;

/// Ends of names in a layer's work directory.
const STAGING: &str = "-copy";
const SCRATCH: &str = "-scratch";

/// Refuses what the tier cannot do, before anything is made.
pub(super) fn check(engine: &Engine, caller: &Caller, run: &Run, place: &Place) -> Result<()> {
    if place.tier != Tier::Copied {
        return Ok(());
    }
    let unsupported = |what: String| Error::new(Code::Unsupported, what);
    if let Some(mount) = place.row.mounts.first() {
        let what = format!("isolation `copied` cannot mount anything at {}", mount.at);
        return Err(unsupported(what).hint(
            "use a template without mounts (`--template clone`); `fractal doctor` shows how to reach more",
        ));
    }
    let project = &place.row.directory;
    let inside = |path: &&String| std::path::Path::new(path).starts_with(project);
    let more = place.policy.hidden.difference(&place.row.policy.hidden).find(inside);
    if let Some(path) = more.filter(|_| !place.is_new) {
        let what = format!("isolation `copied` cannot hide {path}: it was copied before");
        return Err(unsupported(what).hint("make a new sandbox with `fractal run --hide … -- CMD`"));
    }
    Ok(fractal_jail::copied::check(&spec(engine, caller, run, place)?)?)
}

/// Makes the base of a new sandbox. Its rows are written later, so a copy that
/// is interrupted is a directory that nobody knows and `gc` removes.
pub(super) fn freeze(engine: &Engine, place: &mut Place) -> Result<Id> {
    // Ids grow with time, and what stands on a layer is younger than it.
    let (store, base) = (&engine.store, place.row.top);
    let view = engine.host_view(&place.row, Vec::new())?;
    store.new_layer_dir(base)?;
    let label = label(place.run_id);
    let frozen = store.dirty_layer(base, &label).map_err(Error::from).and_then(|()| {
        copy(engine, place, &view, base)?;
        Ok(store.sync_layer(base)?)
    });
    if let Err(error) = frozen {
        let _ = store.discard_layer(base);
        return Err(error);
    }
    place.row.base = Some(base);
    place.row.top = new_id();
    Ok(base)
}

/// Makes the top whole, unless it is already or another run lives on it.
pub(super) fn materialise(engine: &Engine, place: &Place) -> Result<()> {
    if place.tier != Tier::Copied || place.join.is_some() {
        return Ok(());
    }
    let row = &place.row;
    if is_whole(&engine.store.layer_dir(row.top), &path_of(&row.directory)?)? {
        return Ok(());
    }
    let view = engine.views(row, row.base)?.top();
    copy(engine, place, &view, row.top)
}

fn copy(engine: &Engine, place: &Place, view: &View, layer: Id) -> Result<()> {
    let (store, project) = (&engine.store, &place.row.directory);
    let bytes_max = place.policy.limits.disk_bytes.unwrap_or(PROJECT_BYTES_MAX);
    let bounds = Bounds { bytes_max, ..Bounds::default() };
    let name = format!("{}{STAGING}", label(place.run_id));
    let staging = store.layer_work(layer).join(&name);
    let made =
        make_whole(view, &path_of(project)?, &store.layer_dir(layer), &staging, &bounds, false);
    // What was there before, or what a failure left.
    store.discard_work(layer, &name)?;
    made.map(|_| ()).map_err(|error| explained(error, place))
}

/// The next command for what people meet most.
fn explained(error: LayerError, place: &Place) -> Error {
    let too_large = matches!(error, LayerError::TooLarge { .. });
    let error = Error::from(error);
    let hint = match error.code {
        Code::Limit if too_large && place.policy.limits.disk_bytes.is_some() => {
            "isolation `copied` copies the project: give a new sandbox more `--disk`, or leave directories out with `--hide`"
        }
        Code::Limit if too_large => {
            "isolation `copied` copies the project: allow more with `--disk 20g`, or leave directories out with `--hide`"
        }
        Code::Limit => {
            "isolation `copied` copies the project: free some space, for example with `fractal gc`, or leave directories out with `--hide`"
        }
        Code::Denied => {
            "isolation `copied` copies the project: make it readable, or leave it out with `--hide PATH`"
        }
        _ => "isolation `copied` copies the project; `fractal doctor` shows how to reach more",
    };
    error.hint(hint)
}

/// What is done before the plan.
pub(super) fn explain(engine: &Engine, place: &Place) -> Vec<String> {
    if place.tier != Tier::Copied {
        return Vec::new();
    }
    let (row, project) = (&place.row, place.row.directory.display());
    let tree = engine.store.layer_tree(row.top);
    let layer = engine.store.layer_dir(row.top);
    if path_of(&row.directory).is_ok_and(|path| is_whole(&layer, &path).unwrap_or(false)) {
        return vec![format!("copy: {project} is in {} already", tree.display())];
    }
    let mut lines = vec![format!("copy: {project} into {}", tree.display())];
    if place.is_new {
        lines.insert(0, format!("copy: {project} into a sealed layer, as the base"));
    }
    lines
}

/// Throws away home and temporary files of runs that are over, and what an
/// interrupted copy left.
pub(super) fn clear(engine: &Engine, top: Id) {
    let Ok(entries) = std::fs::read_dir(engine.store.layer_work(top)) else { return };
    let ours = |name: &str| name.ends_with(SCRATCH) || name.ends_with(STAGING);
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| ours(name)).collect();
    if names.is_empty() {
        return;
    }
    let Ok(alive) = engine.store.runs() else { return };
    for name in names {
        if !alive.iter().any(|run| name.starts_with(&label(run.id))) {
            let _ = engine.store.discard_work(top, &name);
        }
    }
}
