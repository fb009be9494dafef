//! Namespaces made ahead of the runs that need them.
//!
//! A process that has run something will likely run more. So while one run is
//! under way, a thread makes the user and network namespaces of the next; a
//! run that finds none ready lets its monitor make them, as the first one
//! does. They are fresh and given out once: no two runs ever share one.

use crate::child::{make_user_namespace, new_network};
use crate::plan::{self, Mapping, Plan};
use crate::run::own;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

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

/// Takes namespaces for a plan, if it needs both and some are ready.
pub fn take(plan: &Plan) -> Option<Spare> {
    plan.network.as_ref()?;
    let mut shelf = SHELF.lock().ok()?;
    let ready = &mut shelf.get_or_insert_default().ready;
    ready.retain(|spare| spare.maker == std::process::id() && spare.mapping == plan.mapping);
    ready.pop()
}

/// Makes namespaces for the next run, unless this one is the first and may be
/// the only one. Called when the program starts: while a sandbox is built, the
/// kernel would let it wait for us (`umount` waits for all processors, and
/// making a network does not let go of one).
pub fn refill(mapping: Mapping) {
    let Ok(mut shelf) = SHELF.lock() else { return };
    let shelf = shelf.get_or_insert_default();
    if !std::mem::replace(&mut shelf.warm, true) || shelf.ready.len() + shelf.making >= READY_MAX {
        return;
    }
    let started = std::thread::Builder::new()
        .name("fractal-spare".to_owned())
        .stack_size(64 * 1024)
        .spawn(move || {
            let made = make(mapping);
            if let Ok(mut shelf) = SHELF.lock() {
                let shelf = shelf.get_or_insert_default();
                shelf.making = shelf.making.saturating_sub(1);
                shelf.ready.extend(made);
            }
        });
    shelf.making += usize::from(started.is_ok());
}

/// Leaves the network of the host for good, so it has a thread to itself.
fn make(mapping: Mapping) -> Option<Spare> {
    let user = make_user_namespace(mapping).map(own).ok()?;
    let network = new_network(&plan::new_network().ok()?).map(own).ok()?;
    Some(Spare::new(user, network, mapping))
}
