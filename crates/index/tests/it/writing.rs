//! What is written reads back as it was, here and elsewhere.

use crate::drafts::{draft, without_lines};
use fractal_index::record::{Draft, Kind, Record, Relation, Stamp, Thing, Value, compose, read};
use fractal_model::Id;
use proptest::prelude::*;

proptest! {
    #[test]
    fn whatever_is_written_reads_back(draft in draft()) {
        let text = compose(&draft);
        let reading = read(text.as_bytes(), "x.md");
        prop_assert_eq!(&reading.faults, &Vec::new(), "{}", &text);
        prop_assert_eq!(without_lines(reading.record), draft.record, "{}", &text);
        prop_assert_eq!(reading.extra, draft.extra, "{}", &text);
        let body = text[reading.body].strip_prefix('\n').unwrap_or_default();
        let same = body == draft.body || body == format!("{}\n", draft.body);
        prop_assert!(same, "{}", &text);
    }

    #[test]
    fn another_parser_reads_the_same(draft in draft()) {
        let text = compose(&draft);
        let document = okf_core::document::Document::parse(&text)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let title = document.frontmatter.title().map(|title| title.into_owned());
        prop_assert_eq!(title.as_deref(), Some(draft.record.title.as_str()), "{}", &text);
        prop_assert_eq!(document.frontmatter.tags(), draft.record.tags, "{}", &text);
    }
}

#[test]
fn the_head_is_pleasant_to_read() {
    let day = 1_794_775_437_000;
    let record = Record {
        id: Some(Id::from_parts(day, [7; 10])),
        description: "Rows are locked one by one.".to_owned(),
        status: "draft".to_owned(),
        outcome: "failed".to_owned(),
        tags: vec!["io".to_owned(), "two words".to_owned()],
        generated: Some(Stamp { by: "claude".to_owned(), at_ms: Some(day) }),
        verified: vec![Stamp { by: "human:ada".to_owned(), at_ms: Some(day) }],
        sandbox: Some("blue-fox".to_owned()),
        relations: vec![
            relation("fixed-by", Some("../insights/x.md"), None),
            relation("depends-on", None, Some(Thing::Package("serde".to_owned()))),
        ],
        ..Record::new(Kind::Failure, "Deadlock: two \"writers\"")
    };
    let metrics = Value::Map(vec![
        ("seconds".to_owned(), Value::Float(1.5)),
        ("runs".to_owned(), Value::Int(3)),
    ]);
    let extra = vec![("metrics".to_owned(), metrics)];
    let draft = Draft { extra, ..Draft::new(record, "# What happened\n") };
    assert_eq!(
        compose(&draft),
        r##"---
type: Failure
id: "01M7GF7KP80W3GE1R70W3GE1R7"
title: "Deadlock: two \"writers\""
description: "Rows are locked one by one."
status: draft
outcome: failed
tags: [io, "two words"]
generated: {by: claude, at: 2026-11-15T20:43:57Z}
verified:
  - {by: "human:ada", at: 2026-11-15T20:43:57Z}
sandbox: blue-fox
metrics: {seconds: 1.5, runs: 3}
relations:
  - {type: fixed-by, path: "../insights/x.md"}
  - {type: depends-on, package: serde}
---

# What happened
"##
    );
}

fn relation(kind: &str, path: Option<&str>, thing: Option<Thing>) -> Relation {
    Relation { kind: kind.to_owned(), id: None, path: path.map(str::to_owned), thing, line: 0 }
}
