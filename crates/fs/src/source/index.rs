//! The names of a source that knows all of them beforehand.

use super::{Item, ItemKind};
use crate::error::{Fault, Kind};
use fractal_model::SandboxPath;
use std::collections::BTreeMap;

/// Paths with what stands there; directories above them are made.
pub(crate) struct Index<T> {
    dirs: BTreeMap<SandboxPath, BTreeMap<Vec<u8>, Item>>,
    files: BTreeMap<SandboxPath, T>,
    /// Bytes of all paths, for sources that somebody else made.
    held: u64,
}

/// What a path costs beside its bytes, roughly.
const PATH_BYTES: u64 = 200;

impl<T> Default for Index<T> {
    fn default() -> Index<T> {
        let root = (SandboxPath::root(), BTreeMap::new());
        Index { dirs: [root].into(), files: BTreeMap::new(), held: 0 }
    }
}

impl<T> Index<T> {
    /// Puts an entry at a path; `content` is for files. A directory may be
    /// put more than once, and the last one tells its mode.
    pub(crate) fn put(
        &mut self,
        path: &SandboxPath,
        mut item: Item,
        content: Option<T>,
    ) -> Result<(), Fault> {
        let (Some(parent), Some(name)) = (path.parent(), path.components().last()) else {
            // What is told of the root is the mount's business.
            return Ok(());
        };
        item.name = name.to_vec();
        self.held += path.relative().len() as u64 * 2 + PATH_BYTES;
        self.make_dirs(&parent)?;
        let siblings = self.dirs.get_mut(&parent).expect("made above");
        if let Some(there) = siblings.get(name)
            && (there.kind != ItemKind::Dir || item.kind != ItemKind::Dir)
        {
            return Err(Fault::because(Kind::Source, format!("it names {path} twice")));
        }
        if item.kind == ItemKind::Dir {
            self.dirs.entry(path.clone()).or_default();
        }
        let siblings = self.dirs.get_mut(&parent).expect("made above");
        siblings.insert(name.to_vec(), item);
        if let Some(content) = content {
            self.files.insert(path.clone(), content);
        }
        Ok(())
    }

    fn make_dirs(&mut self, dir: &SandboxPath) -> Result<(), Fault> {
        if self.dirs.contains_key(dir) {
            return Ok(());
        }
        let mut at = SandboxPath::root();
        for name in dir.components() {
            let next = at.join(name).map_err(|_| Fault::new(Kind::NameTooLong))?;
            let siblings = self.dirs.get_mut(&at).expect("made in the round before");
            let there = siblings.entry(name.to_vec()).or_insert_with(|| Item::dir(name));
            if there.kind != ItemKind::Dir {
                let reason = format!("it names {next} as a directory and as something else");
                return Err(Fault::because(Kind::Source, reason));
            }
            if !self.dirs.contains_key(&next) {
                self.held += next.relative().len() as u64 + PATH_BYTES;
                self.dirs.insert(next.clone(), BTreeMap::new());
            }
            at = next;
        }
        Ok(())
    }

    /// About how much memory the names take.
    #[cfg(feature = "archive")]
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn list(&self, at: &SandboxPath) -> Result<Vec<Item>, Fault> {
        let dir = self.dirs.get(at).ok_or(Fault::new(Kind::NotFound))?;
        Ok(dir.values().cloned().collect())
    }

    pub(crate) fn file(&self, at: &SandboxPath) -> Result<&T, Fault> {
        self.files.get(at).ok_or(Fault::new(Kind::NotFound))
    }
}
