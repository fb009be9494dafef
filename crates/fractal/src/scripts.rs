//! Scripts in memory that run in this process, so that they are ended as
//! programs are: by `stop`, by a rollback, by a drop. Those of other processes
//! are theirs to end.

use fractal_model::Id;
#[cfg(feature = "virtual")]
use fractal_shell::Canceller;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Of all engines here: two may have the same state directory open.
static LIVING: Mutex<BTreeMap<Id, Script>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Script {
    is_ended: bool,
    #[cfg(feature = "virtual")]
    canceller: Option<Canceller>,
}

fn living() -> MutexGuard<'static, BTreeMap<Id, Script>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A script, from its claim until it is written down how it ended.
pub struct Living(Id);

pub fn begin(run: Id) -> Living {
    living().insert(run, Script::default());
    Living(run)
}

impl Drop for Living {
    fn drop(&mut self) {
        living().remove(&self.0);
    }
}

/// Says how a script is stopped; false when it is to end before it begins.
#[cfg(feature = "virtual")]
pub fn may_begin(run: Id, canceller: Canceller) -> bool {
    let mut living = living();
    let Some(script) = living.get_mut(&run) else { return true };
    script.canceller = Some(canceller);
    !script.is_ended
}

/// Ends a script, without waiting; false when none of this process has this id.
/// To be told twice does no harm: one that is just beginning may not hear it.
pub fn end(run: Id) -> bool {
    let mut living = living();
    let Some(script) = living.get_mut(&run) else { return false };
    script.is_ended = true;
    #[cfg(feature = "virtual")]
    if let Some(canceller) = &script.canceller {
        canceller.cancel();
    }
    true
}

/// Whether a script was told to end.
#[cfg(feature = "virtual")]
pub fn is_ended(run: Id) -> bool {
    living().get(&run).is_some_and(|script| script.is_ended)
}
