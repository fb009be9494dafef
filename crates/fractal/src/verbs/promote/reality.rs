//! Into reality: the machine's own files, a patch, or a commit.

use super::plan::{Against, Plan, plan};
use super::rehearse::Rehearsal;
use super::{Progress, REALITY, evidence, git, hold, inner, links, stopped, tried};
use crate::apply::{Job, apply};
use crate::verbs::diff::{self, DiffFormat};
use crate::view::path_of;
use crate::{Caller, Engine, base, stages};
use fractal_model::{
    Check, CheckReport, Code, Error, Form, Promote, PromoteReply, Result, StageKind, Verdict,
};
use fractal_store::{SandboxRow, new_id};
use std::path::PathBuf;

/// How often it is planned again when reality moves while it is written.
const TRIES: usize = 3;

pub fn promote(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
) -> Result<PromoteReply> {
    if !row.directory.is_dir() {
        return Err(Error::not_found(format!("{} is gone", row.directory.display()))
            .hint(format!("`fractal export {} -o FILE` keeps the sandbox's work", row.name)));
    }
    if let Form::Branch(name) = &asked.form {
        refuse_stage(caller, row, name)?;
    }
    // What the gate judges is what is written: nobody runs in it meanwhile.
    let _hold = hold(engine, row)?;
    let first = plan(engine, caller, row, asked, Against::Host)?;
    if let Some(reply) = before_gate(engine, caller, row, asked, &first)? {
        return Ok(reply);
    }
    let (checks, made) = gate(engine, caller, row, asked, &first)?;
    if checks.iter().any(CheckReport::rules_out) {
        return progress(row, &first, checks).refuse(engine, caller, Verdict::Gate, Code::Gate);
    }
    if asked.form != Form::Files {
        let progress = Progress { stage: &form_name(&asked.form), ..progress(row, &first, checks) };
        let mut body = progress.record(caller);
        body.detail["form"] = serde_json::json!(asked.form);
        engine.store.transact(|tx| tx.append(body))?;
        return Ok(progress.reply(Verdict::Made, None, made));
    }
    // Where nothing was checked, no time has passed.
    let first = checks.is_empty().then_some(first);
    write(engine, caller, row, asked, &checks, first)
}

/// Where something goes that is not written into reality.
fn form_name(form: &Form) -> String {
    match form {
        Form::Files => REALITY.to_owned(),
        Form::Patch => "patch".to_owned(),
        Form::Commit => "commit".to_owned(),
        Form::Branch(name) => format!("git:{name}"),
    }
}

/// A branch that is a stage has a gate of its own, which this would go around.
fn refuse_stage(caller: &Caller, row: &SandboxRow, branch: &str) -> Result<()> {
    let line = stages::line_of(caller, &row.directory)?;
    let kind = StageKind::Git(branch.to_owned());
    let stage = line.iter().flat_map(|line| &line.stages).find(|stage| stage.kind == kind);
    stage.map_or(Ok(()), |stage| {
        Err(Error::denied(format!("the branch `{branch}` is the stage `{}`", stage.name)).hint(
            format!("`fractal promote {} --to {}` goes through its gate", row.name, stage.name),
        ))
    })
}

/// Nothing to bring, something in the way, or only a rehearsal asked for.
fn before_gate(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
    plan: &Plan,
) -> Result<Option<PromoteReply>> {
    let mut progress = progress(row, plan, Vec::new());
    if asked.form == Form::Files {
        inner::refuse_staged(&row.directory, &plan.wishes)?;
    }
    if asked.dry_run {
        let names: Vec<String> =
            checks(engine, caller, row, asked, plan)?.into_iter().map(|check| check.name).collect();
        if !names.is_empty() {
            progress.notes.push(format!("checks that were not run now: {}", names.join(", ")));
        }
        let verdict =
            stopped(plan, asked.allow_autorun).map_or(Verdict::Planned, |(verdict, _)| verdict);
        return Ok(Some(progress.reply(verdict, None, None)));
    }
    if let Some((verdict, code)) = stopped(plan, asked.allow_autorun) {
        return progress.refuse(engine, caller, verdict, code).map(Some);
    }
    Ok(plan.wishes.is_empty().then(|| progress.reply(Verdict::Nothing, None, None)))
}

fn progress<'a>(row: &'a SandboxRow, plan: &'a Plan, checks: Vec<CheckReport>) -> Progress<'a> {
    Progress { row, stage: REALITY, plan, checks, notes: Vec::new(), overruled: None }
}

/// The checks on what would come out, and that as a patch or commit.
fn gate(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
    plan: &Plan,
) -> Result<(Vec<CheckReport>, Option<String>)> {
    let checks = checks(engine, caller, row, asked, plan)?;
    if checks.is_empty() && asked.form == Form::Files {
        return Ok((Vec::new(), None));
    }
    if let Form::Branch(name) = &asked.form {
        let paths: Vec<_> = plan.wishes.iter().map(|wish| &wish.path).collect();
        git::refuse_others(caller, &row.directory, name, &paths)?;
    }
    let rehearsal = Rehearsal::new(engine, caller, row, None, plan)?;
    let reports = match checks.is_empty() {
        true => Vec::new(),
        false => rehearsal.check(&checks)?,
    };
    if reports.iter().any(CheckReport::rules_out) {
        return Ok((reports, None));
    }
    let made = match &asked.form {
        Form::Files => None,
        Form::Patch => Some(patch(engine, caller, &rehearsal)?),
        form => Some(git::commit(engine, caller, row, &rehearsal, form, new_id())?.new),
    };
    Ok((reports, made))
}

/// The gate's checks, also of projects inside, those that chose it among
/// attempts, and those asked for.
/// The gate is the project's, wherever the caller stands, and only grows.
fn checks(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
    plan: &Plan,
) -> Result<Vec<Check>> {
    let mut list = stages::config_of(caller, &row.directory)?.checks();
    let inner = inner::checks(&row.directory, &plan.wishes)?;
    for check in inner.iter().chain(&tried(engine, row)?.checks).chain(&asked.checks) {
        let is_other = |other: &Check| other.name != check.name || other.command != check.command;
        if list.iter().all(is_other) {
            list.push(check.clone());
        }
    }
    Ok(list)
}

fn patch(engine: &Engine, caller: &Caller, rehearsal: &Rehearsal<'_>) -> Result<String> {
    let mut text = Vec::new();
    let name = Some(rehearsal.row.name.as_str());
    diff::write(engine, caller, name, None, DiffFormat::Patch, &mut text)?;
    String::from_utf8(text).map_err(|_| {
        Error::new(Code::Unsupported, "the patch is not UTF-8 throughout")
            .hint(format!("`fractal diff {}` writes it as it is", rehearsal.row.name))
    })
}

/// Writes; weighs once more before, where the gate took its time. That second
/// look is needed: checks may run for an hour in which others go on working,
/// and only a plan made just now knows a clash or joins their edits. What they
/// wrote meanwhile was not judged, as little as what they write a moment later.
fn write(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    asked: &Promote,
    checks: &[CheckReport],
    mut first: Option<Plan>,
) -> Result<PromoteReply> {
    for _ in 0..TRIES {
        engine.find_again(row)?;
        let again = || plan(engine, caller, row, asked, Against::Host);
        let plan = first.take().map_or_else(again, Ok)?;
        if let Some(reply) = before_gate(engine, caller, row, asked, &plan)? {
            return Ok(reply);
        }
        let mut progress = progress(row, &plan, checks.to_vec());
        if row.parent.is_some() {
            progress.notes.push("only its own changes travel, not those of its parent".to_owned());
        }
        progress.overruled = tried(engine, row)?.winner;
        if let Some(winner) = &progress.overruled {
            progress.notes.push(format!("this overrules the ranking, which chose `{winner}`"));
        }
        progress.notes.extend(links::left_apart(&plan.wishes));
        let job = Job {
            root: root(row, &plan)?,
            steps: plan.wishes.iter().map(|wish| wish.step()).collect(),
            view: Some(&plan.ours),
            record: progress.record(caller),
            facts: Some(evidence::facts(engine, caller, row, REALITY, checks)?),
        };
        match apply(engine, job) {
            Ok(done) => {
                // Without these notes the next promotion is more careful.
                let whole = plan.wishes.iter().filter(|wish| !wish.merged);
                let paths = whole.map(|wish| &wish.path);
                let _ = base::note_promoted(engine, row, Some(done.undo), paths);
                progress.notes.extend(evidence::missing(engine, done.undo)?);
                return Ok(progress.reply(Verdict::Applied, Some(done.undo), None));
            }
            // Somebody wrote there just now; the next look tells what.
            Err(error) if error.code == Code::Conflict => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(Code::Busy, format!("{} is being written by others", row.directory.display()))
        .hint("nothing has changed; try again when it rests"))
}

/// The project, or the whole machine when something outside was asked for.
pub(super) fn root(row: &SandboxRow, plan: &Plan) -> Result<PathBuf> {
    let project = path_of(&row.directory)?;
    Ok(match plan.wishes.iter().all(|wish| wish.path.is_within(&project)) {
        true => row.directory.clone(),
        false => PathBuf::from("/"),
    })
}
