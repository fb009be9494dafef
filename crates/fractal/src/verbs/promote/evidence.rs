//! What is signed of a promotion: from what, by which commands, under which
//! policy, and what the checks said.

use crate::attest::{self, Facts, Subject};
use crate::{Caller, Engine};
use fractal_model::{CheckReport, Id, Record, Result};
use fractal_store::{Reads, SandboxRow};
use serde_json::{Value, json};

/// Records that are searched for what was run.
const COMMANDS_MAX: u64 = 1_000;

/// What is known of a promotion before it is carried out.
pub fn facts(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    stage: &str,
    checks: &[CheckReport],
) -> Result<Facts> {
    let runs: Vec<Value> = (engine.store.journal(Some(row.id), COMMANDS_MAX)?.into_iter().rev())
        .filter(|record| record.body.action == "run")
        .map(|record| {
            let detail = record.body.detail;
            json!({ "command": detail["command"], "exit": detail["exit"], "tier": detail["tier"] })
        })
        .collect();
    let checks: Vec<Value> = (checks.iter())
        .map(|check| json!({ "name": check.name, "result": check.result, "exit": check.exit }))
        .collect();
    let name = row.directory.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Facts {
        stage: stage.to_owned(),
        name: name.unwrap_or_else(|| "/".to_owned()),
        parameters: json!({
            "sandbox": row.id, "name": row.name, "who": caller.who,
            "runs": runs, "policy": row.policy, "checks": checks,
        }),
        base: json!({
            "name": if row.base.is_some() { "layer" } else { "live host" },
            "annotations": { "layer": row.base, "forked_ns": row.fork_ctime_ns },
        }),
    })
}

/// What to tell where a write into reality could not be signed.
pub fn missing(engine: &Engine, promotion: Id) -> Result<Option<String>> {
    let subject = Subject::Written(String::new());
    let told = "there is no attestation: it could not be written (`fractal doctor`)".to_owned();
    Ok((!attest::exists(engine, promotion, &subject)).then_some(told))
}

/// What came into a sandbox's layers, or on a branch, about to be recorded.
pub struct Landed {
    pub promotion: Id,
    pub subject: Subject,
    pub facts: Facts,
}

impl Landed {
    /// Signs it; to be called where its record was just written.
    pub fn sign(&self, engine: &Engine, record: &Record) {
        // What keeps it from being signed does not keep it from landing.
        let _ = attest::write(engine, self.promotion, &self.subject, record, &self.facts);
    }
}
