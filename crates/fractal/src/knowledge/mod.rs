//! Where what was learned lies, and who may ask for it.
//!
//! The local user's records are those of the project (its bundles below
//! `sandbox/`), notes in the state directory, and what sandboxes wrote into
//! the folders `knowledge` and `memory` of volumes. Whoever comes with a
//! narrower key has notes of its own and the volumes of its tenant, and nothing
//! of the host. Each of these views has an index of its own, so that nobody's
//! answers depend on what others wrote.

pub(crate) mod experiment;
mod known;
pub(crate) mod meaning;
mod recorded;
pub(crate) mod recording;
mod scrub;
#[cfg(feature = "servers")]
pub(crate) mod servers;
mod signature;

use crate::config::is_ours;
use crate::{Caller, Engine};
use fractal_index::bundle::Bundle;
use fractal_index::{Index, IndexError, Root, RootKind};
use fractal_model::{Code, Error, Hit, Learning, RecordBody, Result, Scope};
use fractal_store::Reads;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(crate) use scrub::scrubbed;
pub(crate) use signature::signature;

/// Folders of a volume that hold records.
const OF_VOLUMES: [&str; 2] = ["knowledge", "memory"];
/// The root of a project's records.
pub(crate) const PROJECT: &str = "project";
/// The root of notes that belong to no project.
pub(crate) const NOTES: &str = "notes";

impl Caller {
    /// Whether it is the local user, or as good as: then the project's files
    /// are its own.
    pub(crate) fn is_owner(&self) -> bool {
        self.reach.is_everything() && self.door.is_none()
    }
}

/// The directory whose experiments are meant: that of the outermost experiment
/// one stands in, otherwise the nearest one that looks like a project's, and
/// otherwise the directory itself.
pub(crate) fn project_of(directory: &Path) -> PathBuf {
    let in_bundle = |dir: &&Path| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let home = dir.parent().and_then(Path::file_name);
        name.ends_with(fractal_index::bundle::SUFFIX)
            && home.is_some_and(|home| home == fractal_index::bundle::HOME)
    };
    if let Some(outermost) = directory.ancestors().filter(in_bundle).last() {
        return outermost.ancestors().nth(2).unwrap_or(directory).to_owned();
    }
    let marks = [crate::config::FILE_NAME, ".git"];
    // Above us others may put what they like: in `/tmp` anybody may.
    let is_ours = |path: &Path| path.symlink_metadata().is_ok() && is_ours(path, directory);
    let looks_so = |dir: &&Path| {
        marks.iter().any(|mark| is_ours(&dir.join(mark))) || has_experiment(dir, &is_ours)
    };
    directory.ancestors().find(looks_so).unwrap_or(directory).to_owned()
}

/// Whether experiments lie in a directory, without a look into them.
fn has_experiment(dir: &Path, is_ours: &dyn Fn(&Path) -> bool) -> bool {
    let entries = std::fs::read_dir(dir.join(fractal_index::bundle::HOME));
    let mut paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.any(|path| is_ours(&path) && Bundle::open(&path).is_ok())
}

/// What a view of the records is called, as a file name: the caller's project,
/// or whatever a key can see.
fn view_name(caller: &Caller) -> String {
    match caller.is_owner() {
        true => {
            let project = project_of(&caller.directory);
            RecordBody::place_of(project.as_os_str().as_encoded_bytes())
        }
        false => keys_place(caller),
    }
}

/// The place of notes of those who see no more than this key does.
fn keys_place(caller: &Caller) -> String {
    let scope = match &caller.reach.scope {
        Scope::All => String::new(),
        Scope::Template(name) => format!("template {name}"),
        Scope::Sandbox(id) => format!("sandbox {id}"),
    };
    let tenant = caller.reach.tenant.as_deref();
    let seen = format!("{}\n{}\n{scope}", tenant.is_some(), tenant.unwrap_or_default());
    format!("key-{}", RecordBody::place_of(seen.as_bytes()))
}

impl Engine {
    /// Where notes are written that belong to no experiment.
    pub(crate) fn notes_dir(&self, caller: &Caller) -> PathBuf {
        let place = if caller.is_owner() { "own".to_owned() } else { keys_place(caller) };
        self.home().join("notes").join(place)
    }

    /// The roots that a caller's questions go to.
    pub(crate) fn knowledge_roots(&self, caller: &Caller) -> Result<Vec<Root>> {
        let root = |name: String, path: PathBuf, kind| Root { name, path, kind };
        let mut roots = Vec::new();
        if caller.is_owner() {
            let project = project_of(&caller.directory);
            roots.push(root(PROJECT.to_owned(), project, RootKind::Project));
            roots.push(root(NOTES.to_owned(), self.home().join("notes"), RootKind::Notes));
        } else {
            roots.push(root(NOTES.to_owned(), self.notes_dir(caller), RootKind::Notes));
        }
        // A key for less than a tenant does not see what its volumes hold.
        if caller.reach.scope == Scope::All {
            for row in self.store.volumes()? {
                if !caller.reach.has_tenant(&row.tenant) {
                    continue;
                }
                let data = self.store.volume_data(&row.tenant, &row.name);
                for folder in OF_VOLUMES {
                    let tenant = if row.tenant.is_empty() { "-" } else { &row.tenant };
                    let name = format!("volume/{tenant}/{}/{folder}", row.name);
                    roots.push(root(name, data.join(folder), RootKind::Notes));
                }
            }
        }
        Ok(roots)
    }

    pub(crate) fn index_dir(&self, caller: &Caller) -> PathBuf {
        self.home().join("cache/knowledge").join(view_name(caller))
    }

    /// The caller's index, in step with the files.
    pub(crate) fn index(&self, caller: &Caller) -> Result<Index> {
        let index = self.index_as_it_is(caller)?;
        match index.sync(&mut |_, _| ()) {
            // What cannot be read is made anew: nothing is lost by that.
            Err(error) if error.is_damage() => {
                drop(index);
                self.rebuild_index(caller, &mut |_, _| ())
            }
            done => done.map(|_| index).map_err(failed),
        }
    }

    /// The same without a look at the files.
    pub(crate) fn index_as_it_is(&self, caller: &Caller) -> Result<Index> {
        let roots = self.knowledge_roots(caller)?;
        Index::open(&self.index_dir(caller), roots).map_err(failed)
    }

    /// Makes the caller's index anew.
    pub(crate) fn rebuild_index(
        &self,
        caller: &Caller,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Index> {
        let roots = self.knowledge_roots(caller)?;
        let rebuilt = Index::rebuild(&self.index_dir(caller), roots, progress);
        rebuilt.map(|(index, _)| index).map_err(failed)
    }
}

#[cfg(not(feature = "servers"))]
impl Engine {
    /// Without the feature no server is asked, and whoever wants one is told.
    pub(crate) fn ask_servers(
        &self,
        caller: &Caller,
        _: &mut Index,
        _: Option<&std::sync::Arc<dyn fractal_index::embed::Embedder>>,
        without: &mut Vec<String>,
    ) {
        if caller.config.index_servers() != crate::IndexServers::default() {
            without.push("servers: this fractal was built without them (index-servers)".to_owned());
        }
    }
}

/// Where a record lies on this machine, for whoever may know.
pub(crate) fn file_of(caller: &Caller, index: &Index, root: &str, path: &str) -> Option<String> {
    let root = index.roots().iter().find(|it| it.name == root).filter(|_| caller.is_owner())?;
    Some(root.path.join(path).to_string_lossy().into_owned())
}

/// Completes hits with the places of their files.
pub(crate) fn place_hits(caller: &Caller, index: &Index, hits: &mut [Hit]) {
    for hit in hits {
        hit.file = file_of(caller, index, &hit.root, &hit.path);
    }
}

/// The same for lists.
pub(crate) fn place_learnings(caller: &Caller, index: &Index, list: &mut [Learning]) {
    for one in list {
        one.file = file_of(caller, index, &one.root, &one.path);
    }
}

/// An error of the index as one of the engine.
pub(crate) fn failed(error: IndexError) -> Error {
    let text = error.to_string();
    match error {
        IndexError::NoRecord { .. } => Error::not_found(text)
            .hint("name a record by its id or path, as `fractal find --json` shows them"),
        IndexError::NoBundle { .. } => {
            Error::not_found(text).hint("`fractal skunk list` shows what there is")
        }
        IndexError::Server { .. } => Error::new(Code::Unsupported, text)
            .hint("start it, or take it out of your settings: nothing is lost meanwhile"),
        IndexError::Exists { .. } => {
            Error::new(Code::Exists, text).hint("choose another title, or go on with that one")
        }
        IndexError::Busy { .. } => Error::new(Code::Busy, text).hint("try again when it has ended"),
        IndexError::Database { .. } => Error::new(Code::Corrupt, text)
            .hint("`fractal index rebuild` makes it anew from the files"),
        IndexError::Io { source, .. } => match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::new(Code::Limit, text)
                .hint("make room, and do it again: nothing was written"),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Error::denied(text).hint("it must be yours to write")
            }
            ErrorKind::NotFound => Error::not_found(text),
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                Error::new(Code::Exists, text).hint("something else is in the way: move it")
            }
            _ => Error::internal(text),
        },
        _ => Error::invalid(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_project_is_that_of_the_outermost_experiment() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path();
        for path in ["app/src", "app/sandbox/a_skunkworks/sandbox/b_skunkworks/.git", "app/.git"] {
            fs::create_dir_all(root.join(path)).expect("it is new");
        }
        let check = |from: &str, project: &str| {
            assert_eq!(project_of(&root.join(from)), root.join(project), "{from}");
        };
        check("app", "app");
        check("app/src", "app");
        check("app/sandbox/a_skunkworks", "app");
        check("app/sandbox/a_skunkworks/sandbox/b_skunkworks", "app");
    }
}
