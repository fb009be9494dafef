//! Records that nobody would think of, for the tests that need many.

use fractal_index::record::{Draft, Kind, Record, Relation, Stamp, Thing, Value};
use fractal_model::Id;
use proptest::prelude::*;

/// Any text, and more often the kind that breaks out of quotes.
pub fn text() -> impl Strategy<Value = String> {
    let hostile = prop::sample::select(vec![
        "---",
        "\n---\n",
        "\r\n",
        "\"",
        "'",
        "\\",
        ": ",
        " #",
        "[",
        "]",
        "{",
        "}",
        ",",
        "- ",
        "*a",
        "&a",
        "!!str",
        "|",
        ">",
        "%",
        "@",
        "`",
        "\0",
        "\u{7}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{202e}",
        "\u{10ffff}",
        "é",
        "日本",
        "null",
        "yes",
        "1e3",
        "\t",
        "'; DROP TABLE records;--",
        "MATCH (n) DETACH DELETE n",
        "<!-- ",
        "${x}",
        "\\u0041",
        "<<<<<<< HEAD",
        "~",
        "? ",
    ]);
    prop_oneof![
        "[a-z]{1,8}",
        any::<String>(),
        prop::collection::vec(hostile, 1..6).prop_map(|parts| parts.concat()),
    ]
}

/// A text that says something.
pub fn words() -> impl Strategy<Value = String> {
    text().prop_filter("says nothing", |text| !text.trim().is_empty())
}

fn time_ms() -> impl Strategy<Value = u64> {
    (0u64..253_402_300_800).prop_map(|seconds| seconds * 1000)
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (text(), prop::option::of(time_ms())).prop_map(|(by, at_ms)| Stamp { by, at_ms })
}

fn id() -> impl Strategy<Value = Id> {
    (any::<u64>(), any::<[u8; 10]>()).prop_map(|(time, random)| Id::from_parts(time, random))
}

pub fn relation() -> impl Strategy<Value = Relation> {
    let thing = prop_oneof![
        text().prop_map(Thing::File),
        text().prop_map(Thing::Package),
        text().prop_map(Thing::Sandbox),
    ];
    (words(), prop::option::of(id()), text(), prop::option::of(thing))
        .prop_map(|(kind, id, path, thing)| Relation { kind, id, path: Some(path), thing, line: 0 })
}

pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_filter("equals nothing", |n| !n.is_nan()).prop_map(Value::Float),
        text().prop_map(Value::Text),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let pairs = prop::collection::btree_map(text(), inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::List),
            pairs.prop_map(|pairs| Value::Map(pairs.into_iter().collect())),
        ]
    })
}

prop_compose! {
    fn labels()(
        title in words(), description in text(), status in text(), outcome in text(),
        stage in text(), tags in prop::collection::vec(text(), 0..4),
    ) -> Record {
        Record { description, status, outcome, stage, tags, ..Record::new(Kind::Problem, title) }
    }
}

prop_compose! {
    pub fn record()(
        labels in labels(), kind in words(), id in prop::option::of(id()),
        generated in prop::option::of(stamp()), verified in prop::collection::vec(stamp(), 0..3),
        stale_after_ms in prop::option::of(time_ms()),
        sandbox in prop::option::of(words()), signature in prop::option::of(words()),
        relations in prop::collection::vec(relation(), 0..4),
    ) -> Record {
        let kind = Kind::parse(&kind);
        Record {
            kind, id, generated, verified, stale_after_ms, sandbox, signature, relations, ..labels
        }
    }
}

prop_compose! {
    pub fn draft()(
        record in record(), extra in prop::collection::btree_map(text(), value(), 0..4),
        body in text(),
    ) -> Draft {
        let is_free = |key: &str| !["type", "id", "title"].contains(&key);
        let extra = extra.into_iter().map(|(key, value)| (format!("x{key}"), value));
        Draft { record, extra: extra.filter(|(key, _)| is_free(key)).collect(), body }
    }
}

/// The same without what depends on where it stands.
pub fn without_lines(mut record: Record) -> Record {
    record.relations.iter_mut().for_each(|relation| relation.line = 0);
    record
}
