//! The last resort's plan: no namespaces, landlock and seccomp around a copy.
//!
//! The copy stands in the top layer before a plan is made; what is left to do
//! is scratch space and saying what no fence separates.

use super::abs;
use crate::JailError;
use crate::copied::scratch;
use crate::landlock::Rules;
use crate::seccomp::{self, Copied};
use crate::spec::Spec;
use crate::step::Step;
use fractal_model::{Network, Tier};

pub(super) fn steps(spec: &Spec) -> Result<Vec<Step>, JailError> {
    crate::copied::check(spec)?;
    let Some(scratch) = scratch(spec) else { return Ok(Vec::new()) };
    let dirs = [scratch.clone(), scratch.join("home"), scratch.join("tmp")];
    dirs.iter().map(|dir| Ok(Step::MakeDir { path: abs(dir)?, mode: 0o700, owner: None })).collect()
}

/// What the filter must know; none in other tiers.
pub(super) fn filter(spec: &Spec, landlock: &Rules) -> Option<Copied> {
    (spec.tier == Tier::Copied)
        .then_some(Copied { network: spec.network == Network::Host, landlock: landlock.version })
}

/// What namespaces would have kept apart.
pub(super) fn missing(spec: &Spec, landlock: &Rules) -> Vec<String> {
    let mut list = vec![
        "mount namespace: the project is a copy at another path".to_owned(),
        "pid namespace: other processes are visible".to_owned(),
        "ipc namespace: shared memory is refused".to_owned(),
    ];
    if spec.network != Network::Host {
        list.push("network namespace: sockets are refused".to_owned());
    }
    if landlock.version < 2 {
        list.push("landlock 2: nothing moves between directories".to_owned());
    }
    if landlock.version < seccomp::copied::LANDLOCK_SCOPES {
        list.push("landlock 6: init judges each signal".to_owned());
    }
    list
}
