//! The two pages that are made from the records of a bundle.
//!
//! The same records give the same bytes, whoever makes them and when, and a
//! page is only written if it would differ: so neither git nor a watcher sees
//! changes where there are none. A page that somebody wrote by hand is left
//! alone.

use super::place::{self, Dir, Over};
use super::{Bundle, PROBLEM};
use crate::record::{Kind, Record, Stamp, TITLE_CHARS_MAX, is_unprintable, read};
use crate::{IndexError, Result};
use fractal_model::format_iso_ms;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const INDEX: &str = "index.md";
const LOG: &str = "log.md";
/// By which a page of ours is known.
const NOTE: &str = "generated from the records, edits are lost";
/// The version of the Open Knowledge Format that is written.
const OKF_VERSION: &str = "0.2";
/// A page that lists more than this for a kind is no longer read.
const LISTED_MAX: usize = 500;
const LOGGED_MAX: usize = 1000;
/// What is longer was not made here.
const PAGE_BYTES_MAX: u64 = 64 << 20;
const DESCRIPTION_CHARS_MAX: usize = 200;

/// What became of the generated pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Those that were written.
    pub written: Vec<PathBuf>,
    /// Those that somebody wrote by hand, and that were left as they are.
    pub kept: Vec<PathBuf>,
}

/// Whether a file is a page that is made from records, not a record.
pub fn is_generated(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX || name == LOG)
}

/// What the pages say about a record.
struct Summary {
    link: String,
    record: Record,
}

impl Bundle {
    /// Makes `index.md` and `log.md` anew. Records that cannot be opened are
    /// left out.
    pub fn refresh(&self) -> Result<Refreshed> {
        let listing = self.records();
        let records: Vec<_> = listing.files.iter().filter_map(|path| self.summary(path)).collect();
        let problems = listing.bundles.iter().map(|dir| dir.join(PROBLEM));
        let bundles: Vec<_> = problems.filter_map(|path| self.summary(&path)).collect();
        let mut refreshed = Refreshed::default();
        let index = self.index(&records, &bundles);
        self.put(INDEX, &index, &mut refreshed)?;
        if let Some(log) = log(&records) {
            self.put(LOG, &log, &mut refreshed)?;
        }
        Ok(refreshed)
    }

    fn summary(&self, path: &Path) -> Option<Summary> {
        let (bytes, _) = self.read(path).ok()?;
        let name = path.file_name()?.to_string_lossy();
        let link = link(path.strip_prefix(&self.dir).ok()?);
        Some(Summary { link, record: read(&bytes, &name).record })
    }

    fn put(&self, name: &str, text: &str, refreshed: &mut Refreshed) -> Result<()> {
        let dir = Dir::open(&self.dir)?;
        let path = self.dir.join(name);
        let over = match dir.file(OsStr::new(name)) {
            Ok((file, _, mode)) => {
                let old = place::read(file, &path, PAGE_BYTES_MAX)?;
                if old == text.as_bytes() {
                    return Ok(());
                }
                if !String::from_utf8_lossy(&old).contains(NOTE) {
                    refreshed.kept.push(path);
                    return Ok(());
                }
                Over::File { mode }
            }
            Err(IndexError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Over::Nothing
            }
            Err(IndexError::NotAFile { .. }) => {
                refreshed.kept.push(path);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match dir.write(name, text.as_bytes(), over) {
            // Somebody else makes the same page at the same time.
            Err(IndexError::Exists { .. }) => Ok(()),
            written => {
                refreshed.written.push(written?);
                Ok(())
            }
        }
    }

    fn index(&self, records: &[Summary], bundles: &[Summary]) -> String {
        let mut page = String::new();
        // In a bundle within another one no index may have a head.
        if self.parent().is_none() {
            let _ = write!(page, "---\nokf_version: \"{OKF_VERSION}\"\n---\n\n");
        }
        let (problem, rest): (Vec<_>, Vec<_>) = records.iter().partition(|it| it.link == PROBLEM);
        for problem in problem {
            let Record { title, description, .. } = &problem.record;
            let _ = write!(page, "# {}\n\n", line(title, TITLE_CHARS_MAX));
            if !description.is_empty() {
                let _ = write!(page, "{}\n\n", line(description, TITLE_CHARS_MAX));
            }
        }
        let _ = writeln!(page, "About [the problem]({PROBLEM}). This page is {NOTE}.");
        let mut sections: BTreeMap<(usize, String), Vec<&Summary>> = BTreeMap::new();
        for summary in rest {
            sections.entry(section(&summary.record.kind)).or_default().push(summary);
        }
        if !bundles.is_empty() {
            sections.insert((usize::MAX, "Problems within".to_owned()), bundles.iter().collect());
        }
        for ((_, heading), mut summaries) in sections {
            summaries.sort_by_key(|it| (std::cmp::Reverse(written_ms(&it.record)), &it.link));
            let _ = write!(page, "\n## {}\n\n", line(&heading, TITLE_CHARS_MAX));
            for summary in summaries.iter().take(LISTED_MAX) {
                let _ = writeln!(page, "* {}", entry(summary));
            }
            if let more @ 1.. = summaries.len().saturating_sub(LISTED_MAX) {
                let _ = writeln!(page, "* … and {more} older ones");
            }
        }
        page
    }
}

/// Under which heading a kind stands: what is settled comes before what was
/// tried.
fn section(kind: &Kind) -> (usize, String) {
    let (place, heading) = match kind {
        Kind::Problem => (0, "Problems"),
        Kind::Decision => (1, "Decisions"),
        Kind::Pattern => (2, "Patterns"),
        Kind::Insight => (3, "Insights"),
        Kind::Experiment => (4, "Experiments"),
        Kind::Failure => (5, "Failures"),
        Kind::Other(name) => (6, name.as_str()),
        Kind::Document => (7, "Pages"),
    };
    (place, heading.to_owned())
}

fn written_ms(record: &Record) -> Option<u64> {
    record.generated.as_ref()?.at_ms
}

fn entry(summary: &Summary) -> String {
    let Record { outcome, stage, status, description, .. } = &summary.record;
    let words: Vec<_> = [outcome, stage, status].into_iter().filter(|it| !it.is_empty()).collect();
    let words: Vec<_> = words.iter().map(|word| line(word, DESCRIPTION_CHARS_MAX)).collect();
    let mut text = linked(summary);
    if !words.is_empty() {
        let _ = write!(text, " - {}", words.join(", "));
    }
    if !description.is_empty() {
        let _ = write!(text, " - {}", line(description, DESCRIPTION_CHARS_MAX));
    }
    text
}

fn linked(summary: &Summary) -> String {
    format!("[{}]({})", line(&summary.record.title, TITLE_CHARS_MAX), summary.link)
}

/// The history by day, the newest first; none without a record that says when
/// it was written, because a log without a day is no log.
fn log(records: &[Summary]) -> Option<String> {
    let mut events: Vec<(u64, &str, String)> = Vec::new();
    for summary in records {
        let mut happened = |word: &str, stamp: &Stamp| {
            let Some(at_ms) = stamp.at_ms else { return };
            let by = line(&stamp.by, TITLE_CHARS_MAX);
            let by = if by.is_empty() { by } else { format!(" by {by}") };
            events.push((at_ms, &summary.link, format!("* **{word}**: {}{by}", linked(summary))));
        };
        let kind = line(summary.record.kind.name(), TITLE_CHARS_MAX);
        summary.record.generated.iter().for_each(|stamp| happened(&kind, stamp));
        summary.record.verified.iter().for_each(|stamp| happened("Confirmed", stamp));
    }
    events.sort_by(|one, other| {
        let newest_first = other.0.cmp(&one.0);
        newest_first.then_with(|| (one.1, &one.2).cmp(&(other.1, &other.2)))
    });
    // A log holds nothing but days and entries, so its title has to say it.
    let mut page = format!("# Log, {NOTE}\n");
    let mut day = String::new();
    for (at_ms, _, text) in events.iter().take(LOGGED_MAX) {
        let time = format_iso_ms(*at_ms);
        let (date, _) = time.split_once('T')?;
        if date != day {
            day = date.to_owned();
            let _ = write!(page, "\n## {day}\n\n");
        }
        let _ = writeln!(page, "{text}");
    }
    if let more @ 1.. = events.len().saturating_sub(LOGGED_MAX) {
        let _ = writeln!(page, "* … and {more} older entries");
    }
    (!events.is_empty()).then_some(page)
}

/// Somebody's text on one line, with nothing in it that Markdown understands.
fn line(text: &str, chars_max: usize) -> String {
    let mut safe = String::new();
    let mut letters = text.split_whitespace().flat_map(|word| [" ", word]).collect::<String>();
    letters.retain(|letter| !is_unprintable(letter));
    let letters = letters.trim();
    for letter in letters.chars().take(chars_max) {
        if "\\[]<>&*_`#!|~".contains(letter) {
            safe.push('\\');
        }
        safe.push(letter);
    }
    if letters.chars().nth(chars_max).is_some() {
        safe.push('…');
    }
    safe
}

/// A path as the target of a link, in which only the plainest letters stand
/// for themselves.
fn link(path: &Path) -> String {
    let parts = path.iter().map(|part| {
        let mut text = String::new();
        for byte in part.as_encoded_bytes() {
            match byte {
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) => {
                    text.push(char::from(*byte));
                }
                byte => text.push_str(&format!("%{byte:02X}")),
            }
        }
        text
    });
    parts.collect::<Vec<_>>().join("/")
}
