//! A head as a tree whose every node knows where it stands.
//!
//! The parser hands out events one by one and calls itself nowhere; the tree
//! that is made of them goes [`DEPTH_MAX`] levels deep and no further. Aliases
//! are not followed, so a head never grows while it is read.

use super::lines::Lines;
use super::value::Value;
use crate::Fault;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};
use std::collections::HashMap;

/// Deeper heads are a mistake or an attack.
const DEPTH_MAX: usize = 32;

/// One value of a head.
pub(super) struct Node {
    /// Its first byte in the head.
    pub from: usize,
    /// The byte behind its last one; the same as `from` where nothing stands.
    pub to: usize,
    /// Its line in the file.
    pub line: u32,
    /// What stands there.
    pub what: What,
}

/// What a node can be.
pub(super) enum What {
    /// A word or text, and whether it stands without quotes.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Node>),
    /// A map, without keys that come again.
    Map(Vec<Entry>),
    /// A reference to another place, which is not followed.
    Alias,
}

/// One key of a map with its value.
pub(super) struct Entry {
    /// The key.
    pub key: String,
    /// Its first byte in the head.
    pub from: usize,
    /// The byte behind it.
    pub to: usize,
    /// Its line in the file.
    pub line: u32,
    /// What it holds.
    pub value: Node,
}

/// A head that could be read.
pub(super) struct Head {
    /// Its outermost value: a map, if all is well.
    pub root: Node,
    /// What is wrong in it and could be left out.
    pub faults: Vec<Fault>,
}

impl Node {
    /// The same without places.
    pub(super) fn value(&self) -> Value {
        match &self.what {
            What::Scalar { text, plain: true } => Value::of_plain(text),
            What::Scalar { text, plain: false } => Value::Text(text.clone()),
            What::List(items) => Value::List(items.iter().map(Node::value).collect()),
            What::Map(entries) => {
                let pair = |entry: &Entry| (entry.key.clone(), entry.value.value());
                Value::Map(entries.iter().map(pair).collect())
            }
            What::Alias => Value::Null,
        }
    }
}

/// Reads a head that begins on line `first_line` of its file. What breaks it
/// as a whole is the error; what can be left out is among its faults.
pub(super) fn parse(text: &str, first_line: u32) -> Result<Head, Fault> {
    let places = Places::of(text, first_line);
    if let Some(at) = text.find('\0') {
        return Err(Fault::at(places.lines.at(at), "the head holds a zero byte: remove it"));
    }
    if let Some(at) = conflict(text) {
        let what = "an unresolved merge conflict: decide for one side of it";
        return Err(Fault::at(places.lines.at(at), what));
    }
    let mut reader =
        Reader { events: Parser::new_from_str(text), places, faults: Vec::new(), depth: 0 };
    let root = reader.document()?;
    Ok(Head { root, faults: reader.faults })
}

/// Where a merge left its marks.
fn conflict(text: &str) -> Option<usize> {
    let mut at = 0;
    text.split_inclusive('\n').find_map(|line| {
        let here = at;
        at += line.len();
        line.starts_with("<<<<<<< ").then_some(here)
    })
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    places: Places<'a>,
    faults: Vec<Fault>,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, Fault> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_none() => {}
                Event::DocumentStart(_) => {
                    let what = "the head holds a second document: keep one";
                    return Err(Fault::at(self.places.line(span.start), what));
                }
                event => root = Some(self.node(event, span)?),
            }
        }
        let nothing = What::Scalar { text: String::new(), plain: true };
        Ok(root.unwrap_or(Node { from: 0, to: 0, line: self.places.lines.at(0), what: nothing }))
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        let event = self.events.next_event().unwrap_or(Ok((Event::StreamEnd, Span::default())));
        event.map_err(|error| {
            let what = format!("the head is no YAML: {}", error.info());
            Fault::at(self.places.line(*error.marker()), what)
        })
    }

    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Node, Fault> {
        let mut from = self.places.byte(span.start);
        let line = self.places.lines.at(from);
        if self.depth == DEPTH_MAX {
            return Err(Fault::at(line, format!("the head goes deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let mut to = self.places.byte(span.end);
        let what = match event {
            Event::Scalar(text, style, _, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                What::Scalar { text: text.into_owned(), plain }
            }
            Event::SequenceStart(..) => {
                // Brackets take room, the beginning of a block does not.
                from = if span.is_empty() { self.places.dash(from) } else { from };
                self.list(&mut to)?
            }
            Event::MappingStart(..) => self.map(&mut to)?,
            _ => {
                self.faults.push(Fault::at(line, "an alias is not followed: write the value out"));
                What::Alias
            }
        };
        self.depth -= 1;
        Ok(Node { from, to, line, what })
    }

    fn list(&mut self, to: &mut usize) -> Result<What, Fault> {
        let mut items: Vec<Node> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                *to = self.end(*to, span, items.last().map(|item| item.to));
                return Ok(What::List(items));
            }
            items.push(self.node(event, span)?);
        }
    }

    fn map(&mut self, to: &mut usize) -> Result<What, Fault> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines = HashMap::new();
        let mut last = None;
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                *to = self.end(*to, span, last);
                return Ok(What::Map(entries));
            }
            let key = self.node(event, span)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span)?;
            last = Some(value.to.max(key.to));
            let Node { from, to, line, what } = key;
            let What::Scalar { text: key, .. } = what else {
                self.faults.push(Fault::at(line, "a key must be a word, and it is left out"));
                continue;
            };
            if let Some(first) = lines.insert(key.clone(), line) {
                let what =
                    format!("`{}` stands on line {first} already, which counts", shown(&key));
                self.faults.push(Fault::at(line, what));
                lines.insert(key, first);
                continue;
            }
            entries.push(Entry { key, from, to, line, value });
        }
    }

    /// Where a list or map ends. The parser says that of a block only when it
    /// sees what follows, so there its last value decides; what it says of
    /// brackets includes blanks and comments behind them.
    fn end(&self, begun: usize, span: Span, last: Option<usize>) -> usize {
        let at = self.places.byte(span.start);
        match self.places.text[at..].starts_with([']', '}']) {
            true => at + 1,
            false => last.unwrap_or(begun).max(begun),
        }
    }
}

/// From the parser's characters to bytes and lines of the file.
struct Places<'a> {
    text: &'a str,
    lines: Lines,
    /// The byte of each character and of the end.
    bytes: Vec<usize>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str, first_line: u32) -> Places<'a> {
        let bytes = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        Places { text, lines: Lines::of(text, first_line), bytes }
    }

    fn byte(&self, marker: Marker) -> usize {
        let last = self.bytes.len() - 1;
        self.bytes[marker.index().min(last)]
    }

    fn line(&self, marker: Marker) -> u32 {
        self.lines.at(self.byte(marker))
    }

    /// The first dash of a list. Of one that is not indented the parser only
    /// says where the first value begins.
    fn dash(&self, at: usize) -> usize {
        let behind = self.text[at..].strip_prefix('-');
        let is_dash = behind.is_some_and(|behind| behind.starts_with([' ', '\t', '\r', '\n']));
        let before = self.text[..at].trim_end_matches([' ', '\t']);
        if is_dash || !before.ends_with('-') { at } else { before.len() - 1 }
    }
}

/// A piece of somebody's text as faults quote it.
pub(super) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut short: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}
