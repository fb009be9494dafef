//! Namespaces made ahead of the runs that need them.
//!
//! A process that has run something will likely run more. So while one run is
//! under way, a thread makes the user and network namespaces of the next; and
//! who knows early that there will be a run says so with [`prepare`]. A run
//! that finds none lets its monitor make them. They are fresh and given out
//! once: no two runs ever share one.

use crate::child::{make_user_namespace, new_network};
use crate::plan::{self, Mapping, Plan};
use crate::run::own;
use fractal_model::Tier;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Enough for a few runs at once; each keeps some 200 KiB of the kernel's.
const READY_MAX: usize = 4;

/// The namespaces of one run to come.
pub struct Spare {
    user: OwnedFd,
    network: OwnedFd,
    mapping: Mapping,
    /// A process that was forked from the maker must not use them too.
    maker: u32,
}

impl Spare {
    pub fn new(user: OwnedFd, network: OwnedFd, mapping: Mapping) -> Spare {
        Spare { user, network, mapping, maker: std::process::id() }
    }

    /// User and network.
    pub fn raw(&self) -> (RawFd, RawFd) {
        (self.user.as_raw_fd(), self.network.as_raw_fd())
    }
}

#[derive(Default)]
struct Shelf {
    /// Something ran in this process before.
    warm: bool,
    ready: Vec<Spare>,
    /// How many threads are at work.
    making: usize,
}

static SHELF: Mutex<Option<Shelf>> = Mutex::new(None);
static MADE: Condvar = Condvar::new();

/// Longer than it takes to make one, on a machine that is not overloaded.
const WAIT: Duration = Duration::from_millis(2);

/// Takes namespaces for a plan, if it needs both and some are ready.
pub fn take(plan: &Plan) -> Option<Spare> {
    plan.network.as_ref()?;
    let shelf = SHELF.lock().ok()?;
    // One that is nearly ready is worth waiting for.
    let is_near = |shelf: &mut Option<Shelf>| {
        shelf.as_ref().is_some_and(|shelf| shelf.ready.is_empty() && shelf.making > 0)
    };
    let (mut shelf, _) = MADE.wait_timeout_while(shelf, WAIT, is_near).ok()?;
    let ready = &mut shelf.get_or_insert_default().ready;
    ready.retain(|spare| spare.maker == std::process::id() && spare.mapping == plan.mapping);
    ready.pop()
}

/// Says that a run of this tier will follow soon.
pub fn prepare(tier: Tier) {
    let mapping = match tier {
        Tier::Clone => Mapping::Shifted,
        Tier::Masked => Mapping::Same,
        _ => return,
    };
    if let Ok(mut shelf) = SHELF.lock() {
        shelf.get_or_insert_default().make_one(mapping);
    }
}

/// Makes namespaces for the next run, unless this one is the first and may be
/// the only one. Called when the program starts: while a sandbox is built, the
/// kernel would let it wait for us (`umount` waits for all processors, and
/// making a network does not let go of one).
pub fn refill(mapping: Mapping) {
    if let Ok(mut shelf) = SHELF.lock() {
        let shelf = shelf.get_or_insert_default();
        if std::mem::replace(&mut shelf.warm, true) {
            shelf.make_one(mapping);
        }
    }
}

impl Shelf {
    fn make_one(&mut self, mapping: Mapping) {
        if self.ready.len() + self.making >= READY_MAX {
            return;
        }
        let work = move || {
            let made = make(mapping);
            if let Ok(mut shelf) = SHELF.lock() {
                let shelf = shelf.get_or_insert_default();
                shelf.making = shelf.making.saturating_sub(1);
                shelf.ready.extend(made);
                MADE.notify_all();
            }
        };
        let thread = std::thread::Builder::new().name("fractal-spare".to_owned());
        self.making += usize::from(thread.stack_size(64 * 1024).spawn(work).is_ok());
    }
}

/// Leaves the network of the host for good, so it has a thread to itself.
fn make(mapping: Mapping) -> Option<Spare> {
    let user = make_user_namespace(mapping).map(own).ok()?;
    let network = new_network(&plan::new_network().ok()?).map(own).ok()?;
    Some(Spare::new(user, network, mapping))
}
