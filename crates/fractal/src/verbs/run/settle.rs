//! The end of a run: verdict, record, reply.

use super::Done;
use super::claim::forget;
use super::place::Place;
use crate::{Caller, Engine, record};
use fractal_jail::{Ended, Report, Why};
use fractal_model::{
    Code, Error, Isolation, Outcome, Part, Policy, Result, Run, RunReply, Tier, Usage,
};
use fractal_store::{Reads, now_ms};
use serde_json::json;

/// Changes that stand in a reply; `diff` has no such bound.
const REPLY_CHANGES_MAX: usize = 100_000;

/// Writes down what happened and answers.
pub(super) fn settle(
    engine: &Engine,
    caller: &Caller,
    run: &Run,
    place: Place,
    done: Done,
) -> Result<RunReply> {
    let Done { report, changes, .. } = &done;
    let verdict = verdict(report, &place.policy);
    let run_id = place.run_id;
    let changed = !changes.list.is_empty() || changes.truncated;
    let mut kept = place.in_memory.is_none()
        && !run.discard
        && (!place.is_new || run.name.is_some() || changed || has_children(engine, run, &place)?);
    let row = &place.row;
    let mut body = record(caller, "run", Some(row));
    body.detail = json!({
        "run": run_id, "command": run.command, "exit": verdict.0, "outcome": verdict.1, "kept": kept,
        "changes": changes.list.len(), "tier": place.tier, "wall_ms": report.wall_ms, "cpu_ms": report.cpu_ms,
        "memory_peak_bytes": report.memory_peak_bytes,
    });
    if let Some(experiment) = &run.experiment {
        body.detail["experiment"] = json!(experiment);
    }
    if let Some(kind) = run.part.kind() {
        body.detail["kind"] = json!(kind);
    }
    if let Part::Check(name) = &run.part {
        body.detail["check"] = json!(name);
    }
    let reached = limits_reached(report, verdict.1);
    if !reached.is_empty() {
        body.detail["limits_reached"] = json!(reached);
    }
    if place.in_memory.is_some() {
        (body.before, body.after) = (None, None);
        engine.store.transact_relaxed(|tx| tx.append(body))?;
    } else {
        let durable = kept;
        let (mut unused, mut is_lost) = (Vec::new(), false);
        let write = |tx: &fractal_store::Tx<'_>| {
            // Somebody took us for dead: what we did is not ours to keep.
            is_lost = !tx.delete_run(run_id)?;
            if is_lost {
                return Ok(());
            }
            // Somebody joined meanwhile: the sandbox is theirs too.
            kept |= !tx.runs_of(row.id)?.is_empty();
            if kept {
                tx.touch_sandbox(row.id, now_ms())?;
            } else {
                unused = forget(tx, row)?;
            }
            tx.append(body).map(drop)
        };
        match durable {
            true => engine.store.transact(write)?,
            false => engine.store.transact_relaxed(write)?,
        }
        if is_lost {
            return Err(lost(&row.name));
        }
        if place.tier == Tier::Copied {
            super::copied::clear(engine, row.top);
        }
        if !kept {
            unused.into_iter().try_for_each(|layer| engine.store.discard_layer(layer))?;
        } else if place.is_new {
            super::super::gc::expire(engine, caller);
        }
    }
    Ok(reply(place, done, verdict, kept, &run.command[0]))
}

fn lost(name: &str) -> Error {
    let why = format!("this run in `{name}` was ended while its process stood still");
    Error::new(Code::Conflict, why)
        .hint("`fractal log` tells who dropped the sandbox, or rolled it back")
}

/// What was forked through its door stands below it.
fn has_children(engine: &Engine, run: &Run, place: &Place) -> Result<bool> {
    Ok(run.door && !engine.store.children(place.row.id)?.is_empty())
}

fn reply(
    place: Place,
    done: Done,
    (exit, outcome): (i32, Outcome),
    kept: bool,
    program: &str,
) -> RunReply {
    let Done { report, changes, stale, .. } = done;
    let mut list = changes.list;
    let changes_truncated = changes.truncated || list.len() > REPLY_CHANGES_MAX;
    list.truncate(REPLY_CHANGES_MAX);
    let mut stderr = text(&report.errors);
    if let Ended::NotStarted(errno) = report.ended {
        stderr.push_str(&not_started(program, errno));
    }
    RunReply {
        sandbox: place.row.name,
        id: place.row.id,
        kept,
        exit,
        outcome,
        limits_reached: limits_reached(&report, outcome),
        stdout: text(&report.output),
        stderr,
        truncated: report.output.is_truncated() || report.errors.is_truncated(),
        output_lost: report
            .write_errno
            .map(|errno| std::io::Error::from_raw_os_error(errno).to_string()),
        usage: Usage {
            wall_ms: report.wall_ms,
            cpu_ms: report.cpu_ms,
            memory_peak_bytes: report.memory_peak_bytes,
            io_read_bytes: report.io_read_bytes,
            io_write_bytes: report.io_write_bytes,
        },
        isolation: Isolation { tier: place.tier, missing: report.missing },
        changes: list,
        changes_truncated,
        stale,
        recorded: None,
    }
}

fn not_started(program: &str, errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    format!("fractal: cannot execute `{}`: {error}\n", program.escape_debug())
}

/// Kept bytes as text, with a marker where something was left out. What went
/// to the caller's own descriptor is not repeated.
fn text(captured: &fractal_jail::Captured) -> String {
    let mut text = String::from_utf8_lossy(&captured.bytes).into_owned();
    if captured.is_truncated() && !captured.bytes.is_empty() {
        let left_out = captured.total_bytes - captured.bytes.len() as u64;
        text.push_str(&format!("\n[fractal: output truncated, {left_out} bytes left out]\n"));
    }
    text
}

/// Limits that were felt, that which ended the run first.
fn limits_reached(report: &Report, outcome: Outcome) -> Vec<Outcome> {
    let felt = [(report.reached.memory, Outcome::Memory), (report.reached.disk, Outcome::Disk)];
    let mut list: Vec<Outcome> =
        felt.into_iter().filter(|(felt, _)| *felt).map(|(_, limit)| limit).collect();
    if !matches!(outcome, Outcome::Exited | Outcome::Signalled) {
        list.retain(|limit| *limit != outcome);
        list.insert(0, outcome);
    }
    list
}

/// Exit status as a shell would show it, and how the run ended.
fn verdict(report: &Report, policy: &Policy) -> (i32, Outcome) {
    const KILLED: i32 = 128 + 9;
    let own = match report.ended {
        Ended::Exited(status) => (status, Outcome::Exited),
        Ended::Signalled(signal) => (128 + signal, Outcome::Signalled),
        Ended::NotStarted(2) => (127, Outcome::Exited),
        Ended::NotStarted(_) => (126, Outcome::Exited),
    };
    const FILE_TOO_LARGE: i32 = 25;
    match report.why {
        Why::Time => (124, Outcome::Timeout),
        Why::Memory => (KILLED, Outcome::Memory),
        Why::Disk => (KILLED, Outcome::Disk),
        Why::Output => (KILLED, Outcome::Output),
        // A shell passes its child's signal on as a status.
        _ if own.0 == 128 + FILE_TOO_LARGE && policy.limits.disk_bytes.is_some() => {
            (KILLED, Outcome::Disk)
        }
        Why::Ended | Why::Asked => own,
    }
}
