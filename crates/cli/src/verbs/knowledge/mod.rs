//! Verbs about what was learned, and how its records are shown.

pub mod find;
pub mod graph;
pub mod index;
pub mod learned;
pub mod model;
pub mod note;
pub mod skunk;

use crate::bounds::duration;
use crate::session::Session;
use crate::table::plain;
use crate::time::now_ms;
use fractal::model::{Learning, Recorded, format_iso_ms, parse_iso_ms};
use fractal::{Caller, Engine, Error};
use std::path::Path;

/// An ISO time or date, or how long ago.
pub fn moment(text: &str) -> Result<u64, Error> {
    let day = || parse_iso_ms(&format!("{text}T00:00:00Z"));
    match parse_iso_ms(text).or_else(day) {
        Some(ms) if text.contains('-') => Ok(ms),
        _ => duration(text).map(|ago| now_ms().saturating_sub(ago)).map_err(|_| {
            Error::invalid(format!("`{}` is neither a time nor a duration", text.escape_debug()))
                .hint("write 2026-11-15, 2026-11-15T20:43:57Z, or a duration ago like 7d")
        }),
    }
}

/// A file as seen from where we stand, where that is shorter.
pub fn place(session: &Session, file: Option<&str>, root: &str, path: &str) -> String {
    let Some(file) = file else { return plain(&format!("{root}:{path}")) };
    let from_here = Path::new(file).strip_prefix(session.directory());
    plain(&from_here.map_or(file.into(), |path| path.to_string_lossy()))
}

/// The day of a time.
pub fn day(at_ms: Option<u64>) -> String {
    at_ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.10}", format_iso_ms(ms)))
}

/// One line about a record.
pub fn line(one: &Learning) -> Vec<String> {
    let kind = one.kind.to_lowercase();
    // Of a failure nobody asks whether it failed.
    let is_plain = one.outcome.is_empty() || kind == "failure" && one.outcome == "failed";
    let kind = if is_plain { kind } else { format!("{kind}, {}", plain(&one.outcome)) };
    vec![day(one.at_ms), plain(&kind), plain(&one.title)]
}

/// Says where something was written down, or that it was not.
pub fn recorded<'a>(session: &Session, all: impl IntoIterator<Item = &'a Recorded>) {
    for one in all {
        match &one.failed {
            None => session.note(&format!("written down: {}", plain(&one.path))),
            Some(why) => session.complain(&format!(
                "warning: not written down in {}: {}",
                plain(&one.experiment),
                plain(why)
            )),
        }
    }
}

/// Says what is known of something about to be done. That it cannot be known is
/// no reason not to do it.
#[cfg(feature = "knowledge")]
pub fn known(
    session: &Session,
    engine: &Engine,
    caller: &Caller,
    words: impl Iterator<Item = String>,
) {
    let text = words.collect::<Vec<_>>().join(" ");
    match engine.known(caller, &text) {
        Ok(lines) if lines.is_empty() => session.note("known: nothing"),
        Ok(lines) => lines.iter().for_each(|line| session.note(&format!("known: {}", plain(line)))),
        Err(error) => session.note(&format!("known: {}", plain(&error.message))),
    }
}

#[cfg(not(feature = "knowledge"))]
pub fn known(session: &Session, _: &Engine, _: &Caller, _: impl Iterator<Item = String>) {
    session.note("known: nothing (this fractal was built without records)");
}
