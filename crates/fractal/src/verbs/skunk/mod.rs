//! `skunk`: experiments as directories of the project, self-contained and
//! written down.

mod extract;
mod import;
mod new;
mod tools;

use super::note::stamp;
use crate::knowledge::experiment::{self, Experiment};
use crate::knowledge::{PROJECT, failed, place_learnings};
use crate::{Caller, Engine, record};
use fractal_index::bundle::PROBLEM;
use fractal_index::record::{Draft, Kind, Reading, Record, Value, read, set_key};
use fractal_index::{Index, bundle};
use fractal_model::{Error, Learning, Reply, Result, SkunkInfo, SkunkReply, SkunkVerb};
use fractal_store::new_id;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const OPEN: &str = "open";
const ARCHIVED: &str = "archived";
/// The key of a problem's record that says what made its environment.
const WITH: &str = "environment";
/// Names of directories end with the title, which has to leave room.
const TITLE_CHARS_MAX: usize = 120;

pub fn skunk(engine: &Engine, caller: &Caller, verb: SkunkVerb) -> Result<Reply> {
    experiment::require_owner(caller)?;
    match verb {
        SkunkVerb::New(asked) => new::new(engine, caller, &asked).map(boxed),
        SkunkVerb::List { all } => list(engine, caller, all),
        SkunkVerb::Show { name } => {
            show(engine, caller, &experiment::named(caller, &name)?).map(boxed)
        }
        SkunkVerb::Extract(asked) => {
            extract::extract(engine, caller, &asked).map(|it| Reply::Extract(Box::new(it)))
        }
        SkunkVerb::Archive { name, undo } => archive(engine, caller, &name, undo).map(boxed),
        SkunkVerb::Import { from, title } => {
            import::import(engine, caller, &from, title.as_deref()).map(boxed)
        }
    }
}

fn boxed(reply: SkunkReply) -> Reply {
    Reply::Skunk(Box::new(reply))
}

fn list(engine: &Engine, caller: &Caller, all: bool) -> Result<Reply> {
    let index = engine.index(caller)?;
    let mut skunks = Vec::new();
    for experiment in experiment::all(caller)? {
        let info = info(&index, &experiment)?;
        if all || info.status != ARCHIVED {
            skunks.push(info);
        }
    }
    Ok(Reply::Skunks { skunks })
}

fn show(engine: &Engine, caller: &Caller, experiment: &Experiment) -> Result<SkunkReply> {
    let index = engine.index(caller)?;
    let mut journey = own_records(&index, experiment)?;
    place_learnings(caller, &index, &mut journey);
    let above = format!("{}/", experiment.name);
    let parts = experiment::all(caller)?.into_iter().filter(|it| it.name.starts_with(&above));
    let parts = parts.map(|part| info(&index, &part)).collect::<Result<_>>()?;
    let directory = experiment.bundle.dir().to_str().map(str::to_owned);
    let skunk = info(&index, experiment)?;
    Ok(SkunkReply { skunk, journey, parts, directory, notes: Vec::new() })
}

/// The records of an experiment, without those of its parts, newest first.
fn own_records(index: &Index, experiment: &Experiment) -> Result<Vec<Learning>> {
    let path = experiment.path();
    let mut records = index.below(PROJECT, &path).map_err(failed)?;
    records.retain(|one| {
        let below = one.path.get(path.len()..).unwrap_or_default();
        !below
            .split('/')
            .any(|part| part.len() > bundle::SUFFIX.len() && part.ends_with(bundle::SUFFIX))
    });
    Ok(records)
}

fn info(index: &Index, experiment: &Experiment) -> Result<SkunkInfo> {
    let problem = problem(experiment)?;
    let with =
        problem.extra.iter().find(|(key, _)| key == WITH).and_then(|(_, value)| match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        });
    let all = own_records(index, experiment)?;
    let mut records: BTreeMap<String, u64> = BTreeMap::new();
    for one in &all {
        *records.entry(one.kind.to_lowercase()).or_default() += 1;
    }
    let status = problem.record.status;
    Ok(SkunkInfo {
        name: experiment.name.clone(),
        title: problem.record.title,
        problem: problem.record.id,
        path: experiment.path(),
        status: if status.is_empty() { OPEN.to_owned() } else { status },
        with,
        records,
        last_ms: all.iter().filter_map(|one| one.at_ms).max(),
    })
}

/// The record that says what an experiment is about.
fn problem(experiment: &Experiment) -> Result<Reading> {
    let path = experiment.bundle.dir().join(PROBLEM);
    let (bytes, _) = experiment.bundle.read(&path).map_err(failed)?;
    Ok(read(&bytes, PROBLEM))
}

fn archive(engine: &Engine, caller: &Caller, name: &str, undo: bool) -> Result<SkunkReply> {
    let experiment = experiment::named(caller, name)?;
    let status = if undo { OPEN } else { ARCHIVED };
    let path = experiment.bundle.dir().join(PROBLEM);
    let set = |bytes: &[u8]| set_key(bytes, "status", &Value::from(status));
    experiment.bundle.edit(&path, set).map_err(failed)?;
    let _ = experiment.bundle.refresh();
    write_down(engine, caller, if undo { "unarchive" } else { "archive" }, &experiment)?;
    show(engine, caller, &experiment)
}

/// The problem of a new experiment, about to be written.
fn draft(caller: &Caller, title: &str, tags: &[String], with: &str, body: &str) -> Draft {
    let mut record = Record::new(Kind::Problem, title);
    record.id = Some(new_id());
    record.status = OPEN.to_owned();
    record.tags = tags.to_vec();
    record.generated = Some(stamp(caller));
    let mut draft = Draft::new(record, body);
    draft.extra = vec![(WITH.to_owned(), Value::from(with))];
    draft
}

fn checked_title(title: &str) -> Result<&str> {
    let title = title.trim();
    let is_line = !title.chars().any(char::is_control);
    if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX || !is_line {
        return Err(Error::invalid(format!(
            "an experiment's title is one line of 1 to {TITLE_CHARS_MAX} characters"
        ))
        .hint("fractal skunk new \"WHAT IS TO BE SOLVED\""));
    }
    Ok(title)
}

fn write_down(engine: &Engine, caller: &Caller, verb: &str, experiment: &Experiment) -> Result<()> {
    let mut body = record(caller, "skunk", None);
    body.detail = json!({ "verb": verb, "name": experiment.name });
    engine.store.transact(|tx| tx.append(body))?;
    Ok(())
}

/// A name that nobody sees, beside what is about to be made.
fn boxed_away(home: &Path) -> PathBuf {
    home.join(format!(".new-{}", super::note::suffix()))
}

/// Removes what was half made. What cannot be removed stays hidden.
fn discard(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}
