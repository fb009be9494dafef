//! A full disk: who looks and who makes room gets on with it.
//!
//! What is set aside in the state directory is theirs alone. Everybody else is
//! told that the disk is full and what to type, and what they are told works.

use crate::{Action, Code, Engine, Result};
use fractal_model::{Verb, VolumeVerb};
use fractal_store::Store;

/// Whether an action looks or makes room, and can be done again when it was
/// stopped halfway.
fn goes_on(action: &Action) -> bool {
    match action {
        Action::Volume(verb) => {
            matches!(verb, VolumeVerb::Rm { .. } | VolumeVerb::List | VolumeVerb::Show { .. })
        }
        other => looks_or_makes_room(other.verb()),
    }
}

fn looks_or_makes_room(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::List
            | Verb::Show
            | Verb::Diff
            | Verb::Log
            | Verb::Stages
            | Verb::Audit
            | Verb::Drop
            | Verb::Gc
    )
}

impl Engine {
    /// Opens the state directory for a verb that only looks.
    pub(crate) fn ready_to_look(&self) -> Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        self.with_reserve(&|| self.open_store())?;
        match self.with_reserve(&|| self.settle_crashes()) {
            // Not even then there was room to write down what a crash left:
            // the next command tries again, and this one looks.
            Err(error) if error.code == Code::Limit => Ok(()),
            other => other,
        }
    }

    /// Carries out an action, on a full disk with what was set aside if it is
    /// one of those that may.
    pub(crate) fn on_any_disk<T>(
        &self,
        action: Action,
        job: impl Fn(Action) -> Result<T>,
    ) -> Result<T> {
        if !goes_on(&action) {
            self.ready()?;
            return job(action);
        }
        self.ready_to_look()?;
        self.with_reserve(&|| job(action.clone()))
    }

    fn with_reserve<T>(&self, job: &dyn Fn() -> Result<T>) -> Result<T> {
        let mut done = job();
        let is_full = matches!(&done, Err(error) if error.code == Code::Limit);
        let spent = is_full && Store::spend_reserve(self.home());
        if spent {
            done = job();
        }
        Store::keep_reserve(self.home(), spent);
        done
    }
}
