//! Search as files: `/@find/name=*.rs/` is a directory whose entries are links
//! to what `find` would answer.
//!
//! The name of a directory is a question: terms with `&` between them, each
//! `key=value`, all of which must hold. In a value `%2F` stands for a slash
//! and `%XX` for any byte. The answers are found when somebody lists the
//! directory, and are links whose names are the found paths without their
//! first slash and with `%2F` for the others.
//!
//! Every search is bounded; one that finds or looks at more is an error that
//! says so, not a part of the answer.

use super::{Ask, Item, ItemKind, Source};
use crate::error::{Fault, FsError, Kind, shown};
use crate::glob::matches;
use crate::name::NAME_BYTES_MAX;
use crate::view::Vfs;
use bytes::Bytes;
use fractal_model::{EntryKind, SandboxPath, decode_percent};

/// The file beside the questions that tells how to ask.
const HELP: &[u8] = b"HELP";

const HELP_TEXT: &str = "\
The name of a directory here is a question; what is in it are links to what
was found. Terms are joined by `&` and must all hold:

  name=*.rs        the last name matches; * ? [a-z] as in a shell
  path=/src/*      the whole path matches, * also across slashes
  in=/src          only below this directory
  type=f           f for files, d for directories, l for links
  size=+10k        larger than; -10k smaller than; 10k exactly (k, M, G)
  text=needle      a file that holds these bytes

Write %2F for a slash and %26 for an & in a value:

  ls '/@find/in=%2Fsrc&name=*.rs&text=unwrap()'
";

/// How far a search may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindBounds {
    /// The most answers.
    pub found_max: usize,
    /// The most entries that are looked at.
    pub visited_max: usize,
    /// The most bytes of content that are searched.
    pub bytes_max: u64,
}

impl Default for FindBounds {
    fn default() -> FindBounds {
        FindBounds { found_max: 10_000, visited_max: 1_000_000, bytes_max: 1 << 30 }
    }
}

/// Searches the view that it is mounted in; mount it live.
#[derive(Default)]
pub struct Find {
    bounds: FindBounds,
}

impl Find {
    /// Searches with other bounds than the usual ones.
    pub fn new(bounds: FindBounds) -> Find {
        Find { bounds }
    }
}

impl Source for Find {
    fn kind(&self) -> &str {
        "find"
    }

    fn list(&self, at: &SandboxPath, ask: &Ask) -> Result<Vec<Item>, Fault> {
        let mut names = at.components();
        let Some(question) = names.next() else {
            let size = ItemKind::File(Some(HELP_TEXT.len() as u64));
            return Ok(vec![Item { mode: Some(0o444), ..Item::new(HELP, size) }]);
        };
        Search::new(&Question::parse(question)?, &self.bounds, ask).all()
    }

    fn read(&self, at: &SandboxPath, _: &Ask) -> Result<Bytes, Fault> {
        match at.relative() == HELP {
            true => Ok(HELP_TEXT.into()),
            false => Err(Fault::new(Kind::NotFound)),
        }
    }

    fn has_unlisted(&self) -> bool {
        true
    }

    fn stat(&self, at: &SandboxPath, _: &Ask) -> Result<Option<Item>, Fault> {
        match at.parent() {
            Some(parent) if parent == SandboxPath::root() => {
                // Anything with an `=` is meant as a question, and a bad one
                // says why when it is listed.
                let asks = at.relative().contains(&b'=');
                Ok(asks.then(|| Item { mode: Some(0o555), ..Item::dir("") }))
            }
            _ => Ok(None),
        }
    }
}

/// What an entry must be to be an answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Question {
    name: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    below: SandboxPath,
    kind: Option<EntryKind>,
    size: Option<(std::cmp::Ordering, u64)>,
    text: Option<Vec<u8>>,
}

impl Question {
    fn parse(name: &[u8]) -> Result<Question, Fault> {
        let mut question = Question::default();
        for term in name.split(|byte| *byte == b'&') {
            let bad = |why: &str| {
                let reason = format!("{}: {why}; HELP tells how to ask", term.escape_ascii());
                Fault::because(Kind::Invalid, reason)
            };
            let equals = term.iter().position(|byte| *byte == b'=');
            let equals = equals.ok_or_else(|| bad("there is no `=`"))?;
            let value = decode_percent(&term[equals + 1..])
                .ok_or_else(|| bad("a `%` without two digits"))?;
            match &term[..equals] {
                b"name" => question.name = Some(value),
                b"path" => question.path = Some(value),
                b"text" if !value.is_empty() => question.text = Some(value),
                b"in" => {
                    let below = SandboxPath::parse(&value);
                    question.below = below.map_err(|error| bad(&error.to_string()))?;
                }
                b"type" => {
                    question.kind = Some(match &value[..] {
                        b"f" => EntryKind::File,
                        b"d" => EntryKind::Directory,
                        b"l" => EntryKind::Symlink,
                        _ => return Err(bad("types are f, d and l")),
                    });
                }
                b"size" => {
                    question.size = Some(size(&value).ok_or_else(|| bad("that is no size"))?);
                }
                _ => return Err(bad("there is no such key")),
            }
        }
        Ok(question)
    }
}

/// `+10k`, `-3M`, `512`.
fn size(value: &[u8]) -> Option<(std::cmp::Ordering, u64)> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (order, rest) = match value.split_first()? {
        (b'+', rest) => (Greater, rest),
        (b'-', rest) => (Less, rest),
        _ => (Equal, value),
    };
    let (digits, unit) = match rest.split_last()? {
        (b'k', digits) => (digits, 1 << 10),
        (b'M', digits) => (digits, 1 << 20),
        (b'G', digits) => (digits, 1 << 30),
        _ => (rest, 1),
    };
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((order, number.checked_mul(unit)?))
}

struct Search<'a> {
    question: &'a Question,
    bounds: &'a FindBounds,
    view: &'a Vfs,
    /// Where live sources are mounted: they are searched only when the
    /// question points into them, and a search never searches itself.
    live: Vec<SandboxPath>,
    visited: usize,
    bytes: u64,
    found: Vec<Item>,
}

impl<'a> Search<'a> {
    fn new(question: &'a Question, bounds: &'a FindBounds, ask: &Ask<'a>) -> Search<'a> {
        let mounts = ask.view.mounts().into_iter();
        let live = mounts.filter(|mount| match mount.freshness {
            super::Freshness::Frozen => false,
            super::Freshness::Live(_) => {
                mount.source.kind() == "find" || !question.below.is_within(&mount.path)
            }
        });
        let live = live.map(|mount| mount.path).collect();
        Search { question, bounds, view: ask.view, live, visited: 0, bytes: 0, found: Vec::new() }
    }

    fn all(mut self) -> Result<Vec<Item>, Fault> {
        let mut waiting = vec![self.question.below.clone()];
        while let Some(dir) = waiting.pop() {
            let listed = match self.view.list(shown(&dir)) {
                Ok(listed) => listed,
                // A source that fails hides what is in it, as a directory
                // that may not be read does from `find`.
                Err(FsError { kind, .. })
                    if dir != self.question.below && kind != Kind::NotFound =>
                {
                    continue;
                }
                Err(error) => return Err(Fault { kind: error.kind, reason: error.reason }),
            };
            let mut below = Vec::new();
            for listed in listed {
                let Ok(path) = dir.join(listed.name.bytes()) else { continue };
                if self.live.contains(&path) {
                    continue;
                }
                self.visit(&path, listed.name.bytes(), listed.kind)?;
                if listed.kind == EntryKind::Directory {
                    below.push(path);
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(self.found)
    }

    fn visit(&mut self, path: &SandboxPath, name: &[u8], kind: EntryKind) -> Result<(), Fault> {
        self.visited += 1;
        if self.visited > self.bounds.visited_max {
            let reason =
                format!("more than {} entries to look at; ask in=…", self.bounds.visited_max);
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        if !self.answers(path, name, kind)? {
            return Ok(());
        }
        if self.found.len() >= self.bounds.found_max {
            let reason = format!("more than {} answers; ask more closely", self.bounds.found_max);
            return Err(Fault::because(Kind::TooLarge, reason));
        }
        let number = self.found.len();
        self.found.push(Item::link(link_name(path, number), shown(path)));
        Ok(())
    }

    fn answers(&mut self, path: &SandboxPath, name: &[u8], kind: EntryKind) -> Result<bool, Fault> {
        let question = self.question;
        let whole = shown(path);
        let plain = question.kind.is_none_or(|wanted| wanted == kind)
            && question.name.as_ref().is_none_or(|glob| matches(glob, name))
            && question.path.as_ref().is_none_or(|glob| matches(glob, &whole));
        if !plain {
            return Ok(false);
        }
        if let Some((order, wanted)) = question.size {
            let size = self.view.lstat(&whole).map(|stat| stat.size);
            if kind != EntryKind::File || size.is_ok_and(|size| size.cmp(&wanted) != order) {
                return Ok(false);
            }
        }
        match &question.text {
            None => Ok(true),
            Some(_) if kind != EntryKind::File => Ok(false),
            Some(text) => self.holds(&whole, text),
        }
    }

    /// Whether a file holds these bytes; it is read piece by piece.
    fn holds(&mut self, path: &[u8], text: &[u8]) -> Result<bool, Fault> {
        const PIECE: u64 = 1 << 20;
        let (mut at, mut rest) = (0, Vec::new());
        loop {
            // What cannot be read holds nothing.
            let Ok(piece) = self.view.read_range(path, at..at + PIECE) else { return Ok(false) };
            if piece.is_empty() {
                return Ok(false);
            }
            self.bytes += piece.len() as u64;
            if self.bytes > self.bounds.bytes_max {
                let reason = format!(
                    "more than {} bytes to search; ask in=… or name=…",
                    self.bounds.bytes_max
                );
                return Err(Fault::because(Kind::TooLarge, reason));
            }
            at += piece.len() as u64;
            rest.extend_from_slice(&piece);
            if rest.windows(text.len()).any(|window| window == text) {
                return Ok(true);
            }
            // The end of this piece may be the beginning of a find.
            rest.drain(..rest.len().saturating_sub(text.len() - 1));
        }
    }
}

/// The path in one name; one that is too long ends with its number.
fn link_name(path: &SandboxPath, number: usize) -> Vec<u8> {
    let mut name = Vec::new();
    for byte in path.relative() {
        match byte {
            b'/' => name.extend_from_slice(b"%2F"),
            b'%' => name.extend_from_slice(b"%25"),
            byte => name.push(*byte),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        let end = format!("~{number}");
        name.truncate(NAME_BYTES_MAX - end.len());
        name.extend_from_slice(end.as_bytes());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn questions_are_read_or_refused() {
        let parse = |text: &str| Question::parse(text.as_bytes());
        let question =
            parse("in=%2Fsrc&name=*.rs&type=f&size=+10k&text=a%26b").expect("a question");
        assert_eq!(question.below.to_string(), "/src");
        assert_eq!(question.size, Some((Ordering::Greater, 10240)));
        assert_eq!(question.text.as_deref(), Some(&b"a&b"[..]));
        for bad in
            ["name", "colour=red", "type=x", "size=much", "in=%2F..%2F..", "name=%2", "text="]
        {
            assert_eq!(parse(bad).expect_err(bad).kind, Kind::Invalid, "{bad}");
        }
    }
}
