//! One key changes and nothing else does.

use crate::drafts::{draft, relation, text, value};
use fractal_index::record::{Relation, Thing, Value, add_relation, compose, read, set_key};
use proptest::prelude::*;

fn edited(text: &str, key: &str, value: &Value) -> String {
    let bytes = set_key(text.as_bytes(), key, value).expect("it can be edited");
    String::from_utf8(bytes).expect("it stays UTF-8")
}

#[test]
fn a_key_is_set_where_it_stands() {
    let check = |head: &str, value: Value, expected: &str| {
        let text = format!("---\n{head}---\nbody\n");
        assert_eq!(edited(&text, "status", &value), format!("---\n{expected}---\nbody\n"));
    };
    let stable = || Value::from("stable");
    check("a: 1\nstatus: draft # why\nb: 2\n", stable(), "a: 1\nstatus: stable # why\nb: 2\n");
    check("status:\nb: 2\n", stable(), "status: stable\nb: 2\n");
    check("status: # why\n# more\nb: 2\n", stable(), "status: stable # why\n# more\nb: 2\n");
    check("status: ''\n", stable(), "status: stable\n");
    check("'status' : draft\n", stable(), "'status' : stable\n");
    check("status: |\n  one\n  two\n# c\nb: 2\n", stable(), "status: stable\n# c\nb: 2\n");
    check("status: one\n  two\n\n# c\nb: 2\n", stable(), "status: stable\n\n# c\nb: 2\n");
    check(
        "status: # why\n  - a\n  - b # x\n# c\nb: 2\n",
        stable(),
        "status: stable # why # x\n# c\nb: 2\n",
    );
    check("status: &n \n  - \n", stable(), "status: stable\n");
    check("status: {a: [1,\n  2]} # c\n", stable(), "status: stable # c\n");
    check("  a: é\n  status: draft\n", stable(), "  a: é\n  status: stable\n");
    let list = Value::List(vec![Value::List(vec![]), Value::Int(2)]);
    check("status: draft\nb: 2\n", list.clone(), "status:\n  - []\n  - 2\nb: 2\n");
    check("status: # c\n  x: 1\nb: 2\n", list, "status: # c\n  - []\n  - 2\nb: 2\n");
}

#[test]
fn a_key_that_is_missing_is_added_at_the_end() {
    let check = |head: &str, expected: &str| {
        let text = format!("---\n{head}---\nbody");
        assert_eq!(edited(&text, "k", &Value::Int(1)), format!("---\n{expected}---\nbody"));
    };
    check("a: 1 # c\n\n# end\n", "a: 1 # c\n\n# end\nk: 1\n");
    check("", "k: 1\n");
    check("# only\n", "# only\nk: 1\n");
    check("  a: 1\n", "  a: 1\n  k: 1\n");
    check("a: |+\n  text\n\n", "a: |+\n  text\n\nk: 1\n");
    check("a:\n- x\n", "a:\n- x\nk: 1\n");
}

#[test]
fn lines_end_as_they_did() {
    let text = "---\r\na: 1\r\nstatus: draft # c\r\n---\r\nbody\r\n";
    let list = Value::List(vec![Value::Map(vec![("x".to_owned(), Value::Int(1))])]);
    assert_eq!(
        edited(text, "status", &list),
        "---\r\na: 1\r\nstatus:\r\n  - {x: 1} # c\r\n---\r\nbody\r\n"
    );
    assert_eq!(
        edited(text, "k", &Value::from("v")),
        "---\r\na: 1\r\nstatus: draft # c\r\nk: v\r\n---\r\nbody\r\n"
    );
}

#[test]
fn what_cannot_be_edited_safely_is_refused() {
    let check = |text: &str, line: u32| {
        let fault = set_key(text.as_bytes(), "status", &Value::from("x")).expect_err(text);
        assert_eq!(fault.line, Some(line), "{text}: {}", fault.what);
    };
    check("no head\n", 1);
    check("---\nnever ends\n", 1);
    check("---\na: [\n---\n", 3);
    check("---\n- a\n---\n", 2);
    check("---\n{a: 1}\n---\n", 2);
    check("---\n? status\n: x\n---\n", 2);
    check("---\na: 1\n...\n---\n", 2);
    let big = format!("---\na: \"{}\"\n---\n", "x".repeat(60 << 10));
    let value = Value::from("y".repeat(10 << 10));
    assert!(set_key(big.as_bytes(), "b", &value).is_err());
}

fn touches(file: &str) -> Relation {
    let thing = Some(Thing::File(file.to_owned()));
    Relation { kind: "touches".to_owned(), id: None, path: None, thing, line: 0 }
}

#[test]
fn a_relation_is_added_to_those_that_are_there() {
    let check = |head: &str, expected: &str| {
        let text = format!("---\n{head}---\nbody\n");
        let bytes = add_relation(text.as_bytes(), &touches("a b")).expect("it can be added");
        let found = String::from_utf8(bytes.clone()).expect("it stays UTF-8");
        assert_eq!(found, format!("---\n{expected}---\nbody\n"));
        let again = add_relation(&bytes, &touches("a b")).expect("it is there");
        assert_eq!(again, bytes, "adding it again changes nothing");
    };
    let item = "- {type: touches, file: \"a b\"}\n";
    check("type: X\n", &format!("type: X\nrelations:\n  {item}"));
    check("relations:\ntype: X\n", &format!("relations:\n  {item}type: X\n"));
    check("relations: [] # c\n", "relations:\n  - {type: touches, file: \"a b\"} # c\n");
    check(
        "relations: [{type: cites, path: x}]\ntype: X\n",
        &format!("relations:\n  - {{type: cites, path: x}}\n  {item}type: X\n"),
    );
    check(
        "relations:\n# one\n- type: cites\n  path: x # why\n# end\ntype: X\n",
        &format!("relations:\n# one\n- type: cites\n  path: x # why\n{item}# end\ntype: X\n"),
    );
    check(
        "relations:\n    - {type: cites,\n       path: x} # c\n\ntype: X\n",
        &format!("relations:\n    - {{type: cites,\n       path: x}} # c\n    {item}\ntype: X\n"),
    );
    assert!(add_relation(b"---\nrelations: no\n---\n", &touches("x")).is_err());
}

proptest! {
    #[test]
    fn a_key_is_set_and_all_else_stays(
        draft in draft(), key in text(), value in value(), tail in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = compose(&draft).into_bytes();
        bytes.extend_from_slice(&tail);
        let before = read(&bytes, "x.md");
        for key in [key.as_str(), "status", "relations", "tags"] {
            let Ok(changed) = set_key(&bytes, key, &value) else {
                return Err(TestCaseError::fail(format!("{key} was refused")));
            };
            let after = read(&changed, "x.md");
            prop_assert_eq!(&bytes[before.body.clone()], &changed[after.body]);
        }
    }

    #[test]
    fn a_relation_is_added_and_all_else_stays(draft in draft(), added in relation()) {
        let text = compose(&draft);
        let changed = add_relation(text.as_bytes(), &added).expect("it can be added");
        let (before, after) = (read(text.as_bytes(), "x"), read(&changed, "x"));
        prop_assert_eq!(&text.as_bytes()[before.body], &changed[after.body]);
        prop_assert_eq!(after.faults, vec![]);
        let found = after.record.relations.iter().any(|r| Relation { line: 0, ..r.clone() } == added);
        prop_assert!(found);
        prop_assert_eq!(before.extra, after.extra);
    }
}

/// Heads as people and tools write them, and as nobody should.
fn head() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "status:",
        "relations:",
        "a:",
        " ",
        "  ",
        "\n",
        "\n",
        "\n  - ",
        "\n- ",
        "x",
        "é",
        "\"q\"",
        "'s'",
        "# c",
        " # c\n",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "|\n  t",
        ">-\n  t",
        "&n ",
        "*n",
        "!t ",
        "? ",
        ": ",
        "\r\n",
        "\t",
        "{type: cites, path: x}",
        "type: cites",
        "\n    path: x",
        "---",
        "...",
        "\u{feff}",
    ]);
    prop::collection::vec(parts, 0..14).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_head_makes_editing_fail_or_lose_anything(head in head(), value in value(), added in relation()) {
        let text = format!("---\n{head}\n---\nbody\n");
        let before = read(text.as_bytes(), "x");
        let edits = [
            set_key(text.as_bytes(), "status", &value),
            set_key(text.as_bytes(), "new", &value),
            add_relation(text.as_bytes(), &added),
        ];
        for changed in edits.into_iter().flatten() {
            let after = read(&changed, "x");
            prop_assert_eq!(&text.as_bytes()[before.body.clone()], &changed[after.body]);
            let others = |extra: Vec<(String, Value)>| -> Vec<_> {
                extra.into_iter().filter(|(key, _)| key != "new").collect()
            };
            prop_assert_eq!(others(before.extra.clone()), others(after.extra));
        }
    }
}
