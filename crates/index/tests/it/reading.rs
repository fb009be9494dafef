//! Whatever a file holds, it is read as far as it can be.

use fractal_index::record::{
    BODY_BYTES_MAX, FAULTS_MAX, HEAD_BYTES_MAX, Kind, LINKS_MAX, RELATIONS_MAX, Stamp, Thing, read,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};

#[test]
fn all_that_a_record_can_say_is_read() {
    let text = "---
type: insight
id: 01M8MS978810E1R70W3GE1R70W
title: Locks # not the title
description: >
  one
  sentence
tags: [io, 5]
generated: 2026-11-15
verified: {by: 'human:ada', at: 2026-11-15T20:43:57Z}
stale_after: 2027-01-01
sandbox: {name: blue-fox, id: x}
signature: E0382
relations:
  - type: fixed-by
    path: ../insights/x.md
  - {type: depends-on, package: serde}
  - {type: touches, file: src/lib.rs}
  - {type: tried-in, sandbox: blue-fox}
  - {type: reminds-of, id: 01M8MS978810E1R70W3GE1R70W}
metrics: {seconds: 1.5}
---
# Other
see [x](y.md)
";
    let reading = read(text.as_bytes(), "x.md");
    assert_eq!(reading.faults, []);
    let record = reading.record;
    assert_eq!((record.kind, record.title.as_str()), (Kind::Insight, "Locks"));
    assert_eq!(record.description, "one sentence\n");
    assert_eq!(record.tags, ["io", "5"]);
    let midnight = Some(1_794_700_800_000);
    assert_eq!(record.generated, Some(Stamp { by: String::new(), at_ms: midnight }));
    assert_eq!(record.verified[0].by, "human:ada");
    assert_eq!(record.sandbox.as_deref(), Some("blue-fox"));
    let things: Vec<_> = record.relations.iter().map(|r| (r.line, r.thing.clone())).collect();
    assert_eq!(
        things,
        [
            (15, None),
            (17, Some(Thing::Package("serde".to_owned()))),
            (18, Some(Thing::File("src/lib.rs".to_owned()))),
            (19, Some(Thing::Sandbox("blue-fox".to_owned()))),
            (20, None),
        ]
    );
    assert_eq!(record.relations[4].id, record.id);
    assert_eq!((reading.links[0].target.as_str(), reading.links[0].line), ("y.md", 24));
    assert_eq!(reading.extra[0].0, "metrics");
}

#[test]
fn a_key_of_a_wrong_type_is_named_and_the_rest_is_read() {
    let check = |line: &str, expected: &str| {
        let text = format!("---\ntype: Insight\n{line}\nstage: rest\n---\n");
        let reading = read(text.as_bytes(), "x.md");
        let faults: Vec<_> = reading.faults.iter().map(|f| (f.line, f.what.as_str())).collect();
        assert_eq!(faults, [(Some(3), expected)], "{line}");
        assert_eq!(reading.record.stage, "rest", "{line}");
    };
    check("tags: 5", "`tags` is a number (`5`), expected a list of words such as `[io, cache]`");
    check("tags: [[a]]", "`tags.*` is a list, expected a word");
    check("title: [x]", "`title` is a list, expected a text");
    check(
        "relations: no",
        "`relations` is a text (`no`), expected a list of entries such as `- {type: fixes, id: ...}`",
    );
    check(
        "relations: [{id: 01M8MS978810E1R70W3GE1R70W}]",
        "a relation without `type`: say how the two stand to each other",
    );
    check(
        "relations: [{type: fixes}]",
        "the relation `fixes` leads nowhere: give `id`, `path`, `file`, `package` or `sandbox`",
    );
    check("id: 7", "`id` is a number (`7`), expected an id of 26 characters");
    check(
        "verified: {by: ada, at: soon}",
        "`verified.at` is a text (`soon`), expected a time such as `2026-11-19T07:06:05Z`",
    );
    check(
        "relations: [{type: cites, path: x, id: 7}]",
        "`relations.id` is a number (`7`), expected an id of 26 characters",
    );
    check(
        "stale_after: soon",
        "`stale_after` is a text (`soon`), expected a time such as `2026-11-19T07:06:05Z`",
    );
    check(
        "generated: ada",
        "`generated` is a text (`ada`), expected who and when: `{by: name, at: 2026-11-19T07:06:05Z}`",
    );
    check("sandbox: {id: x}", "`sandbox` is a map, expected the name of a sandbox");
    check("type: Failure", "`type` stands on line 2 already, which counts");
    check("x: [&a x, *a]", "an alias is not followed: write the value out");
}

#[test]
fn a_relation_with_a_broken_id_is_kept_by_its_path() {
    let text =
        "---\ntype: Failure\nrelations:\n  - type: fixed-by\n    id: nope\n    path: x.md\n---\n";
    let reading = read(text.as_bytes(), "x.md");
    assert_eq!(reading.faults[0].line, Some(5));
    assert!(reading.faults[0].what.contains("`nope`"));
    assert_eq!(reading.record.relations[0].path.as_deref(), Some("x.md"));
    assert_eq!(reading.record.relations[0].line, 4);
}

#[test]
fn a_file_without_a_title_has_one() {
    let check = |text: &str, name: &str, title: &str| {
        assert_eq!(read(text.as_bytes(), name).record.title, title, "{text:?}");
    };
    check("---\ntype: X\ntitle: a\n---\n# b\n", "c.md", "a");
    check("---\ntype: X\ntitle: ''\n---\n# b\n", "c.md", "b");
    check("text\n", "how-to_run it.md", "How to run it");
    check("", "-.md", "Untitled");
}

#[test]
fn a_broken_head_is_one_fault_and_the_body_is_read() {
    let check = |head: &str, line: u32, says: &str| {
        let text = format!("---\n{head}\n---\n# Title\n[a](b.md)\n");
        let reading = read(text.as_bytes(), "x.md");
        assert_eq!(reading.faults.len(), 1, "{head}: {:?}", reading.faults);
        assert_eq!(reading.faults[0].line, Some(line), "{head}: {:?}", reading.faults);
        assert!(reading.faults[0].what.contains(says), "{head}: {:?}", reading.faults);
        assert_eq!(reading.record.kind, Kind::Document, "{head}");
        assert_eq!(reading.record.title, "Title", "{head}");
        assert!(reading.has_head && reading.links.len() == 1, "{head}");
    };
    check("type: X\nid: [", 4, "the head is no YAML");
    check("type: \"X", 2, "the head is no YAML");
    check("type: X\n\tid: y", 2, "the head is no YAML");
    check("type: X\n<<<<<<< HEAD\na: 1", 3, "merge conflict");
    check("- a", 2, "the head is a list");
    check("words", 2, "the head is a text");
    check("# nothing", 1, "`type` is missing");
    check("type: X\n...\n--- y", 4, "second document");
    check("type: X\0", 2, "zero byte");
    check("title: Title", 1, "`type` is missing");
    check("title: Title\ntype: ", 3, "`type` is missing");
}

#[test]
fn a_page_without_a_head_is_a_document() {
    let reading = read(b"# Notes\n", "x.md");
    assert_eq!(
        (reading.record.kind, reading.faults, reading.has_head),
        (Kind::Document, vec![], false)
    );
}

#[test]
fn bytes_that_are_no_utf8_are_said_and_read_around() {
    let reading = read(b"---\ntype: Insight\ntitle: caf\xE9\n---\n[a](b)\n", "x.md");
    assert_eq!(reading.record.title, "caf\u{fffd}");
    assert_eq!(reading.faults[0].line, Some(3));
    assert!(reading.faults[0].what.contains("0xe9"));
    let reading = read(b"one\ntwo \xFF\n[a](b)", "x.md");
    assert_eq!((reading.faults[0].line, reading.links[0].line), (Some(2), 3));
}

#[test]
fn more_than_the_limits_is_cut_and_said() {
    let says = |text: &str, what: &str| {
        let reading = read(text.as_bytes(), "x.md");
        assert!(reading.faults.iter().any(|fault| fault.what.contains(what)), "{what}");
        reading
    };
    let long = format!("[in](a)\n\n{}é\n\n[out](b)\n", "x".repeat(BODY_BYTES_MAX - 10));
    let reading = says(&long, "longer than 1024 KiB");
    assert_eq!(reading.links.len(), 1);
    assert_eq!(reading.body, 0..long.len());
    assert_eq!(reading.faults.len(), 1, "{:?}", reading.faults);
    let many = "  - {type: fixes, path: x}\n".repeat(RELATIONS_MAX + 1);
    let reading =
        says(&format!("---\ntype: X\nrelations:\n{many}---\n"), "more than 1000 relations");
    assert_eq!(reading.record.relations.len(), RELATIONS_MAX);
    let reading = says(&"[a](b)\n".repeat(LINKS_MAX + 1), "more than 10000 links");
    assert_eq!(reading.links.len(), LINKS_MAX);
    let reading = says(&format!("---\n{}---\n", "a: 1\n".repeat(300)), "more faults");
    assert_eq!(reading.faults.len(), FAULTS_MAX + 1);
}

#[test]
fn what_is_meant_to_take_for_ever_does_not() {
    let heads = [
        "[",
        "{",
        "- ",
        "? ",
        "- - ",
        "a: [",
        "{a: ",
        "!",
        "&a ",
        "&a [",
        "*a ",
        "'",
        "\"\\",
        "|\n",
        "a:\n ",
        "a: 1\n",
        "k: &a *a\n",
        "#",
        "%",
        "[[",
        "{[",
        "? [",
        "\t",
        "é: ",
        "- {",
        "\r",
        "a: b: ",
        "[a,",
    ];
    let started = Instant::now();
    for part in heads {
        let text = format!("---\ntype: X\n{}\n---\n", part.repeat(HEAD_BYTES_MAX / part.len() - 8));
        let at = Instant::now();
        read(text.as_bytes(), "x.md");
        assert!(at.elapsed() < Duration::from_secs(5), "{part:?} took {:?}", at.elapsed());
    }
    for part in [
        "[", "[a](", "![", "`", "* ", "> ", "<a ", "*_", "[a]: b\n", "| ", "- [", "\\", "&#",
        "<!--", "](", "~~~\n",
    ] {
        let text = part.repeat(BODY_BYTES_MAX / part.len());
        let at = Instant::now();
        read(text.as_bytes(), "x.md");
        assert!(at.elapsed() < Duration::from_secs(5), "{part:?} took {:?}", at.elapsed());
    }
    eprintln!("all of them: {:?}", started.elapsed());
}

#[test]
fn aliases_are_not_followed() {
    let mut text = String::from("---\ntype: Insight\na: &a [x, x, x, x, x, x, x, x, x]\n");
    for (from, to) in ('a'..='y').zip('b'..='z') {
        let many = vec![format!("*{from}"); 9].join(", ");
        text.push_str(&format!("{to}: &{to} [{many}]\n"));
    }
    text.push_str("stage: read\n---\n");
    let reading = read(text.as_bytes(), "x.md");
    assert_eq!(reading.record.stage, "read");
    assert!(reading.faults.iter().all(|f| f.what.contains("alias") || f.what.contains("more")));
}

proptest! {
    #[test]
    fn no_bytes_make_reading_fail(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes, "x.md");
        let head = [b"---\n".as_slice(), &bytes, b"\n---\n"].concat();
        read(&head, "");
    }

    #[test]
    fn no_yaml_makes_reading_fail(head in "[-a-c:{}\\[\\],\\n '\"#&*|>?!%é\\t]{0,80}") {
        let text = format!("---\n{head}\n---\nbody\n");
        let reading = read(text.as_bytes(), "x.md");
        prop_assert!(reading.faults.iter().all(|fault| fault.line.is_none_or(|line| line < 90)));
    }
}
