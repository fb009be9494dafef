//! `stages`: where everything stands, and on what evidence. Read from the
//! journal and the rows alone; nothing is made by looking.

use super::promote::stage::{frozen, tally};
use crate::config::{Line, Stage};
use crate::stages;
use crate::stages::history::{History, Landing};
use crate::{Caller, Engine};
use fractal_model::{Error, Pending, Result, Scope, StageReport, StagesReply, format_iso_ms};
use fractal_store::now_ms;
use std::collections::BTreeSet;

pub fn stages(engine: &Engine, caller: &Caller) -> Result<StagesReply> {
    // Who sees a part of the sandboxes does not see what all of them became.
    let line = caller.config.line().filter(|_| caller.reach.scope == Scope::All);
    let line = line.ok_or_else(|| {
        Error::not_found("this project has no stages but its directory").hint(
            "write some as [[stage]] in its fractal.toml; `fractal help` and the guide say how",
        )
    })?;
    let mut reports = Vec::new();
    let mut before: Option<(&Stage, History)> = None;
    for (at, stage) in line.stages.iter().enumerate() {
        let (name, history) = read(engine, caller, &line, at)?;
        reports.push(report(stage, name, &history, before.as_ref()));
        before = Some((stage, history));
    }
    Ok(StagesReply { stages: reports })
}

fn read(
    engine: &Engine,
    caller: &Caller,
    line: &Line,
    at: usize,
) -> Result<(Option<String>, History)> {
    match stages::find(engine, caller, line, at)? {
        None => Ok((None, History::default())),
        Some(row) => Ok((Some(row.name.clone()), stages::history(engine, &row)?)),
    }
}

fn report(
    stage: &Stage,
    sandbox: Option<String>,
    history: &History,
    before: Option<&(&Stage, History)>,
) -> StageReport {
    let stands = history.stands();
    let carries = stands.and_then(|landing| landing.arrival.carries);
    let waiting = before.map(|(_, before)| before.not_carried(carries)).unwrap_or_default();
    let (digest, authors) = judged(history, &waiting);
    let said = tally(&history.votes, &digest, &authors);
    StageReport {
        name: stage.name.clone(),
        kind: stage.kind.clone(),
        sandbox,
        stands: stands.map(Landing::shown),
        pending: before.and_then(|(before, _)| pending(stage, before, &waiting)),
        refused: history.refused.as_ref().map(Landing::shown),
        checks: stage.checks.iter().map(|check| check.name.clone()).collect(),
        approve: stage.approve,
        approvals: said.approvals,
        rejected_by: said.rejected_by,
        frozen_until: frozen(stage, now_ms()).map(|(_, until)| format_iso_ms(until)),
    }
}

/// What was last judged before a stage, and who made it. What stands there
/// already is no longer a question.
fn judged(history: &History, waiting: &[&Landing]) -> (String, BTreeSet<String>) {
    let stands = history.stands().map(|landing| landing.arrival.digest.as_str());
    let refused = history.refused.as_ref();
    let digest = history
        .votes
        .last()
        .map(|vote| vote.digest.as_str())
        .or_else(|| refused.map(|landing| landing.arrival.digest.as_str()))
        .filter(|digest| Some(*digest) != stands);
    let made = waiting.iter().copied().chain(refused);
    let authors = made.flat_map(|landing| landing.arrival.authors.clone()).collect();
    (digest.unwrap_or_default().to_owned(), authors)
}

fn pending(stage: &Stage, before: &Stage, waiting: &[&Landing]) -> Option<Pending> {
    let newest = waiting.last()?;
    let until = stage.wait_ms.map(|wait_ms| newest.at_ms.saturating_add(wait_ms));
    Some(Pending {
        from: before.name.clone(),
        promotions: waiting.len() as u64,
        since: format_iso_ms(newest.at_ms),
        waits_until: until.filter(|until| *until > now_ms()).map(format_iso_ms),
    })
}
