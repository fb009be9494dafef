//! Runs, attempts and promotions as records of an experiment.
//!
//! Whatever was done is done when it is written down: a record that cannot be
//! written is told of in the reply and changes nothing else. Outputs are cut,
//! what is too large is named by its digest, and what looks like a secret is
//! taken out of everything.

use super::experiment::Experiment;
use super::{failed, scrubbed, signature};
use crate::verbs::note::{stamp, suffix};
use crate::{Caller, Engine};
use fractal_index::record::{Draft, Kind, Record, Relation, Thing, Value, add_relation};
use fractal_model::{
    AttemptReport, Change, CheckReport, Id, Outcome, Promote, PromoteReply, Recorded, Result, Run,
    RunReply, Usage, Verdict,
};
use fractal_store::{Reads, new_id};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Of each output so much is kept: its end, which says why.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// A longer patch is named by its digest.
const PATCH_BYTES_MAX: u64 = 1 << 20;
/// What a body shows of an output.
const SHOWN_LINES: usize = 20;
const SHOWN_CHARS: usize = 4000;
/// Changes that stand in `run.json`; `diff` has all of them.
const CHANGES_MAX: usize = 1000;
/// Files that a record names as touched; the patch has all of them.
const TOUCHED_MAX: usize = 50;
const TITLE_CHARS: usize = 120;

/// Says where something was written down, or why it was not.
fn told(experiment: &Experiment, written: Result<PathBuf>) -> Recorded {
    let name = experiment.name.clone();
    match written {
        Ok(path) => Recorded { experiment: name, path: experiment.path_of(&path), failed: None },
        Err(error) => {
            Recorded { experiment: name, path: String::new(), failed: Some(error.message) }
        }
    }
}

/// What an experiment did: everything that its record says.
struct Tried<'a> {
    title: String,
    command: String,
    passed: bool,
    outcome: Option<Outcome>,
    exit: Option<i32>,
    usage: &'a Usage,
    sandbox: Option<&'a str>,
    stdout: &'a str,
    stderr: &'a str,
    changes: &'a [Change],
    checks: &'a [CheckReport],
    said: Option<&'a str>,
    detail: serde_json::Value,
}

/// Writes down a run.
pub(crate) fn run(
    engine: &Engine,
    caller: &Caller,
    experiment: &Experiment,
    asked: &Run,
    reply: &RunReply,
) -> Recorded {
    let mut detail = json!(reply);
    for streamed in ["stdout", "stderr"] {
        detail.as_object_mut().map(|detail| detail.remove(streamed));
    }
    detail["command"] = json!(asked.command);
    if reply.changes.len() > CHANGES_MAX {
        detail["changes"] = json!(reply.changes[..CHANGES_MAX]);
        detail["changes_truncated"] = json!(true);
    }
    let command = spelled(&asked.command);
    let tried = Tried {
        title: title(&command),
        passed: reply.outcome == Outcome::Exited && reply.exit == 0,
        command,
        outcome: Some(reply.outcome),
        exit: Some(reply.exit),
        usage: &reply.usage,
        sandbox: reply.kept.then_some(reply.sandbox.as_str()),
        stdout: last(&reply.stdout),
        stderr: last(&reply.stderr),
        changes: &reply.changes,
        checks: &[],
        said: None,
        detail,
    };
    told(experiment, write(engine, caller, experiment, &tried))
}

/// The end of an output, as much as is kept.
fn last(text: &str) -> &str {
    let from = text.len().saturating_sub(OUTPUT_BYTES_MAX);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

/// Writes down one attempt of several.
pub(crate) fn attempt(
    engine: &Engine,
    caller: &Caller,
    experiment: &Experiment,
    command: &[String],
    report: &AttemptReport,
    won: bool,
) -> Recorded {
    let command = spelled(command);
    let place = report.rank.map_or("ruled out".to_owned(), |rank| format!("rank {rank}"));
    let first_failed = report.checks.iter().find(|check| check.rules_out());
    let output = match first_failed {
        Some(check) if report.output.is_empty() => check.output.as_str(),
        _ => report.output.as_str(),
    };
    let said = format!("{place}{}: {}", if won { ", the winner" } else { "" }, report.why);
    let changes = report.sandbox.as_deref().map(|name| {
        crate::verbs::diff::diff(engine, caller, Some(name), None).map(|reply| reply.changes)
    });
    let changes = changes.and_then(Result::ok).unwrap_or_default();
    let tried = Tried {
        title: title(&format!("{}: {command}", report.name)),
        command,
        passed: report.rank.is_some(),
        outcome: report.outcome,
        exit: first_failed.map(|check| check.exit).or(report.exit),
        usage: &report.usage,
        sandbox: report.sandbox.as_deref(),
        stdout: "",
        stderr: output,
        changes: &changes,
        checks: &report.checks,
        said: Some(&said),
        detail: json!(report),
    };
    told(experiment, write(engine, caller, experiment, &tried))
}

/// Writes down a promotion, as a decision.
pub(crate) fn promotion(
    caller: &Caller,
    experiment: &Experiment,
    asked: &Promote,
    reply: &PromoteReply,
) -> Recorded {
    let sandbox = reply.sandbox.as_deref().unwrap_or_default();
    let done = reply.verdict == Verdict::Applied;
    let mut record = Record::new(
        Kind::Decision,
        title(&match done {
            true => format!("Promoted {sandbox} into {}", reply.stage),
            false => format!("{sandbox} did not come into {}", reply.stage),
        }),
    );
    record.id = Some(new_id());
    record.outcome = if done { "promoted" } else { "refused" }.to_owned();
    record.stage.clone_from(&reply.stage);
    record.sandbox = reply.sandbox.clone();
    record.generated = Some(stamp(caller));
    record.relations = vec![thing("promoted-to", Thing::Sandbox(reply.stage.clone()))];
    let touched = reply.applied.iter().take(TOUCHED_MAX);
    let in_project = |path: &str| {
        let path = Path::new(path).strip_prefix(&experiment.project).unwrap_or(Path::new(path));
        path.to_string_lossy().into_owned()
    };
    record.relations.extend(touched.map(|it| thing("touches", Thing::File(in_project(&it.path)))));
    let mut body = String::new();
    for conflict in &reply.conflicts {
        let _ = writeln!(body, "- conflict: {}", in_project(&conflict.path));
    }
    for note in &reply.notes {
        let _ = writeln!(body, "- {note}");
    }
    checks(&mut body, &reply.checks);
    let extra = [
        ("verdict", json!(reply.verdict)),
        ("undo", json!(reply.undo)),
        ("only", json!(asked.only)),
    ];
    let mut draft = Draft::new(record, scrubbed(&body));
    let said = extra.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]));
    draft.extra = said.map(|(name, value)| (name.to_owned(), plain(&value))).collect();
    let written = experiment.bundle.write(&draft, &suffix()).map_err(failed);
    let _ = experiment.bundle.refresh();
    told(experiment, written)
}

fn write(
    engine: &Engine,
    caller: &Caller,
    experiment: &Experiment,
    tried: &Tried<'_>,
) -> Result<PathBuf> {
    let bundle = &experiment.bundle;
    let mut draft = draft(engine, caller, tried);
    let signature = (!tried.passed).then(|| {
        let (outcome, exit) = (tried.outcome.unwrap_or(Outcome::Exited), tried.exit.unwrap_or(1));
        signature(outcome, exit, tried.stdout, tried.stderr)
    });
    // The failure comes first: an experiment that names it leads somewhere.
    if let Some(signature) = &signature {
        let known = known_failure(engine, caller, experiment, signature);
        let failure = match known {
            Some(known) => known,
            None => write_failure(caller, experiment, tried, signature)?,
        };
        draft.record.relations.push(failure);
    }
    let file = bundle.write(&draft, &suffix()).map_err(failed)?;
    let dir = file.parent().unwrap_or(Path::new("")).to_owned();
    for (name, bytes) in beside(engine, caller, tried) {
        bundle.write_beside(&dir, name, &bytes).map_err(failed)?;
    }
    let _ = bundle.refresh();
    Ok(file)
}

fn draft(engine: &Engine, caller: &Caller, tried: &Tried<'_>) -> Draft {
    let mut record = Record::new(Kind::Experiment, tried.title.clone());
    record.id = Some(new_id());
    record.outcome = if tried.passed { "passed" } else { "failed" }.to_owned();
    record.generated = Some(stamp(caller));
    record.sandbox = tried.sandbox.map(str::to_owned);
    if let Some(sandbox) = tried.sandbox {
        record.relations.push(thing("tried-in", Thing::Sandbox(sandbox.to_owned())));
    }
    record.relations.extend(touched(caller, tried.changes));
    let usage = tried.usage;
    let metrics = json!({
        "exit": tried.exit, "wall_ms": usage.wall_ms, "cpu_ms": usage.cpu_ms,
        "memory_peak_bytes": usage.memory_peak_bytes, "changes": tried.changes.len(),
    });
    let mut extra = vec![("ended", json!(tried.outcome)), ("metrics", metrics)];
    if let Some((base, parent, limits)) =
        tried.sandbox.and_then(|name| ground(engine, caller, name))
    {
        extra.push(("base", json!(base)));
        extra.push(("parent", json!(parent)));
        extra.push(("limits", limits));
    }
    let body = body(tried);
    let mut draft = Draft::new(record, scrubbed(&body));
    let said = extra.into_iter().filter(|(_, value)| !value.is_null());
    draft.extra = said.map(|(name, value)| (name.to_owned(), plain(&value))).collect();
    draft
}

/// What a sandbox stands on, whose child it is, and its limits.
fn ground(
    engine: &Engine,
    caller: &Caller,
    name: &str,
) -> Option<(Option<Id>, String, serde_json::Value)> {
    let row = engine.find(caller, Some(name)).ok()?;
    let parent = row.parent.and_then(|id| engine.store.sandbox(id).ok().flatten());
    let parent = parent.map_or_else(|| "reality".to_owned(), |row| row.name);
    Some((row.base, parent, json!(row.policy.limits)))
}

/// Files of the project that changed, as relations.
fn touched(caller: &Caller, changes: &[Change]) -> Vec<Relation> {
    let project = super::project_of(&caller.directory);
    let below = |change: &Change| {
        let path = change.path.to_string();
        let path = Path::new(&path).strip_prefix(&project).ok()?.to_str()?.to_owned();
        (!path.is_empty()).then_some(path)
    };
    let paths = changes.iter().filter_map(below).take(TOUCHED_MAX);
    paths.map(|path| thing("touches", Thing::File(path))).collect()
}

fn thing(kind: &str, thing: Thing) -> Relation {
    Relation { kind: kind.to_owned(), id: None, path: None, thing: Some(thing), line: 0 }
}

fn to_record(kind: &str, id: Id, path: Option<String>) -> Relation {
    Relation { kind: kind.to_owned(), id: Some(id), path, thing: None, line: 0 }
}

fn body(tried: &Tried<'_>) -> String {
    let mut body = format!("```sh\n{}\n```\n", fenced(&tried.command));
    if let Some(said) = tried.said {
        let _ = writeln!(body, "\n{said}");
    }
    checks(&mut body, tried.checks);
    for (name, text) in [("Output", tried.stdout), ("Errors", tried.stderr)] {
        let shown = end_of(text);
        if !shown.is_empty() {
            let _ = write!(body, "\n## {name}\n\n```text\n{}\n```\n", fenced(&shown));
        }
    }
    body
}

fn checks(body: &mut String, checks: &[CheckReport]) {
    for check in checks {
        let why = check.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let _ = writeln!(body, "- check {}: {}{why}", check.name, check.result.name());
    }
}

/// The end of a text, as much as a page shows.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().rev().take(SHOWN_LINES).collect();
    let text = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
    let skipped = text.chars().count().saturating_sub(SHOWN_CHARS);
    text.chars().skip(skipped).filter(|c| !c.is_control() || "\n\t".contains(*c)).collect()
}

/// Nothing inside ends the block that it stands in.
fn fenced(text: &str) -> String {
    text.replace("```", "'''")
}

/// What lies beside the record: evidence for programs.
fn beside(engine: &Engine, caller: &Caller, tried: &Tried<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = Vec::new();
    let usage = tried.usage;
    let line = json!({
        "at": fractal_model::format_iso_ms(fractal_store::now_ms()), "exit": tried.exit,
        "wall_ms": usage.wall_ms, "cpu_ms": usage.cpu_ms,
        "memory_peak_bytes": usage.memory_peak_bytes, "io_read_bytes": usage.io_read_bytes,
        "io_write_bytes": usage.io_write_bytes,
    });
    files.push(("metrics.jsonl", format!("{line}\n").into_bytes()));
    let mut detail = tried.detail.clone();
    if let Some((patch, note)) = tried.sandbox.and_then(|name| patch(engine, caller, name)) {
        match note {
            None => files.push(("patch.diff", patch)),
            Some(note) => detail["patch"] = note,
        }
    }
    for (name, text) in [("stdout", tried.stdout), ("stderr", tried.stderr)] {
        if !text.is_empty() {
            files.push((name, scrubbed(text).into_owned().into_bytes()));
        }
    }
    let detail = serde_json::to_string_pretty(&detail).unwrap_or_default();
    files.push(("run.json", scrubbed(&detail).into_owned().into_bytes()));
    files
}

/// A sandbox's changes as a patch; of one that is too large, how large it is
/// and its digest.
fn patch(
    engine: &Engine,
    caller: &Caller,
    sandbox: &str,
) -> Option<(Vec<u8>, Option<serde_json::Value>)> {
    let mut out = Measured { kept: Vec::new(), bytes: 0, hasher: Sha256::new() };
    let format = crate::DiffFormat::Patch;
    crate::verbs::diff::write(engine, caller, Some(sandbox), None, format, &mut out).ok()?;
    if out.bytes == 0 {
        return None;
    }
    if out.bytes <= PATCH_BYTES_MAX {
        // A patch that was scrubbed no longer applies; one that holds what
        // looks like a secret is not kept at all.
        let text = String::from_utf8_lossy(&out.kept);
        let is_clean = matches!(scrubbed(&text), std::borrow::Cow::Borrowed(_));
        if is_clean {
            return Some((out.kept, None));
        }
        let note =
            json!({ "bytes": out.bytes, "sha256": out.digest(), "why": "it may hold a secret" });
        return Some((Vec::new(), Some(note)));
    }
    let note = json!({ "bytes": out.bytes, "sha256": out.digest(), "why": "it is too large" });
    Some((Vec::new(), Some(note)))
}

/// Keeps the beginning of what is written, and the measure of all of it.
struct Measured {
    kept: Vec<u8>,
    bytes: u64,
    hasher: Sha256,
}

impl Measured {
    fn digest(&self) -> String {
        let digest = self.hasher.clone().finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::io::Write for Measured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = (PATCH_BYTES_MAX as usize).saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A failure of this experiment that looks the same.
fn known_failure(
    engine: &Engine,
    caller: &Caller,
    experiment: &Experiment,
    signature: &str,
) -> Option<Relation> {
    let index = engine.index(caller).ok()?;
    let group = index.failed_so(signature).ok()??;
    let below = format!("{}/", experiment.path());
    let is_ours = |one: &&fractal_model::Learning| {
        one.kind == Kind::Failure.name() && one.path.starts_with(&below)
    };
    let known = group.failures.iter().rev().find(is_ours)?;
    let id = Id::parse(&known.key).ok()?;
    let path = known.path.strip_prefix(&below).map(|path| format!("../../{path}"));
    Some(to_record("failed-with", id, path))
}

/// Writes down a failure that was not seen before.
fn write_failure(
    caller: &Caller,
    experiment: &Experiment,
    tried: &Tried<'_>,
    signature: &str,
) -> Result<Relation> {
    let id = new_id();
    let mut record = Record::new(Kind::Failure, title(signature));
    record.id = Some(id);
    record.outcome = "failed".to_owned();
    record.signature = Some(signature.to_owned());
    record.generated = Some(stamp(caller));
    let body = format!("First seen with:\n\n{}", body(tried));
    let draft = Draft::new(record, scrubbed(&body));
    let file = experiment.bundle.write(&draft, &suffix()).map_err(failed)?;
    let path = file.strip_prefix(experiment.bundle.dir()).ok();
    let path = path.map(|path| format!("../../{}", path.display()));
    Ok(to_record("failed-with", id, path))
}

/// Adds a relation to a record that is there.
pub(crate) fn relate(experiment: &Experiment, file: &Path, kind: &str, id: Id) -> Result<()> {
    let relation = to_record(kind, id, None);
    experiment.bundle.edit(file, |bytes| add_relation(bytes, &relation)).map_err(failed)
}

/// A command as one would type it, without secrets.
fn spelled(command: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    let word = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    scrubbed(&command.iter().map(word).collect::<Vec<_>>().join(" ")).into_owned()
}

/// One line, not too long.
fn title(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    match line.chars().count() > TITLE_CHARS {
        true => format!("{}…", line.chars().take(TITLE_CHARS).collect::<String>()),
        false if line.is_empty() => "untitled".to_owned(),
        false => line,
    }
}

/// JSON as a value of a head.
fn plain(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match value {
        Json::Null => Value::Null,
        Json::Bool(yes) => Value::Bool(*yes),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Float(number.as_f64().unwrap_or(0.0)),
        },
        Json::String(text) => Value::Text(scrubbed(text).into_owned()),
        Json::Array(items) => Value::List(items.iter().map(plain).collect()),
        Json::Object(fields) => Value::Map(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), plain(value)))
                .collect(),
        ),
    }
}
