//! How attempts read: the table of `try` and `compare`, and what to type next.
//!
//! Everything fits 80 columns and says in signs and words what it says;
//! there is no colour to miss.

pub mod live;

use crate::table::{plain, plural};
use crate::terminal::{WIDTH, columns_of, cut, padded, wrapped};
use fractal::model::{AttemptReport, BaseKind, CheckReport, CheckResult, TryReply, format_bytes};

/// The longest name that is shown whole.
const NAME_MAX: usize = 18;

/// Checks that have a sign each.
const SIGNS_MAX: usize = 6;

/// Lines of output shown for an attempt that did not succeed.
const OUTPUT_LINES: usize = 3;

/// Overlapping files that are listed.
const OVERLAP_LINES: usize = 20;

/// The table, and under it why each attempt stands where it stands.
pub fn text(reply: &TryReply) -> String {
    let mut text = aligned(&rows(reply));
    text.push_str(&legend(reply));
    for attempt in &reply.attempts {
        if reply.winner.as_ref() != Some(&attempt.name) {
            text.push_str(&wrap(&format!("{}: {}", plain(&attempt.name), plain(&attempt.why))));
            text.push_str(&telling_lines(attempt));
        }
    }
    if let Some(best) = winner(reply) {
        text.push_str(&wrap(&format!("winner: {} — {}", plain(&best.name), plain(&best.why))));
    }
    text
}

/// The report of the winner.
pub fn winner(reply: &TryReply) -> Option<&AttemptReport> {
    let name = reply.winner.as_ref()?;
    reply.attempts.iter().find(|attempt| attempt.name == *name)
}

/// What a person should know beside the table.
pub fn remarks(reply: &TryReply) -> Vec<String> {
    let mut lines: Vec<String> =
        reply.notes.iter().map(|note| format!("note: {}", plain(note))).collect();
    if reply.base.behind > 0 {
        let files = plural(reply.base.behind as usize, "file");
        let seen = match reply.base.kind {
            BaseKind::Live => "attempts may have seen it",
            BaseKind::Frozen => "no attempt has seen it",
        };
        lines.push(format!("note: {files} changed outside meanwhile; {seen}"));
    }
    lines
}

/// The next command to type.
pub fn next(reply: &TryReply) -> Option<String> {
    let kept: Vec<&str> =
        reply.attempts.iter().filter_map(|attempt| attempt.sandbox.as_deref()).collect();
    match (winner(reply).and_then(|best| best.sandbox.as_deref()), kept.first()) {
        (Some(best), _) => Some(format!("next: fractal promote {best} · fractal diff {best}")),
        (None, Some(first)) => Some(format!("next: fractal diff {first} · fractal enter {first}")),
        (None, None) => None,
    }
}

struct Row {
    cells: Vec<String>,
}

/// Whether a column holds words, which stand at the left.
const WORDS: usize = 3;

fn rows(reply: &TryReply) -> Vec<Row> {
    let scored = reply.attempts.iter().any(|attempt| attempt.score.is_some());
    let mut head = vec!["#", "attempt", "checks", "lines", "files", "time", "memory"];
    if scored {
        head.insert(WORDS, "score");
    }
    let mut rows = vec![Row { cells: head.into_iter().map(str::to_owned).collect() }];
    rows.extend(reply.attempts.iter().map(|attempt| row(attempt, scored)));
    let not_run = reply.base.not_run.as_ref().map(|_| "not run".to_owned());
    let said = Some(signs(&reply.base.checks)).filter(|signs| !signs.is_empty());
    let said: Vec<String> = said.into_iter().chain(not_run).collect();
    if !said.is_empty() {
        let cells = vec![String::new(), "(base)".to_owned(), said.join(" ")];
        rows.push(Row { cells });
    }
    rows
}

fn row(attempt: &AttemptReport, scored: bool) -> Row {
    let place = attempt.rank.map_or_else(|| "–".to_owned(), |rank| rank.to_string());
    let mut cells = vec![place, short(&attempt.name), state(attempt)];
    if scored {
        cells.push(attempt.score.map_or_else(|| "–".to_owned(), number));
    }
    if attempt.sandbox.is_some() {
        cells.push(attempt.lines_changed.to_string());
        cells.push(attempt.files_changed.to_string());
        cells.push(duration(attempt.usage.wall_ms));
        cells.push(format_bytes(attempt.usage.memory_peak_bytes));
    }
    Row { cells }
}

/// One sign per check, or how the command itself ended.
fn state(attempt: &AttemptReport) -> String {
    match (attempt.checks.as_slice(), attempt.exit) {
        ([], Some(exit)) => format!("exit {exit}"),
        ([], None) if attempt.sandbox.is_none() => {
            plain(attempt.why.split(':').next().unwrap_or_default())
        }
        (checks, _) => signs(checks),
    }
}

fn signs(checks: &[CheckReport]) -> String {
    let signs: Vec<&str> = checks.iter().map(|check| sign(check.result)).collect();
    // Beyond a handful, counting is easier than reading.
    if signs.len() <= SIGNS_MAX {
        return signs.join(" ");
    }
    let passed = signs.iter().filter(|sign| **sign == "✓").count();
    format!("✓ {passed}/{}", signs.len())
}

/// What a check said, as a sign.
pub fn sign(result: CheckResult) -> &'static str {
    match result {
        CheckResult::Pass => "✓",
        CheckResult::Fail => "✗",
        CheckResult::Error => "!",
        CheckResult::Flaky => "~",
    }
}

/// Which sign belongs to which check, and what the signs mean.
fn legend(reply: &TryReply) -> String {
    let own = reply.attempts.iter().map(|attempt| &attempt.checks);
    let Some(checks) = own.chain([&reply.base.checks]).find(|checks| !checks.is_empty()) else {
        return String::new();
    };
    let name = |check: &CheckReport| match check.required {
        true => plain(&check.name),
        false => format!("({})", plain(&check.name)),
    };
    let names: Vec<String> = checks.iter().map(name).collect();
    let optional =
        if checks.iter().all(|check| check.required) { "" } else { " · () not required" };
    wrap(&format!("checks: {} · ✓ pass ✗ fail ! error ~ flaky{optional}", names.join(" ")))
}

/// What the command or its first bad check printed: from the first line that
/// names a failure on, or else the end.
fn telling_lines(attempt: &AttemptReport) -> String {
    let check = attempt.checks.iter().find(|check| !check.output.is_empty());
    let output = match (attempt.output.is_empty(), check) {
        (false, _) => &attempt.output,
        (true, Some(check)) => &check.output,
        (true, None) => return String::new(),
    };
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.iter().position(|line| is_telling(line));
    let from = from.unwrap_or(lines.len().saturating_sub(OUTPUT_LINES));
    let shown = lines.iter().skip(from).take(OUTPUT_LINES);
    shown.map(|line| format!("  | {}\n", cut(plain(line).trim_end(), WIDTH - 4))).collect()
}

/// Compilers say what is wrong first and draw pictures of it afterwards.
fn is_telling(line: &str) -> bool {
    let line = line.to_lowercase();
    ["error", "failed", "panicked"].iter().any(|word| line.contains(word))
}

/// Files that several attempts changed.
pub fn overlap(reply: &TryReply, shown: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for one in reply.overlap.iter().take(OVERLAP_LINES) {
        let what = match (one.same, one.joins) {
            (true, _) => "same",
            (false, true) => "joins",
            (false, false) => "clash",
        };
        let names: Vec<String> = one.attempts.iter().map(|name| plain(name)).collect();
        text.push_str(&format!("{what:<5}  {}  ({})\n", shown(&one.path), names.join(" ")));
    }
    if let Some(more) = reply.overlap.len().checked_sub(OVERLAP_LINES).filter(|more| *more > 0) {
        text.push_str(&format!("… and {} more\n", plural(more, "file")));
    }
    text
}

/// Lines up rows; numbers stand at the right of their columns.
fn aligned(rows: &[Row]) -> String {
    let count = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column));
        cells.map(|cell| columns_of(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cell = |(column, cell): (usize, &String)| match column {
            1..WORDS => padded(cell, widths[column]),
            _ => format!("{cell:>width$}", width = widths[column]),
        };
        let line: Vec<String> = row.cells.iter().enumerate().map(cell).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn short(name: &str) -> String {
    cut(&plain(name), NAME_MAX)
}

/// Breaks a line between words; what follows is indented.
pub fn wrap(text: &str) -> String {
    wrapped(text, WIDTH, "  ").iter().map(|line| format!("{line}\n")).collect()
}

/// Scores as people write them.
fn number(score: f64) -> String {
    let text = format!("{score:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.chars().count() <= 12 { text.to_owned() } else { format!("{score:.3e}") }
}

/// `340 ms`, `4.2 s`, `3 m 05 s`, `2 h 46 m`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} m {:02} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {:02} m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests;
