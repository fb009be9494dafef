//! `fractal doctor`: is this machine able, is the state directory sound?

use crate::apply::holders;
use fractal_jail::probe::{self, Probe};
use fractal_model::{Error, Id, Result, Tier};
use fractal_store::{Problem, Reads, Store};
use serde::Serialize;
use std::path::Path;

/// One thing wrong with (or repaired in) the state directory.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// What an examination found.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The strongest tier that works, if any.
    pub tier: Option<Tier>,
    /// Each probe of the machine.
    pub probes: Vec<Probe>,
    /// Problems of the state directory.
    pub state: Vec<Finding>,
    /// What a repair did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
}

impl Diagnosis {
    /// Looks at the machine and at a state directory.
    pub fn examine(home: &Path) -> Diagnosis {
        let (state, usable) = match Store::open(home) {
            Ok(store) => (problems(&store), true),
            Err(error) => {
                let error = Error::from(error);
                (vec![Finding { text: error.message, fix: error.hint }], false)
            }
        };
        if !usable {
            return Diagnosis { tier: None, probes: Vec::new(), state, repaired: Vec::new() };
        }
        let probes = probe::probes(home);
        let works = |tier: &Tier| {
            probes
                .iter()
                .any(|probe| probe.ok && probe.name == format!("isolation {}", tier.name()))
        };
        let tier = Tier::LADDER.into_iter().find(works);
        Diagnosis { tier, probes, state, repaired: Vec::new() }
    }

    /// Repairs the state directory, losing nothing, then examines it again.
    pub fn repair(home: &Path) -> Result<Diagnosis> {
        let repair = Store::repair(home)?;
        let mut repaired = Vec::new();
        if let Some(path) = &repair.moved_aside {
            repaired.push(format!("moved the damaged state.db to {}", path.display()));
        }
        if repair.records > 0 || repair.records_salvaged > 0 {
            repaired.push(format!(
                "kept {} records of the journal, put {} aside",
                repair.records, repair.records_salvaged
            ));
        }
        if repair.lossy {
            repaired.push("some rows could not be read; the layers they named are kept".to_owned());
        }
        let mut diagnosis = Diagnosis::examine(home);
        diagnosis.repaired = repaired;
        Ok(diagnosis)
    }

    /// Whether runs are possible.
    pub fn is_able(&self) -> bool {
        self.tier.is_some()
    }
}

fn problems(store: &Store) -> Vec<Finding> {
    match store.verify() {
        Ok(problems) => problems
            .iter()
            .map(|problem| Finding { text: problem.to_string(), fix: Some(fix(store, problem)) })
            .collect(),
        Err(error) => vec![Finding {
            text: error.to_string(),
            fix: Some("fractal doctor --repair".to_owned()),
        }],
    }
}

fn fix(store: &Store, problem: &Problem) -> String {
    match problem {
        Problem::Unfinished { apply, root } => finishing(store, *apply).unwrap_or_else(|| {
            format!(
                "make {} writable: the next command finishes it. If it is gone for good: \
                 fractal gc --undo 1s",
                root.display()
            )
        }),
        // Nothing can bring it back; the promotion stays, it cannot be undone.
        Problem::UndoDirectory { .. } => "fractal gc --undo 1s".to_owned(),
        _ => "fractal doctor --repair".to_owned(),
    }
}

/// What brings a promotion to its end whose directory is elsewhere.
fn finishing(store: &Store, promotion: Id) -> Option<String> {
    let row = store.applies().ok()?.into_iter().find(|row| row.id == promotion)?;
    let dir = holders::elsewhere(store, &row)?;
    Some(holders::way_out(&row, &dir))
}
