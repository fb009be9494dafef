//! A record as a file.
//!
//! Words and times are written plainly, every other text in double quotes with
//! all that is not printable escaped: whatever a title holds, it reads back as
//! it was and ends nothing early. The order of keys is the one in which a
//! person asks.

use super::fields::KEYS;
use super::value::Value;
use super::{Record, Relation, Stamp, Thing, parse_time_ms};
use fractal_model::format_iso_ms;
use std::collections::HashSet;
use std::fmt::Write;

/// A record that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// What a record has fields for. The lines of relations mean nothing here.
    pub record: Record,
    /// Further keys, written between those of the record and its relations. A
    /// key that a record has a field for is left out.
    pub extra: Vec<(String, Value)>,
    /// What follows the head, after an empty line.
    pub body: String,
}

impl Draft {
    /// A draft without further keys.
    pub fn new(record: Record, body: impl Into<String>) -> Draft {
        Draft { record, extra: Vec::new(), body: body.into() }
    }
}

/// Writes a record. What [`super::read`] makes of it is the same record; times
/// keep their seconds, texts that are empty are left out.
pub fn compose(draft: &Draft) -> String {
    let mut text = String::from("---\n");
    for (key, value) in keys(draft) {
        let _ = writeln!(text, "{}:{}", scalar(&key), under(&value));
    }
    text.push_str("---\n");
    if !draft.body.is_empty() {
        text.push('\n');
        text.push_str(&draft.body);
        if !draft.body.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

fn keys(draft: &Draft) -> Vec<(String, Value)> {
    let record = &draft.record;
    let text = |text: &str| (!text.is_empty()).then(|| Value::from(text));
    let list = |items: Vec<Value>| (!items.is_empty()).then_some(Value::List(items));
    let mut keys = Vec::new();
    let mut put = |key: &str, value: Option<Value>| {
        keys.extend(value.map(|value| (key.to_owned(), value)));
    };
    put("type", Some(Value::from(record.kind.name())));
    put("id", record.id.map(|id| Value::from(id.as_str())));
    put("title", text(&record.title));
    put("description", text(&record.description));
    put("status", text(&record.status));
    put("outcome", text(&record.outcome));
    put("stage", text(&record.stage));
    put("tags", list(record.tags.iter().map(|tag| Value::from(tag.as_str())).collect()));
    put("generated", record.generated.as_ref().map(stamp));
    put("verified", list(record.verified.iter().map(stamp).collect()));
    put("stale_after", record.stale_after_ms.and_then(time));
    put("sandbox", record.sandbox.as_deref().and_then(text));
    put("signature", record.signature.as_deref().and_then(text));
    let mut seen: HashSet<&str> = KEYS.into_iter().collect();
    for (key, value) in draft.extra.iter().filter(|(key, _)| seen.insert(key)) {
        put(key, Some(value.clone()));
    }
    put("relations", list(record.relations.iter().map(relation).collect()));
    keys
}

fn stamp(stamp: &Stamp) -> Value {
    let by = (!stamp.by.is_empty()).then(|| ("by".to_owned(), Value::from(stamp.by.as_str())));
    let at = stamp.at_ms.and_then(time).map(|at| ("at".to_owned(), at));
    Value::Map(by.into_iter().chain(at).collect())
}

/// A time, unless it lies in a year that nobody could read back.
fn time(ms: u64) -> Option<Value> {
    let text = format_iso_ms(ms);
    parse_time_ms(&text).map(|_| Value::from(text))
}

/// A relation as an entry of its list.
pub(super) fn relation(relation: &Relation) -> Value {
    let thing = relation.thing.as_ref().map(|thing| match thing {
        Thing::File(path) => ("file", path.as_str()),
        Thing::Package(name) => ("package", name.as_str()),
        Thing::Sandbox(name) => ("sandbox", name.as_str()),
    });
    let pairs = [
        Some(("type", relation.kind.as_str())),
        relation.id.as_ref().map(|id| ("id", id.as_str())),
        relation.path.as_deref().map(|path| ("path", path)),
        thing,
    ];
    let pair = |(key, text): (&str, &str)| (key.to_owned(), Value::from(text));
    Value::Map(pairs.into_iter().flatten().map(pair).collect())
}

/// What follows a key and its colon: a value on the same line, or a list or
/// map with a line for each entry. There is no line break at its end.
pub(super) fn under(value: &Value) -> String {
    let is_long = |item: &Value| matches!(item, Value::List(_) | Value::Map(_));
    match value {
        Value::List(items) if items.iter().any(is_long) => {
            items.iter().map(|item| format!("\n  - {}", inline(item))).collect()
        }
        Value::Map(pairs) if pairs.iter().any(|(_, value)| is_long(value)) => {
            let line =
                |(key, value): &(String, Value)| format!("\n  {}: {}", scalar(key), inline(value));
            pairs.iter().map(line).collect()
        }
        value => format!(" {}", inline(value)),
    }
}

/// A value on one line.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(yes) => yes.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Text(text) => scalar(text),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(pairs) => {
            let pair =
                |(key, value): &(String, Value)| format!("{}: {}", scalar(key), inline(value));
            let pairs: Vec<String> = pairs.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// With a point and a signed exponent, without which older parsers see a text.
fn float(number: f64) -> String {
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{digits}{point}e{sign}{exponent}")
}

/// A text, in quotes unless it is a word or a time.
pub(super) fn scalar(text: &str) -> String {
    if is_word(text) || is_time(text) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            letter if is_unprintable(letter) => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether every parser takes it as a text as it stands, in a list as well.
fn is_word(text: &str) -> bool {
    const TAKEN: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    text.len() <= 100
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && !TAKEN.iter().any(|taken| taken.eq_ignore_ascii_case(text))
}

fn is_time(text: &str) -> bool {
    parse_time_ms(text).is_some_and(|ms| format_iso_ms(ms) == text)
}

/// Controls, and what ends a line or turns it around without being seen. All
/// of them fit into four hexadecimal digits.
pub(crate) fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
        || matches!(letter, '\u{FEFF}' | '\u{FFFE}' | '\u{FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_times_stand_plainly_and_all_else_in_quotes() {
        let check = |text: &str, written: &str| assert_eq!(scalar(text), written);
        check("failed-with", "failed-with");
        check("src/lib.rs", "src/lib.rs");
        check("2026-11-15T20:43:57Z", "2026-11-15T20:43:57Z");
        check("2026-11-15", "\"2026-11-15\"");
        check("", "\"\"");
        check("No", "\"No\"");
        check("../x.md", "\"../x.md\"");
        check("two words", "\"two words\"");
        check("a\n---\nb: \"c\" \\ #", "\"a\\n---\\nb: \\\"c\\\" \\\\ #\"");
        check("\0\u{7f}\u{85}\u{2028}", "\"\\u0000\\u007F\\u0085\\u2028\"");
    }

    #[test]
    fn numbers_are_numbers_for_older_parsers_too() {
        let check = |number: f64, written: &str| assert_eq!(float(number), written);
        check(1.0, "1.0");
        check(0.1, "0.1");
        check(1e-9, "1.0e-9");
        check(2.5e300, "2.5e+300");
        check(f64::NEG_INFINITY, "-.inf");
    }
}
