//! Promoting along a line of stages.
//!
//! Every change enters at the first stage. What stands in a stage moves on as
//! a whole, and only one stage at a time: `--to` is that, repeated, until the
//! stage is reached or one refuses. A stage that refuses leaves itself and all
//! that follow as they were.

mod gate;
mod land;
mod publish;
mod source;
mod step;

pub use gate::{frozen, tally};
pub use step::Step;

use super::REALITY;
use crate::config::Line;
use crate::stages::{self, is_stage};
use crate::{Caller, Engine};
use fractal_model::{Error, Form, Promote, PromoteReply, Result, Scope, StageKind, Verdict, Vote};
use fractal_store::{Reads, SandboxRow};
use source::Source;

/// Promotes along the project's stages; `None` where there are none, or where
/// the sandbox goes another way.
pub fn promote(engine: &Engine, caller: &Caller, asked: &Promote) -> Result<Option<PromoteReply>> {
    let Some((line, source)) = find(engine, caller, asked.sandbox.as_deref())? else {
        return Ok(None);
    };
    // A patch or a commit is for somebody else to apply: it changes no stage.
    if asked.form != Form::Files || goes_to_parent(engine, &source, asked.to.as_deref())? {
        return Ok(None);
    }
    let first = source.stage.map_or(0, |at| at + 1);
    if source.stage.is_some() && !asked.only.is_empty() {
        return Err(Error::invalid("what stands in a stage moves on as a whole")
            .hint("`--only` chooses what of a sandbox comes into the first one"));
    }
    let last = goal(&line, source.stage, asked.to.as_deref())?;
    walk(engine, caller, &line, source, asked, first..=last).map(Some)
}

/// The stages of a sandbox or stage, and where in them it is.
fn find(
    engine: &Engine,
    caller: &Caller,
    selector: Option<&str>,
) -> Result<Option<(Line, Source)>> {
    // Who has one sandbox names forks of it, however these are called.
    let names_stages = !matches!(caller.reach.scope, Scope::Sandbox(_));
    if let (Some(name), Some(line), true) = (selector, caller.config.line(), names_stages)
        && let Some(at) = line.position(name)
    {
        let row = stages::settled(engine, caller, &line, at)?.0;
        return Ok(Some((line, Source { row, stage: Some(at) })));
    }
    let row = engine.find(caller, selector)?;
    let Some(line) = stages::line_of(caller, &row.directory)? else { return Ok(None) };
    let is_row = |at: &usize| stages::row_name(&line, *at) == row.name;
    let stage = (0..line.stages.len()).find(is_row).filter(|_| is_stage(&row));
    if is_stage(&row) && stage.is_none() {
        return Err(Error::invalid(format!("`{}` is no longer in the line", row.name))
            .hint(format!("the stages are {}", line.names())));
    }
    Ok(Some((line, Source { row, stage })))
}

/// A child of a sandbox goes into its parent, unless a stage is named.
fn goes_to_parent(engine: &Engine, source: &Source, to: Option<&str>) -> Result<bool> {
    let parent = source.row.parent.map_or(Ok(None), |parent| engine.store.sandbox(parent))?;
    let is_plain = |parent: &SandboxRow| source.stage.is_none() && !is_stage(parent);
    Ok(parent.filter(is_plain).is_some_and(|parent| to.is_none_or(|to| to == parent.name)))
}

/// The last stage to come into.
fn goal(line: &Line, stands_in: Option<usize>, to: Option<&str>) -> Result<usize> {
    let first = stands_in.map_or(0, |at| at + 1);
    let name = |at: usize| line.stages[at].name.as_str();
    let is_reality = |at: &usize| line.stages[*at].kind == StageKind::Reality;
    let wanted = match to {
        None if first < line.stages.len() => return Ok(first),
        None => {
            return Err(Error::invalid(format!("`{}` is the last stage", name(first - 1)))
                .hint("`fractal stages` shows what stands where"));
        }
        Some(REALITY) => (0..line.stages.len()).find(is_reality).ok_or_else(|| {
            Error::denied("this project has stages, and its directory is none of them")
                .hint(format!("promote with `--to STAGE`: {}", line.names()))
        })?,
        Some(to) => line.position(to).ok_or_else(|| {
            Error::not_found(format!("there is no stage `{}`", to.escape_debug()))
                .hint(format!("the stages are {}", line.names()))
        })?,
    };
    match stands_in {
        Some(at) if wanted <= at => {
            let message = format!("`{}` does not come after `{}`", name(wanted), name(at));
            Err(Error::invalid(message).hint(format!("the order is {}", line.names())))
        }
        _ => Ok(wanted),
    }
}

fn walk(
    engine: &Engine,
    caller: &Caller,
    line: &Line,
    mut source: Source,
    asked: &Promote,
    stages: std::ops::RangeInclusive<usize>,
) -> Result<PromoteReply> {
    let mut passed: Vec<String> = Vec::new();
    let mut latest: Option<PromoteReply> = None;
    for at in stages {
        let reply = Step::new(engine, caller, line, at, source, asked)?.take()?;
        let goes_on = matches!(reply.verdict, Verdict::Applied | Verdict::Nothing);
        // A stage that had it already says nothing new.
        if reply.verdict != Verdict::Nothing || latest.is_none() {
            let before = latest.replace(reply).filter(is_applied);
            passed.extend(before.map(|before| before.stage));
        }
        if !goes_on {
            break;
        }
        let row = stages::settled(engine, caller, line, at)?.0;
        source = Source { row, stage: Some(at) };
    }
    let mut reply = latest.ok_or_else(|| Error::internal("a walk without a step"))?;
    if !passed.is_empty() {
        reply.notes.push(format!("came through {}", passed.join(", ")));
    }
    Ok(reply)
}

fn is_applied(reply: &PromoteReply) -> bool {
    reply.verdict == Verdict::Applied
}

/// What a vote is about: the step that it would let pass.
pub fn candidate<'a>(engine: &'a Engine, caller: &'a Caller, vote: &Vote) -> Result<Step<'a>> {
    let no_stages = || {
        Error::invalid("this project has no stages, so there is nothing to approve")
            .hint("write some as [[stage]] in its fractal.toml")
    };
    let named = vote.stage.as_deref();
    let (line, source) = match (&vote.sandbox, named) {
        (None, Some(stage)) => {
            let line = caller.config.line().ok_or_else(no_stages)?;
            let at = goal(&line, None, Some(stage))?;
            before(engine, caller, line, at)?
        }
        (None, None) => {
            let line = caller.config.line().ok_or_else(no_stages)?;
            let at = awaits(engine, caller, &line)?;
            before(engine, caller, line, at)?
        }
        (Some(_), _) => find(engine, caller, vote.sandbox.as_deref())?.ok_or_else(no_stages)?,
    };
    let next = source.stage.map_or(0, |at| at + 1);
    let wanted = goal(&line, source.stage, named)?;
    if wanted != next {
        let message = format!(
            "`{}` goes into `{}` next, not into `{}`",
            source.name(&line),
            line.stages[next].name,
            line.stages[wanted].name
        );
        return Err(Error::invalid(message).hint(format!(
            "name what stands before it: `--stage {}` alone",
            line.stages[wanted].name
        )));
    }
    let asked = Promote { allow_autorun: true, dry_run: true, ..Promote::default() };
    Step::new(engine, caller, &line, next, source, &asked)
}

/// What stands before a stage: the stage before, or the latest sandbox.
fn before(engine: &Engine, caller: &Caller, line: Line, at: usize) -> Result<(Line, Source)> {
    let source = match at.checked_sub(1) {
        Some(before) => {
            let row = stages::settled(engine, caller, &line, before)?.0;
            Source { row, stage: Some(before) }
        }
        None => Source { row: engine.find(caller, None)?, stage: None },
    };
    Ok((line, source))
}

/// The one stage that something waits before.
fn awaits(engine: &Engine, caller: &Caller, line: &Line) -> Result<usize> {
    let report = super::super::stages::stages(engine, caller)?;
    let waiting = |at: &usize| {
        let stage = &report.stages[*at];
        stage.approve > 0 && (stage.pending.is_some() || stage.refused.is_some())
    };
    let list: Vec<usize> = (0..line.stages.len()).filter(waiting).collect();
    match list.as_slice() {
        [one] => Ok(*one),
        [] => Err(Error::not_found("nothing waits for an approval")
            .hint("`fractal stages` shows what stands where; name a sandbox or `--stage NAME`")),
        many => {
            let names: Vec<&str> = many.iter().map(|at| line.stages[*at].name.as_str()).collect();
            Err(Error::invalid(format!("something waits before {}", names.join(" and before ")))
                .hint("name one with `--stage NAME`"))
        }
    }
}
