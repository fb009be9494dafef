//! A file as a record.

use super::head::{self, What};
use super::lines::ended_before;
use super::links::{self, Link};
use super::split::split;
use super::value::Value;
use super::{BODY_BYTES_MAX, FAULTS_MAX, Kind, LINKS_MAX, Record, fields};
use crate::Fault;
use std::ops::Range;

/// What a file says, as far as it could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The record.
    pub record: Record,
    /// Keys of the head that a record has no field for, in order.
    pub extra: Vec<(String, Value)>,
    /// What is wrong, by line.
    pub faults: Vec<Fault>,
    /// Links in the body, as far as it is searched.
    pub links: Vec<Link>,
    /// Where the body lies in the bytes.
    pub body: Range<usize>,
    /// Whether there is a head, be it readable or not.
    pub has_head: bool,
}

/// Reads a record. `name` is the name of its file, which is the title of last
/// resort.
pub fn read(bytes: &[u8], name: &str) -> Reading {
    let (parts, fault) = split(bytes);
    let mut faults: Vec<Fault> = fault.into_iter().collect();
    let searched = searched(bytes, parts.body);
    faults.extend(not_utf8(&bytes[..searched.end]));
    let mut record = Record::new(Kind::Document, "");
    let mut extra = Vec::new();
    if let Some((from, to)) = parts.head {
        extra = read_head(&String::from_utf8_lossy(&bytes[from..to]), &mut record, &mut faults);
    }
    let body_line = 1 + ended_before(bytes, parts.body);
    let found = links::scan(&String::from_utf8_lossy(&bytes[searched.clone()]), body_line);
    if let Some(line) = found.too_many_at {
        faults.push(Fault::at(line, format!("more than {LINKS_MAX} links: the rest is left out")));
    }
    if searched.end < bytes.len() {
        let what = format!(
            "the body is longer than {} KiB: what follows is kept and not searched",
            BODY_BYTES_MAX >> 10
        );
        faults.push(Fault::at(1 + ended_before(bytes, searched.end), what));
    }
    if record.title.trim().is_empty() {
        record.title = found.heading.unwrap_or_else(|| readable(name));
    }
    Reading {
        record,
        extra,
        faults: in_order(faults),
        links: found.links,
        body: parts.body..bytes.len(),
        has_head: parts.head.is_some(),
    }
}

fn read_head(text: &str, record: &mut Record, faults: &mut Vec<Fault>) -> Vec<(String, Value)> {
    const FIRST_LINE: u32 = 2;
    let head = match head::parse(text, FIRST_LINE) {
        Ok(head) => head,
        Err(fault) => {
            faults.push(fault);
            return Vec::new();
        }
    };
    faults.extend(head.faults);
    let entries = match head.root.what {
        What::Map(entries) => entries,
        _ if head.root.value() == Value::Null => Vec::new(),
        _ => {
            let what =
                format!("the head is {}, expected lines `key: value`", head.root.value().kind());
            faults.push(Fault::at(head.root.line, what));
            return Vec::new();
        }
    };
    let named = entries.iter().find(|entry| entry.key == "type");
    if named.is_none_or(|entry| is_blank(&entry.value.value())) {
        let line = named.map_or(FIRST_LINE - 1, |entry| entry.line);
        let words = Kind::OURS.map(|kind| kind.name().to_owned()).join(", ");
        let what = format!("`type` is missing: say what this is about ({words} or another word)");
        faults.push(Fault::at(line, what));
    }
    let extra = fields::fill(record, &entries, faults);
    if record.kind.name().is_empty() {
        record.kind = Kind::Document;
    }
    extra
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Text(text) => text.trim().is_empty(),
        _ => false,
    }
}

/// The part of the body that is searched; it ends between two characters.
fn searched(bytes: &[u8], body: usize) -> Range<usize> {
    const CONTINUES: std::ops::RangeInclusive<u8> = 0x80..=0xBF;
    let mut end = bytes.len().min(body.saturating_add(BODY_BYTES_MAX));
    let cut = (end < bytes.len()).then_some(end);
    while end > body && cut.is_some_and(|cut| cut - end < 3) && CONTINUES.contains(&bytes[end]) {
        end -= 1;
    }
    body..end
}

fn not_utf8(bytes: &[u8]) -> Option<Fault> {
    let at = std::str::from_utf8(bytes).err()?.valid_up_to();
    let what = format!("the byte {:#04x} is no UTF-8: save the file as UTF-8", bytes[at]);
    Some(Fault::at(1 + ended_before(bytes, at), what))
}

/// A file name as a title.
fn readable(name: &str) -> String {
    let stem = name.strip_suffix(".md").unwrap_or(name);
    let words: Vec<&str> =
        stem.split(|c: char| c == '-' || c == '_' || c.is_whitespace() || c.is_control()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let text = words.join(" ");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "Untitled".to_owned(),
    }
}

/// By line, without too many of them.
fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort();
    if faults.len() > FAULTS_MAX {
        let more = faults.len() - FAULTS_MAX;
        faults.truncate(FAULTS_MAX);
        faults.push(Fault::of_file(format!("{more} more faults")));
    }
    faults
}
