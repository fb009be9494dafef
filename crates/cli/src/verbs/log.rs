use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use crate::terminal::cut;
use crate::time::stamp;
use fractal::model::RecordBody;
use fractal::{Action, Reply};
use serde_json::Value;

/// Show what happened, newest first
///
/// One line per record of the journal: time (UTC), who asked, verb, sandbox,
/// outcome; of this directory, or of one sandbox, dropped ones included. Runs
/// that were part of another verb (checks, scores) are left out; JSON has them,
/// with their `kind`.
#[derive(clap::Args)]
pub struct Log {
    /// Only this sandbox
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// At most so many records
    #[arg(short = 'n', long = "limit", value_name = "COUNT", default_value_t = 50)]
    limit: u64,
    /// What happened in other directories, too
    #[arg(long, conflicts_with = "sandbox")]
    all: bool,
    /// Runs of checks and scores, too
    #[arg(long)]
    checks: bool,
}

impl Log {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let is_here = self.sandbox.is_none() && !self.all;
        let action = Action::Log {
            sandbox: self.sandbox,
            limit: Some(self.limit),
            here: is_here,
            whole: !self.checks && !session.json,
        };
        let Reply::Log(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&reply);
        }
        if reply.records.is_empty() && is_here {
            session.note("nothing happened in this directory (fractal log --all)");
        }
        let rows: Vec<Vec<String>> = reply.records.iter().map(|record| row(&record.body)).collect();
        session.print(&columns(&rows))
    }
}

fn row(body: &RecordBody) -> Vec<String> {
    vec![
        stamp(body.time_ms),
        plain(&body.who),
        text(body, "kind").unwrap_or_else(|| plain(&body.action)),
        body.name.as_deref().map_or_else(|| "-".to_owned(), plain),
        outcome(body),
    ]
}

fn text(body: &RecordBody, name: &str) -> Option<String> {
    body.detail.get(name).and_then(Value::as_str).map(plain)
}

/// The error, or what the verb wrote down about itself.
pub fn outcome(body: &RecordBody) -> String {
    let text = |name: &str| text(body, name);
    if let Some(tool) = text("tool") {
        return format!("{}: {tool}", body.error.map_or("ok", |code| code.name()));
    }
    if let Some(code) = body.error {
        return match (text("from"), text("why")) {
            (Some(from), Some(why)) => format!("{}: from {from}: {why}", code.name()),
            (None, Some(why)) => format!("{}: {why}", code.name()),
            _ => code.name().to_owned(),
        };
    }
    if let Some(from) = text("from") {
        return came(&body.detail, &from);
    }
    if let Some(verdict) = text("verdict") {
        let undo = text("undo").map_or(String::new(), |id| format!(" (undo {id})"));
        return format!("{verdict}: {}{undo}", shorten(&command(&body.detail)));
    }
    if let (Some(exit), Some(check)) = (body.detail.get("exit"), text("check")) {
        return format!("exit {exit}: {check}");
    }
    if let Some(exit) = body.detail.get("exit").and_then(Value::as_i64) {
        return format!("exit {exit}: {}", shorten(&command(&body.detail)));
    }
    if text("outcome").as_deref() == Some("lost") {
        return match text("stage") {
            Some(stage) => format!("lost: its process was killed; {stage} stands unpublished"),
            None => "lost: its process was killed".to_owned(),
        };
    }
    if let Some(id) = text("undo") {
        let part = text("part_of").map(|id| format!("a part of {id}"));
        return written(&body.detail, &id, text("undoes").or(part));
    }
    if let Some(attempts) = body.detail.get("attempts").and_then(Value::as_array) {
        if body.detail.get("interrupted").is_some() {
            return format!("interrupted: {}", plural(attempts.len(), "attempt"));
        }
        return match (text("winner"), attempts.len()) {
            (Some(winner), count) => format!("{winner} won of {}", plural(count, "attempt")),
            (None, count) => format!("none passed of {}", plural(count, "attempt")),
        };
    }
    if let Some(why) = text("why") {
        return format!("went back: {why}");
    }
    if let (Some(form), "promote") = (body.detail.get("form"), body.action.as_str()) {
        let form =
            form.as_str().map_or_else(|| form.to_string().replace(['{', '}', '"'], ""), plain);
        return format!("{} as {form}", paths(&body.detail));
    }
    if let Some(stage) = text("stage") {
        return format!("{} into {stage}", paths(&body.detail));
    }
    let object = text("child_name").or(text("snapshot")).or(text("to")).or(text("volume"));
    let object = object.or(text("name"));
    match (text("verb"), object) {
        (Some(verb), Some(object)) => format!("{verb} {object}"),
        (_, Some(object)) => format!("ok: {object}"),
        _ => "ok".to_owned(),
    }
}

/// What came into a stage or a sandbox, or was voted on before it.
fn came(detail: &Value, from: &str) -> String {
    let text = |name: &str| detail.get(name).and_then(Value::as_str).map(plain);
    let mut line = match detail.get("paths") {
        Some(_) => format!("{} from {from}", paths(detail)),
        None => format!("from {from}"),
    };
    line.extend(text("undo").map(|id| format!(" (undo {id})")));
    line.extend(text("commit").map(|id| format!(" (commit {id:.10})")));
    line.extend(text("message").map(|message| format!(": {}", shorten(&message))));
    line
}

fn paths(detail: &Value) -> String {
    let count = detail.get("paths").and_then(Value::as_u64).unwrap_or(0);
    plural(usize::try_from(count).unwrap_or(usize::MAX), "path")
}

/// A write into reality, with the id that takes it back.
fn written(detail: &Value, id: &str, undoes: Option<String>) -> String {
    let count = detail.get("applied").and_then(Value::as_u64).unwrap_or(0);
    let paths = plural(usize::try_from(count).unwrap_or(usize::MAX), "path");
    match undoes {
        Some(undoes) => format!("{paths}, took back {undoes} (undo {id})"),
        None => format!("{paths} (undo {id})"),
    }
}

fn command(detail: &Value) -> String {
    let words = detail.get("command").and_then(Value::as_array);
    let words = words.into_iter().flatten().filter_map(Value::as_str).map(plain);
    words.collect::<Vec<_>>().join(" ")
}

fn shorten(text: &str) -> String {
    const COLUMNS_MAX: usize = 60;
    cut(text, COLUMNS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_read_as_one_line() {
        let check = |detail: Value, expect: &str| {
            let body: RecordBody = serde_json::from_value(
                json!({ "time_ms": 0, "who": "owner", "action": "x", "detail": detail }),
            )
            .expect("a record");
            assert_eq!(outcome(&body), expect);
        };
        check(json!({ "exit": 3, "command": ["echo", "a\nb"] }), "exit 3: echo a\\nb");
        check(json!({ "child_name": "left" }), "ok: left");
        check(json!({ "verb": "create", "volume": "notes" }), "create notes");
        check(json!({ "outcome": "lost" }), "lost: its process was killed");
        check(
            json!({ "outcome": "lost", "stage": "live", "command": ["make ship"] }),
            "lost: its process was killed; live stands unpublished",
        );
        check(json!({ "undo": "B", "applied": 3 }), "3 paths (undo B)");
        check(json!({ "undo": "C", "undoes": "B", "applied": 1 }), "1 path, took back B (undo C)");
        check(json!({ "winner": "b", "attempts": [{}, {}] }), "b won of 2 attempts");
        check(json!({ "winner": null, "attempts": [{}] }), "none passed of 1 attempt");
        check(
            json!({ "winner": null, "attempts": [{}], "interrupted": true }),
            "interrupted: 1 attempt",
        );
        check(json!({ "stage": "dev", "paths": 1 }), "1 path into dev");
        check(json!({ "from": "s", "paths": 1, "message": "fine" }), "1 path from s: fine");
        check(json!({ "from": "s", "paths": 2, "undo": "B" }), "2 paths from s (undo B)");
        check(json!({ "undoes": "P", "why": "publishing failed" }), "went back: publishing failed");
        check(Value::Null, "ok");
    }
}
