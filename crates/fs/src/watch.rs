//! Being told that a view changed, and acting only while something holds.
//!
//! Both are for what stands between a view and others who have their own idea
//! of it: a kernel that caches what it was told, a name that may lead to
//! something else by now.

use crate::entry::number;
use crate::error::Kind;
use crate::source::{Answers, Stop};
use crate::view::{State, Vfs};
use crate::walk::{Last, Reached};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

type Tell = dyn Fn() + Send + Sync;

/// Who wants to know of changes.
#[derive(Default)]
pub(crate) struct Watchers {
    any: AtomicBool,
    all: Mutex<Vec<(u64, Weak<Tell>)>>,
}

/// A path that must lead to an inode.
#[derive(Clone)]
pub(crate) struct Given {
    path: Box<[u8]>,
    inode: u64,
}

impl Watchers {
    /// Tells all but the one whose doing it was. No lock of the view is held.
    pub(crate) fn tell(&self, by: u64) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, tell)| tell.strong_count() > 0);
        self.any.store(!all.is_empty(), Ordering::Release);
        let others = all.iter().filter(|(id, _)| *id != by);
        let others: Vec<_> = others.filter_map(|(_, tell)| tell.upgrade()).collect();
        drop(all);
        others.iter().for_each(|tell| tell());
    }
}

impl Vfs {
    /// Calls `tell` after every change, for as long as it lives, unless the
    /// change came through the handle that is returned. It is called in the
    /// middle of whoever makes the change, so it only takes a note.
    pub fn watched(&self, tell: &Arc<Tell>) -> Vfs {
        let by = number();
        let mut all = self.watchers().all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((by, Arc::downgrade(tell)));
        self.watchers().any.store(true, Ordering::Release);
        drop(all);
        Vfs { by, ..self.clone() }
    }

    /// A handle whose operations are refused as [`Kind::Changed`] unless each
    /// of the paths leads to its inode, looked at under the operation's own
    /// lock: whoever knows an entry by its inode reaches that one or none.
    /// What was given to this handle goes on to hold.
    pub fn given<'a>(&self, holds: impl IntoIterator<Item = (&'a [u8], u64)>) -> Vfs {
        let before = self.given.iter().flat_map(|given| given.iter().cloned());
        let holds = holds.into_iter().map(|(path, inode)| Given { path: path.into(), inode });
        Vfs { given: Some(before.chain(holds).collect()), ..self.clone() }
    }

    pub(crate) fn check_given(&self, state: &State, answers: &Answers) -> Result<(), Stop> {
        let Some(given) = &self.given else { return Ok(()) };
        given.iter().try_for_each(|given| given.check(state, answers))
    }
}

impl Given {
    fn check(&self, state: &State, answers: &Answers) -> Result<(), Stop> {
        let found = match state.find(&self.path, Last::Keep, answers) {
            Err(Stop::Fault(_)) => return Err(Kind::Changed.into()),
            found => found?,
        };
        let inode = match found.entry {
            Some(Reached::Dir(dir)) => dir.inode,
            Some(Reached::File(file)) => file.inode,
            Some(Reached::Link(link)) => link.inode,
            None => return Err(Kind::Changed.into()),
        };
        if inode == self.inode { Ok(()) } else { Err(Kind::Changed.into()) }
    }
}
