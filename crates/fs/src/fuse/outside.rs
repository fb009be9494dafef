//! Telling the kernel what changed behind its back.
//!
//! The kernel may remember what it was told for an hour, because it makes
//! nearly all changes itself. Whoever else writes into the view rings here;
//! a thread of its own then compares what the kernel was told with what is,
//! and has it forget the rest. It works on what the kernel knows, not on the
//! whole view, and once for many changes in a row.

use super::server::live;
use super::table::{Known, Place, Table, Told};
use crate::Vfs;
use crate::error::Kind;
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long further changes are waited for, at least.
const GATHER: Duration = Duration::from_millis(1);

/// How much longer than a look took nobody looks again: with much to look at,
/// changes that never end must not take a processor for themselves.
const REST: u32 = 4;

/// How long an answer that was begun before a change is waited for. One that
/// takes longer waits for a source, and is not remembered by the kernel.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Outside {
    bell: Mutex<Bell>,
    rang: Condvar,
    done: Condvar,
    /// The same number as in the bell, to be looked at without its lock.
    changes: AtomicU64,
    /// Answers under way, by the turn in which they began.
    answering: [AtomicU64; 2],
    turn: AtomicU64,
}

#[derive(Default)]
struct Bell {
    /// How many changes there were, and how many the kernel knows of.
    rang: u64,
    told: u64,
    /// How many wait for it.
    waiting: u32,
    ended: bool,
}

/// An answer under way.
pub(crate) struct Answering<'a> {
    outside: &'a Outside,
    turn: usize,
    /// How many changes there were when it began.
    changes: u64,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.outside.answering[self.turn].fetch_sub(1, Ordering::SeqCst);
    }
}

impl Answering<'_> {
    /// Whether nothing has changed from outside since it began.
    pub(crate) fn holds(&self) -> bool {
        self.outside.changes.load(Ordering::SeqCst) == self.changes
    }
}

impl Outside {
    fn bell(&self) -> MutexGuard<'_, Bell> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something changed.
    pub(crate) fn ring(&self) {
        let mut bell = self.bell();
        bell.rang += 1;
        self.changes.store(bell.rang, Ordering::SeqCst);
        self.rang.notify_one();
    }

    /// Lets the thread end.
    pub(crate) fn end(&self) {
        self.bell().ended = true;
        self.rang.notify_all();
        self.done.notify_all();
    }

    /// Waits until the kernel knows of everything that changed until now.
    pub(crate) fn sync(&self) {
        let mut bell = self.bell();
        let wanted = bell.rang;
        bell.waiting += 1;
        self.rang.notify_one();
        while bell.told < wanted && !bell.ended {
            bell = self.done.wait(bell).unwrap_or_else(PoisonError::into_inner);
        }
        bell.waiting -= 1;
    }

    /// Begins an answer that the kernel may remember.
    pub(crate) fn answering(&self) -> Answering<'_> {
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            let slot = (turn % 2) as usize;
            self.answering[slot].fetch_add(1, Ordering::SeqCst);
            // The turn must not have changed before we were counted.
            if self.turn.load(Ordering::SeqCst) == turn {
                let changes = self.changes.load(Ordering::SeqCst);
                return Answering { outside: self, turn: slot, changes };
            }
            self.answering[slot].fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits for the answers that began before now.
    fn let_answers_end(&self) {
        let before = (self.turn.fetch_add(1, Ordering::SeqCst) % 2) as usize;
        let since = Instant::now();
        while self.answering[before].load(Ordering::SeqCst) > 0 && since.elapsed() < ANSWER_WAIT {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The thread's work, until the end.
    pub(crate) fn serve(&self, view: &Vfs, table: &Table, kernel: &Notifier) {
        let mut rest = GATHER;
        while let Some(rang) = self.wait(rest) {
            let since = Instant::now();
            self.let_answers_end();
            for known in table.known() {
                check(&known, view, table, kernel);
            }
            self.bell().told = rang;
            self.done.notify_all();
            rest = GATHER.max(since.elapsed() * REST);
        }
    }

    /// Waits for a change and then for more, unless somebody is waiting. How
    /// many there were; nothing at the end.
    fn wait(&self, rest: Duration) -> Option<u64> {
        let idle = |bell: &mut Bell| bell.rang == bell.told && !bell.ended;
        let bell = self.rang.wait_while(self.bell(), idle).unwrap_or_else(PoisonError::into_inner);
        let nobody = |bell: &mut Bell| bell.waiting == 0 && !bell.ended;
        let rested = self.rang.wait_timeout_while(bell, rest, nobody);
        let (bell, _) = rested.unwrap_or_else(PoisonError::into_inner);
        (!bell.ended).then_some(bell.rang)
    }
}

/// Has the kernel forget what is no longer so. That it cannot be told means
/// that it has forgotten already, or that the mount is gone.
fn check(known: &Known, view: &Vfs, table: &Table, kernel: &Notifier) {
    let mut changed = known.inode == super::table::ROOT;
    // What a live source said is not remembered for long anyway.
    let ours = |(_, path): &&(Place, Vec<u8>)| live(view, path).is_none();
    for (place, path) in known.names.iter().filter(ours) {
        let forget = || kernel.inval_entry(INodeNo(place.0), OsStr::from_bytes(place.1.bytes()));
        match view.lstat_known(path) {
            Ok(stat) if stat.inode == known.inode => changed |= Told::of(&stat) != known.told,
            // A source that cannot say now will be asked again.
            Err(error) if matches!(error.kind, Kind::Source | Kind::Timeout) => {
                forget().unwrap_or_default();
            }
            _ => {
                changed = true;
                table.unnamed(known.inode, place);
                forget().unwrap_or_default();
            }
        }
    }
    if changed {
        kernel.inval_inode(INodeNo(known.inode), 0, -1).unwrap_or_default();
    }
    for (place, path) in known.missing.iter().filter(ours) {
        if view.lstat_known(path).is_ok() {
            table.present(place);
            let name = OsStr::from_bytes(place.1.bytes());
            kernel.inval_entry(INodeNo(place.0), name).unwrap_or_default();
        }
    }
}
