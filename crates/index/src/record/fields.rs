//! From the keys of a head to the fields of a record.
//!
//! Every key is looked at by itself: one that holds something else than it
//! should is a fault that names it, what was found and what is expected, and
//! all others are read as if it were not there.

use super::head::{Entry, Node, What, shown};
use super::value::Value;
use super::{RELATIONS_MAX, Record, Relation, Stamp, Thing, parse_time_ms};
use crate::Fault;
use crate::record::Kind;
use fractal_model::Id;

const TEXT: &str = "a text";
const TIME: &str = "a time such as `2026-11-19T07:06:05Z`";
const STAMP: &str = "who and when: `{by: name, at: 2026-11-19T07:06:05Z}`";
const TAGS: &str = "a list of words such as `[io, cache]`";
const RELATIONS: &str = "a list of entries such as `- {type: fixes, id: ...}`";
const TARGET: &str = "`id`, `path`, `file`, `package` or `sandbox`";

/// The keys that a record has fields for.
pub(super) const KEYS: [&str; 14] = [
    "type",
    "id",
    "title",
    "description",
    "status",
    "outcome",
    "stage",
    "tags",
    "generated",
    "verified",
    "stale_after",
    "sandbox",
    "signature",
    "relations",
];

/// Fills a record from a head; what it has no field for is returned.
pub(super) fn fill(
    record: &mut Record,
    entries: &[Entry],
    faults: &mut Vec<Fault>,
) -> Vec<(String, Value)> {
    let mut extra = Vec::new();
    for entry in entries {
        if KEYS.contains(&entry.key.as_str()) {
            Field { key: entry.key.clone(), faults }.read(&entry.value, record);
        } else {
            extra.push((entry.key.clone(), entry.value.value()));
        }
    }
    extra
}

struct Field<'a> {
    /// Its name, as faults say it.
    key: String,
    faults: &'a mut Vec<Fault>,
}

impl Field<'_> {
    fn read(&mut self, node: &Node, record: &mut Record) {
        match self.key.as_str() {
            "type" => record.kind = self.text(node).map_or(Kind::Document, |t| Kind::parse(&t)),
            "id" => record.id = self.id(node),
            "title" => record.title = self.text(node).unwrap_or_default(),
            "description" => record.description = self.text(node).unwrap_or_default(),
            "status" => record.status = self.text(node).unwrap_or_default(),
            "outcome" => record.outcome = self.text(node).unwrap_or_default(),
            "stage" => record.stage = self.text(node).unwrap_or_default(),
            "tags" => record.tags = self.tags(node),
            "generated" => record.generated = self.stamp(node),
            "verified" => record.verified = self.stamps(node),
            "stale_after" => record.stale_after_ms = self.time(node),
            "sandbox" => record.sandbox = self.sandbox(node),
            "signature" => record.signature = self.text(node),
            _ => record.relations = self.relations(node),
        }
    }

    /// A part of it, such as `generated.at`.
    fn part(&mut self, name: &str) -> Field<'_> {
        Field { key: format!("{}.{name}", self.key), faults: self.faults }
    }

    fn expected(&mut self, node: &Node, expected: &str) {
        let found = match (&node.what, node.value()) {
            (What::Alias, _) => return,
            (What::Scalar { text, .. }, value) if value != Value::Null => {
                format!("{} (`{}`)", value.kind(), shown(text))
            }
            (_, value) => value.kind().to_owned(),
        };
        let what = format!("`{}` is {found}, expected {expected}", self.key);
        self.faults.push(Fault::at(node.line, what));
    }

    /// A text; numbers and the like are taken as they are written.
    fn scalar(&mut self, node: &Node, expected: &str) -> Option<String> {
        match &node.what {
            What::Scalar { plain: true, .. } if node.value() == Value::Null => None,
            What::Scalar { text, .. } => Some(text.clone()),
            _ => {
                self.expected(node, expected);
                None
            }
        }
    }

    fn text(&mut self, node: &Node) -> Option<String> {
        self.scalar(node, TEXT)
    }

    fn id(&mut self, node: &Node) -> Option<Id> {
        let text = self.scalar(node, "an id of 26 characters")?;
        let id = Id::parse(&text).ok();
        if id.is_none() {
            self.expected(node, "an id of 26 characters");
        }
        id
    }

    fn time(&mut self, node: &Node) -> Option<u64> {
        let text = self.scalar(node, TIME)?;
        let time = parse_time_ms(&text);
        if time.is_none() {
            self.expected(node, TIME);
        }
        time
    }

    fn tags(&mut self, node: &Node) -> Vec<String> {
        match &node.what {
            What::List(items) => {
                items.iter().filter_map(|item| self.part("*").scalar(item, "a word")).collect()
            }
            _ if node.value() == Value::Null => Vec::new(),
            _ => {
                self.expected(node, TAGS);
                Vec::new()
            }
        }
    }

    /// `{by, at}`, or a time alone.
    fn stamp(&mut self, node: &Node) -> Option<Stamp> {
        match &node.what {
            What::Map(entries) => {
                let by = find(entries, "by").and_then(|by| self.part("by").text(by));
                let at_ms = find(entries, "at").and_then(|at| self.part("at").time(at));
                Some(Stamp { by: by.unwrap_or_default(), at_ms })
            }
            What::Scalar { text, .. } if parse_time_ms(text).is_some() => {
                Some(Stamp { by: String::new(), at_ms: parse_time_ms(text) })
            }
            _ if node.value() == Value::Null => None,
            _ => {
                self.expected(node, STAMP);
                None
            }
        }
    }

    fn stamps(&mut self, node: &Node) -> Vec<Stamp> {
        match &node.what {
            What::List(items) => items.iter().filter_map(|item| self.stamp(item)).collect(),
            _ => self.stamp(node).into_iter().collect(),
        }
    }

    /// A name, or a map that holds one.
    fn sandbox(&mut self, node: &Node) -> Option<String> {
        const EXPECTED: &str = "the name of a sandbox";
        match &node.what {
            What::Map(entries) => match find(entries, "name") {
                Some(name) => self.part("name").scalar(name, EXPECTED),
                None => {
                    self.expected(node, EXPECTED);
                    None
                }
            },
            _ => self.scalar(node, EXPECTED),
        }
    }

    fn relations(&mut self, node: &Node) -> Vec<Relation> {
        let items = match &node.what {
            What::List(items) => items,
            _ if node.value() == Value::Null => return Vec::new(),
            _ => {
                self.expected(node, RELATIONS);
                return Vec::new();
            }
        };
        if let Some(first) = items.get(RELATIONS_MAX) {
            let what = format!("more than {RELATIONS_MAX} relations: the rest is left out");
            self.faults.push(Fault::at(first.line, what));
        }
        items.iter().take(RELATIONS_MAX).filter_map(|item| self.relation(item)).collect()
    }

    fn relation(&mut self, node: &Node) -> Option<Relation> {
        let What::Map(entries) = &node.what else {
            self.expected(node, RELATIONS);
            return None;
        };
        let mut text = |key: &str| find(entries, key).and_then(|node| self.part(key).text(node));
        let kind = text("type").filter(|kind| !kind.trim().is_empty());
        let path = text("path");
        let thing = (text("file").map(Thing::File))
            .or_else(|| text("package").map(Thing::Package))
            .or_else(|| text("sandbox").map(Thing::Sandbox));
        let id = find(entries, "id").and_then(|node| self.part("id").id(node));
        let Some(kind) = kind else {
            self.fault(node, "a relation without `type`: say how the two stand to each other");
            return None;
        };
        if id.is_none() && path.is_none() && thing.is_none() {
            self.fault(
                node,
                &format!("the relation `{}` leads nowhere: give {TARGET}", shown(&kind)),
            );
            return None;
        }
        Some(Relation { kind, id, path, thing, line: node.line })
    }

    fn fault(&mut self, node: &Node, what: &str) {
        self.faults.push(Fault::at(node.line, what));
    }
}

fn find<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Node> {
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
}
