//! One key of a head changed, and every other byte left as it is.
//!
//! The new bytes are read again before they are given back: if anything but
//! the key in question would read differently, the edit is refused. So a head
//! in a shape that is not foreseen here is never damaged.

use super::compose::{inline, relation, scalar, under};
use super::head::{self, Entry, Node, What};
use super::split::split;
use super::value::Value;
use super::{Relation, read};
use crate::Fault;

const FIRST_LINE: u32 = 2;

/// Sets a key of the head or adds it at the end of the head. Comments, the
/// order of keys and the body stay as they are.
pub fn set_key(bytes: &[u8], key: &str, value: &Value) -> Result<Vec<u8>, Fault> {
    let head = Head::of(bytes)?;
    let entry = head.entries.iter().find(|entry| entry.key == key);
    let text = match entry {
        Some(entry) => head.with_value(entry, &under(value))?,
        None => head.with_line(&format!("{}:{}", scalar(key), under(value))),
    };
    head.replaced_by(&text, key, value)
}

/// Adds a relation; one that is there already is not added again.
pub fn add_relation(bytes: &[u8], added: &Relation) -> Result<Vec<u8>, Fault> {
    const KEY: &str = "relations";
    let head = Head::of(bytes)?;
    let is_same = |relation: &Relation| Relation { line: added.line, ..relation.clone() } == *added;
    if read(bytes, "").record.relations.iter().any(is_same) {
        return Ok(bytes.to_vec());
    }
    let item = relation(added);
    let entry = head.entries.iter().find(|entry| entry.key == KEY);
    let Some((entry, items)) = entry.and_then(|entry| Some((entry, list(&entry.value)?))) else {
        if let Some(entry) = entry.filter(|entry| entry.value.value() != Value::Null) {
            return Err(Fault::at(entry.line, "`relations` is no list: make it one by hand"));
        }
        return set_key(bytes, KEY, &Value::List(vec![item]));
    };
    let all: Vec<Value> = items.iter().map(Node::value).chain([item.clone()]).collect();
    let all = Value::List(all);
    match items.last() {
        Some(last) if head.text[entry.value.from..].starts_with('-') => {
            let start = head.line_start(entry.value.from);
            let indent = &head.text[start..entry.value.from];
            let end = head.line_end(last.to);
            let mut text = head.text[..end].to_owned();
            text.push_str(&format!("{}{indent}- {}", head.line_break(), inline(&item)));
            text.push_str(&head.text[end..]);
            head.replaced_by(&text, KEY, &all)
        }
        _ => set_key(bytes, KEY, &all),
    }
}

fn list(node: &Node) -> Option<&[Node]> {
    match &node.what {
        What::List(items) => Some(items),
        _ => None,
    }
}

/// A head that may be changed, within its file.
struct Head<'a> {
    bytes: &'a [u8],
    from: usize,
    to: usize,
    text: &'a str,
    entries: Vec<Entry>,
    /// Whether lines end as they do on Windows.
    crlf: bool,
}

impl<'a> Head<'a> {
    fn of(bytes: &'a [u8]) -> Result<Head<'a>, Fault> {
        let (parts, fault) = split(bytes);
        let Some((from, to)) = parts.head else {
            return Err(fault.unwrap_or(Fault::at(1, "there is no head: add one by hand")));
        };
        let text = std::str::from_utf8(&bytes[from..to])
            .map_err(|_| Fault::at(FIRST_LINE, "the head is no UTF-8: mend it by hand"))?;
        let head = head::parse(text, FIRST_LINE)?;
        let entries = match head.root.what {
            What::Map(_) if text[head.root.from..].starts_with('{') => {
                return Err(Fault::at(
                    head.root.line,
                    "the head stands in braces: unfold it by hand",
                ));
            }
            What::Map(entries) => entries,
            _ if head.root.value() == Value::Null => Vec::new(),
            _ => return Err(Fault::at(head.root.line, "the head is no map: mend it by hand")),
        };
        let crlf = bytes[..from].ends_with(b"\r\n");
        Ok(Head { bytes, from, to, text, entries, crlf })
    }

    /// The head with another value behind a key. What is said about the key on
    /// its own line stays.
    fn with_value(&self, entry: &Entry, under: &str) -> Result<String, Fault> {
        let gap = &self.text[entry.to..];
        let blanks = gap.len() - gap.trim_start_matches([' ', '\t']).len();
        if !gap[blanks..].starts_with(':') {
            return Err(Fault::at(entry.line, "this key is written in a way that is not edited"));
        }
        let colon = entry.to + blanks + 1;
        let is_empty = entry.value.from == entry.value.to;
        let (from, to) = if is_empty { (colon, colon) } else { (entry.value.from, entry.value.to) };
        let line_end = self.line_end(colon);
        // A comment stays; what announces a text in block form does not.
        let behind = &self.text[colon..line_end];
        let is_comment = from >= line_end && behind.trim_start().starts_with('#');
        let kept = if is_comment { behind } else { "" };
        let rest = match self.text[..to].strip_suffix('\n') {
            // A text in block form ends with its line break.
            Some(before) if to > from => before.strip_suffix('\r').unwrap_or(before).len(),
            _ => to,
        };
        let under = self.indented(under);
        let (first, lines) =
            if under.starts_with(' ') { (under.as_str(), "") } else { ("", under.as_str()) };
        Ok(format!("{}{first}{kept}{lines}{}", &self.text[..colon], &self.text[rest..]))
    }

    /// The head with one more entry at its end.
    fn with_line(&self, line: &str) -> String {
        format!("{}{}{}{}", self.text, self.indent(), self.indented(line), self.line_break())
    }

    fn replaced_by(&self, text: &str, key: &str, value: &Value) -> Result<Vec<u8>, Fault> {
        let mut changed = self.bytes[..self.from].to_vec();
        changed.extend_from_slice(text.as_bytes());
        changed.extend_from_slice(&self.bytes[self.to..]);
        let refused =
            || Fault::at(FIRST_LINE, format!("`{key}` cannot be set here: do it by hand"));
        let again = Head::of(&changed).map_err(|_| refused())?;
        let same_bytes =
            again.from == self.from && changed.len() - again.to == self.bytes.len() - self.to;
        let mut before: Vec<_> = pairs(&self.entries);
        match before.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value.clone(),
            None => before.push((key.to_owned(), value.clone())),
        }
        // Compared as text, because a number that is none equals nothing.
        let is_same = same_bytes && format!("{before:?}") == format!("{:?}", pairs(&again.entries));
        if is_same { Ok(changed) } else { Err(refused()) }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |at| at + 1)
    }

    /// The end of a line without its line break.
    fn line_end(&self, at: usize) -> usize {
        let end = self.text[at..].find('\n').map_or(self.text.len(), |length| at + length);
        if end > at && self.text[..end].ends_with('\r') { end - 1 } else { end }
    }

    fn line_break(&self) -> &'static str {
        if self.crlf { "\r\n" } else { "\n" }
    }

    /// What stands before the keys of this head.
    fn indent(&self) -> &str {
        self.entries.first().map_or("", |first| &self.text[self.line_start(first.from)..first.from])
    }

    fn indented(&self, text: &str) -> String {
        text.replace('\n', &format!("{}{}", self.line_break(), self.indent()))
    }
}

fn pairs(entries: &[Entry]) -> Vec<(String, Value)> {
    entries.iter().map(|entry| (entry.key.clone(), entry.value.value())).collect()
}
