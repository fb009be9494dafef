//! `note`: writing down what was learned.

use crate::knowledge::experiment::{self, Experiment};
use crate::knowledge::{NOTES, PROJECT, failed};
use crate::{Caller, Engine, record};
use fractal_index::Index;
use fractal_index::bundle::Bundle;
use fractal_index::record::{Draft, Kind, Record, Relation, Stamp, Thing};
use fractal_model::{Error, Id, Note, NoteRelation, NoteReply, Result};
use fractal_store::{new_id, now_ms};
use serde_json::json;
use std::path::Path;

const TITLE_CHARS_MAX: usize = 300;
const BODY_BYTES_MAX: usize = 1 << 20;
const TAGS_MAX: usize = 32;
const TAG_CHARS_MAX: usize = 64;
const RELATIONS_MAX: usize = 200;
/// What people and agents write by hand; experiments and problems have verbs
/// of their own.
const KINDS: [Kind; 5] =
    [Kind::Insight, Kind::Failure, Kind::Decision, Kind::Pattern, Kind::Problem];

pub fn note(engine: &Engine, caller: &Caller, asked: &Note) -> Result<NoteReply> {
    let kind = check(asked)?;
    let experiment = experiment::wanted(caller, asked.experiment.as_deref())?;
    let relations = match asked.relations.as_slice() {
        [] => Vec::new(),
        some => {
            let index = engine.index(caller)?;
            some.iter().map(|one| relation(&index, one)).collect::<Result<_>>()?
        }
    };
    let stamp = stamp(caller);
    let mut written = Record::new(kind, asked.title.trim());
    written.id = Some(new_id());
    written.tags = asked.tags.iter().map(|tag| tag.trim().to_owned()).collect();
    written.outcome = asked.outcome.clone().unwrap_or_default();
    written.sandbox.clone_from(&asked.sandbox);
    written.verified = if asked.verified { vec![stamp.clone()] } else { Vec::new() };
    written.generated = Some(stamp);
    written.relations = relations;
    let reply = write(engine, caller, experiment.as_ref(), &Draft::new(written, &asked.body))?;
    let mut body = record(caller, "note", None);
    body.detail = json!({ "record": reply.noted, "type": reply.kind });
    if let Some(experiment) = &experiment {
        body.detail["experiment"] = json!(experiment.name);
    }
    engine.store.transact(|tx| tx.append(body))?;
    Ok(reply)
}

/// Who writes, and when.
pub fn stamp(caller: &Caller) -> Stamp {
    Stamp { by: caller.who.clone(), at_ms: Some(now_ms()) }
}

/// Writes a record where it belongs, and what is made from all of them there.
pub fn write(
    engine: &Engine,
    caller: &Caller,
    experiment: Option<&Experiment>,
    draft: &Draft,
) -> Result<NoteReply> {
    let place = match experiment {
        Some(experiment) => experiment.bundle.clone(),
        None => Bundle::of_notes(&engine.notes_dir(caller)).map_err(failed)?,
    };
    let file = place.write(draft, &suffix()).map_err(failed)?;
    // The record is safe; pages that are made from records can be made again.
    let _ = place.refresh();
    let (root, path) = match experiment {
        Some(experiment) => (PROJECT, experiment.path_of(&file)),
        None => (NOTES, from(place.dir(), &file)),
    };
    Ok(NoteReply {
        noted: draft.record.id.unwrap_or_else(new_id),
        kind: draft.record.kind.name().to_owned(),
        title: draft.record.title.clone(),
        root: root.to_owned(),
        path,
        file: caller.is_owner().then(|| file.to_string_lossy().into_owned()),
    })
}

fn from(dir: &Path, file: &Path) -> String {
    file.strip_prefix(dir).unwrap_or(file).to_string_lossy().into_owned()
}

/// What keeps the names of records apart that are written at once.
pub fn suffix() -> String {
    let id: Id = new_id();
    id.as_str()[18..].to_lowercase()
}

fn check(asked: &Note) -> Result<Kind> {
    let wrong = |what: String| Err(Error::invalid(what));
    let title = asked.title.trim();
    if title.is_empty() {
        return Err(Error::invalid("a note needs a title").hint("fractal note \"WHAT IT SAYS\""));
    }
    if title.chars().count() > TITLE_CHARS_MAX || title.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "a title is one line of at most {TITLE_CHARS_MAX} characters"
        ))
        .hint("write the rest as the body: `--body TEXT`, or on standard input"));
    }
    if asked.body.len() > BODY_BYTES_MAX {
        return wrong(format!("the body is longer than {} KiB", BODY_BYTES_MAX >> 10));
    }
    if asked.body.contains('\0') {
        return wrong("the body is no text: it has a zero byte in it".to_owned());
    }
    let bad_tag = |tag: &&String| {
        let chars = tag.trim().chars().count();
        chars == 0 || chars > TAG_CHARS_MAX || tag.chars().any(char::is_control)
    };
    if asked.tags.len() > TAGS_MAX {
        return wrong(format!("at most {TAGS_MAX} tags"));
    }
    if let Some(tag) = asked.tags.iter().find(bad_tag) {
        return wrong(format!(
            "`{}` is no tag of 1 to {TAG_CHARS_MAX} characters",
            tag.escape_debug()
        ));
    }
    if asked.relations.len() > RELATIONS_MAX {
        return wrong(format!("at most {RELATIONS_MAX} relations"));
    }
    let words = [asked.outcome.as_deref(), asked.sandbox.as_deref()];
    if words
        .into_iter()
        .flatten()
        .any(|word| word.len() > TAG_CHARS_MAX || word.contains(char::is_control))
    {
        return wrong(format!(
            "outcome and sandbox are words of at most {TAG_CHARS_MAX} characters"
        ));
    }
    let kind = asked.kind.as_deref().map_or(Kind::Insight, Kind::parse);
    if KINDS.contains(&kind) {
        return Ok(kind);
    }
    let names: Vec<String> = KINDS.iter().map(|kind| kind.name().to_lowercase()).collect();
    wrong(format!(
        "`{}` is none of: {}",
        asked.kind.as_deref().unwrap_or_default().escape_debug(),
        names.join(", ")
    ))
}

/// A relation to what is there. A slip of the pen would lead nowhere for ever.
fn relation(index: &Index, asked: &NoteRelation) -> Result<Relation> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if asked.kind.is_empty() || asked.kind.len() > 64 || !asked.kind.chars().all(is_word) {
        return Err(Error::invalid(format!(
            "`{}` is no word for a relation",
            asked.kind.escape_debug()
        ))
        .hint("use fixes, fixed-by, cites, supersedes, refutes, depends-on or touches"));
    }
    let mut relation =
        Relation { kind: asked.kind.clone(), id: None, path: None, thing: None, line: 0 };
    let to = asked.to.trim();
    match to.split_once(':') {
        Some(("file", name)) => relation.thing = Some(Thing::File(name.to_owned())),
        Some(("package", name)) => relation.thing = Some(Thing::Package(name.to_owned())),
        Some(("sandbox", name)) => relation.thing = Some(Thing::Sandbox(name.to_owned())),
        _ => {
            let key = index.key_of(to).map_err(failed)?;
            // A path would lead nowhere as soon as one of both files moves.
            let id = Id::parse(&key).map_err(|_| {
                Error::invalid(format!("the record `{}` has no id to lead to", to.escape_debug()))
                    .hint("give its head a line `id:` with 26 characters of a ULID")
            })?;
            relation.id = Some(id);
        }
    }
    Ok(relation)
}
