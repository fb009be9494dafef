//! The publish command of a stage: it runs on the host, as the caller, when
//! all that came in stands.
//!
//! That it began is written down before it begins. Should we die meanwhile, it
//! ends with us, the journal says so, and what stands in the stage counts as
//! unpublished until somebody promotes again.

use super::step::{Step, Weighed};
use crate::record;
use crate::stages::history::Landing;
use fractal_jail::trusted;
use fractal_model::{
    CheckReport, CheckResult, Error, PromoteReply, Result, Verdict, format_duration_ms,
};
use fractal_store::new_id;
use serde_json::json;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// Bytes of its output that stand in the reply.
const TAIL_BYTES: usize = 4096;

/// Exit status of one that could not be started, as shells say it.
const NOT_STARTED: i32 = 126;

/// How it ended.
struct Ended {
    exit: i32,
    output: String,
    why: Option<String>,
}

impl Step<'_> {
    /// Publishes what came in before and was not published, say after a crash.
    pub(super) fn publish_again(
        &self,
        weighed: &Weighed,
        landing: &Landing,
    ) -> Result<PromoteReply> {
        let mut progress = self.progress(weighed, Vec::new());
        let report = self.publish(landing)?;
        let verdict = match report.as_ref().is_some_and(CheckReport::rules_out) {
            true => Verdict::Gate,
            false => Verdict::Nothing,
        };
        progress.checks.extend(report);
        progress.notes.push(match verdict {
            Verdict::Gate => format!("it still stands in `{}`, unpublished", self.stage().name),
            _ => format!("what stands in `{}` was published", self.stage().name),
        });
        Ok(self.named(progress.reply(verdict, None, None)))
    }

    /// Runs the stage's publish command as the caller; `None` without one.
    pub(super) fn publish(&self, landing: &Landing) -> Result<Option<CheckReport>> {
        let Some(command) = &self.stage().publish else { return Ok(None) };
        let (start, id) = (Instant::now(), new_id());
        let mut body = record(self.caller, "publish", Some(&self.row));
        body.detail = json!({
            "promotion": landing.arrival.promotion, "stage": self.stage().name,
            "command": [command], "outcome": "lost",
        });
        // Should we die, the next command knows that it was cut short.
        let begun = self.engine.store.begin(id, body);
        let Ended { exit, output, why } = match &begun {
            Ok(_) => self.call(command, landing),
            Err(error) => Ended { exit: NOT_STARTED, output: error.to_string(), why: None },
        };
        let mut body = record(self.caller, "publish", Some(&self.row));
        body.detail = json!({
            "promotion": landing.arrival.promotion, "stage": self.stage().name,
            "command": [command], "exit": exit, "begun": id,
        });
        self.engine.store.transact(|tx| tx.append(body))?;
        let passed = exit == 0;
        Ok(Some(CheckReport {
            name: "publish".to_owned(),
            result: if passed { CheckResult::Pass } else { CheckResult::Fail },
            required: true,
            exit,
            why: (!passed).then(|| why.unwrap_or_else(|| format!("exit {exit}"))),
            output: if passed { String::new() } else { output },
            wall_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))
    }

    fn call(&self, command: &str, landing: &Landing) -> Ended {
        let (environment, time_ms) = (self.environment(landing), self.stage().publish_ms);
        let time = Duration::from_millis(time_ms);
        match trusted::shell_within(command, &environment, &self.line.root, time) {
            Ok(Some(answer)) => {
                let limit = || format!("ended after {}", format_duration_ms(time_ms));
                let why = answer.out_of_time.then(limit);
                let output = tail(&[answer.output, answer.errors].concat());
                Ended { exit: answer.status, output, why }
            }
            Ok(None) => Ended { exit: 127, output: "there is no sh".to_owned(), why: None },
            Err(error) => {
                Ended { exit: NOT_STARTED, output: Error::from(error).message, why: None }
            }
        }
    }

    fn environment(&self, landing: &Landing) -> Vec<(OsString, OsString)> {
        let arrival = &landing.arrival;
        let mut all = self.caller.environment.clone();
        let mut set = |name: &str, value: Option<OsString>| {
            all.extend(value.map(|value| (OsString::from(name), value)));
        };
        set("FRACTAL_STAGE", Some(arrival.stage.clone().into()));
        set("FRACTAL_PROMOTION", arrival.promotion.map(|id| id.to_string().into()));
        set("FRACTAL_FROM", Some(arrival.from.clone().into()));
        set("FRACTAL_COMMIT", arrival.commit.clone().map(OsString::from));
        set("FRACTAL_DIRECTORY", self.directory.clone().map(OsString::from));
        all
    }
}

fn tail(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
}
