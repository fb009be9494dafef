//! The reference model: sandboxes as plain maps, verbs as a few lines each.
//!
//! It says what the engine must do, without layers, disks or processes. The
//! engine's property test plays random histories against both and compares
//! every answer. Keep it naive: its only virtue is being obviously right.

use crate::Policy;
use std::collections::BTreeMap;

/// All files of a sandbox: path to content.
pub type Files = BTreeMap<String, String>;

/// One sandbox of the model.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// The parent's name; `None` is reality.
    pub parent: Option<String>,
    /// What it saw when it was made.
    pub base: Files,
    /// What it sees now.
    pub files: Files,
    /// Named states.
    pub snapshots: BTreeMap<String, Files>,
    /// What it may do.
    pub policy: Policy,
}

/// Why a verb was refused; the engine must refuse with the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Refusal {
    NotFound,
    Exists,
    Denied,
}

/// The whole world of the model.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Reality's files.
    pub reality: Files,
    /// Sandboxes by name.
    pub sandboxes: BTreeMap<String, Sandbox>,
}

impl World {
    /// Forks a sandbox, or reality for `None`.
    pub fn fork(&mut self, parent: Option<&str>, name: &str, ask: &Policy) -> Result<(), Refusal> {
        let (files, policy) = match parent {
            None => (self.reality.clone(), Policy::default()),
            Some(parent) => {
                let parent = self.sandboxes.get(parent).ok_or(Refusal::NotFound)?;
                (parent.files.clone(), parent.policy.clone())
            }
        };
        if ask.limits.first_wider(&policy.limits).is_some() {
            return Err(Refusal::Denied);
        }
        if self.sandboxes.contains_key(name) {
            return Err(Refusal::Exists);
        }
        let child = Sandbox {
            parent: parent.map(str::to_owned),
            base: files.clone(),
            files,
            snapshots: BTreeMap::new(),
            policy: policy.meet(ask),
        };
        self.sandboxes.insert(name.to_owned(), child);
        Ok(())
    }

    /// Writes (or with `None` removes) one file.
    pub fn write(&mut self, name: &str, path: &str, content: Option<&str>) -> Result<(), Refusal> {
        let sandbox = self.sandboxes.get_mut(name).ok_or(Refusal::NotFound)?;
        match content {
            Some(text) => sandbox.files.insert(path.to_owned(), text.to_owned()),
            None => sandbox.files.remove(path),
        };
        Ok(())
    }

    /// Names the present state.
    pub fn snapshot(&mut self, name: &str, label: &str) -> Result<(), Refusal> {
        let sandbox = self.sandboxes.get_mut(name).ok_or(Refusal::NotFound)?;
        if sandbox.snapshots.contains_key(label) {
            return Err(Refusal::Exists);
        }
        sandbox.snapshots.insert(label.to_owned(), sandbox.files.clone());
        Ok(())
    }

    /// Returns to a named state.
    pub fn rollback(&mut self, name: &str, label: &str) -> Result<(), Refusal> {
        let sandbox = self.sandboxes.get_mut(name).ok_or(Refusal::NotFound)?;
        sandbox.files = sandbox.snapshots.get(label).ok_or(Refusal::NotFound)?.clone();
        Ok(())
    }

    /// Forgets a sandbox; its children keep what they see.
    pub fn drop(&mut self, name: &str) -> Result<(), Refusal> {
        self.sandboxes.remove(name).map(|_| ()).ok_or(Refusal::NotFound)
    }

    /// Paths that differ from the base, with git's letter.
    pub fn diff(&self, name: &str) -> Result<Vec<(char, String)>, Refusal> {
        let sandbox = self.sandboxes.get(name).ok_or(Refusal::NotFound)?;
        let mut out = Vec::new();
        for (path, content) in &sandbox.files {
            match sandbox.base.get(path) {
                None => out.push(('A', path.clone())),
                Some(old) if old != content => out.push(('M', path.clone())),
                Some(_) => {}
            }
        }
        let gone = sandbox.base.keys().filter(|path| !sandbox.files.contains_key(*path));
        out.extend(gone.map(|path| ('D', path.clone())));
        out.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_sees_what_its_parent_saw_and_stays() {
        let mut world = World::default();
        world.reality.insert("f".into(), "0".into());
        world.fork(None, "a", &Policy::default()).expect("a is new");
        world.write("a", "f", Some("1")).expect("a exists");
        world.fork(Some("a"), "b", &Policy::default()).expect("b is new");
        world.write("a", "f", None).expect("a exists");
        assert_eq!(world.sandboxes["b"].files["f"], "1");
        assert_eq!(world.diff("a"), Ok(vec![('D', "f".into())]));
        assert_eq!(world.diff("b"), Ok(vec![]));
        assert_eq!(world.fork(Some("zz"), "c", &Policy::default()), Err(Refusal::NotFound));
    }
}
