//! How much there is, and what it takes.

use crate::support::{add_layer, add_sandbox, home, open, sandbox_row};
use fractal_model::Id;
use fractal_store::{Reads, SandboxRow, Store};
use std::fs;

const MIB: u64 = 1 << 20;

#[test]
fn layers_are_measured_also_while_they_are_written_to() {
    let home = home();
    let store = open(&home);
    let row = add_sandbox(&store, "a", None);
    let before = store.measure_layers().unwrap();
    fs::write(store.layer_tree(row.top).join("f"), vec![1; MIB as usize]).unwrap();
    let after = store.measure_layers().unwrap();
    assert!((before + MIB..before + 2 * MIB).contains(&after), "{before} {after}");
    // Nobody notes what may change.
    assert_eq!(store.census().unwrap().layer_bytes, 0);
    store.transact(|tx| tx.seal_layer(row.top, 0)).unwrap();
    assert_eq!(store.measure_layers().unwrap(), after);
    assert_eq!(store.census().unwrap().layer_bytes, after, "a sealed one is noted");
    assert_eq!(store.measure_layers().unwrap(), after, "and not counted twice");
    // A layer whose directory is gone takes nothing, and hides no other.
    let other = add_sandbox(&store, "b", None);
    fs::remove_dir_all(store.layer_tree(other.top)).unwrap();
    assert_eq!(store.measure_layers().unwrap(), after);
}

/// A sandbox whose id says that it was made at this time; ids of one
/// millisecond have no order.
fn add_at(store: &Store, time_ms: u64, name: &str) -> SandboxRow {
    let row = SandboxRow {
        id: Id::from_parts(time_ms, [0; 10]),
        ..sandbox_row(name, None, add_layer(store, None))
    };
    store.transact(|tx| tx.insert_sandbox(&row)).unwrap();
    row
}

/// The names of all pages, with something happening between them.
fn walk(store: &Store, tenant: Option<&str>, between: impl Fn(usize)) -> Vec<String> {
    let (mut names, mut after): (Vec<String>, Option<Id>) = (Vec::new(), None);
    for number in 0.. {
        let page = store.sandboxes_after(after, tenant, None, 3).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        names.extend(page.into_iter().map(|row| row.name));
        between(number);
    }
    names
}

#[test]
fn pages_hold_each_sandbox_once_whatever_happens_between_them() {
    let home = home();
    let store = open(&home);
    let names: Vec<String> = (0..10).map(|number| format!("s{number}")).collect();
    let rows: Vec<_> = (1..).zip(&names).map(|(time, name)| add_at(&store, time, name)).collect();
    assert_eq!(walk(&store, None, |_| ()), names);
    // New ones come last, and one that goes takes no other along.
    let seen = walk(&store, None, |number| match number {
        0 => drop(add_at(&store, 100, "new")),
        1 => store.transact(|tx| tx.delete_sandbox(rows[1].id).map(drop)).unwrap(),
        _ => {}
    });
    let expect: Vec<String> = names.iter().cloned().chain(["new".to_owned()]).collect();
    assert_eq!(seen, expect);
}

#[test]
fn a_page_is_of_one_tenant_and_one_template() {
    let home = home();
    let store = open(&home);
    for number in 0..8 {
        let mut row = sandbox_row(&format!("s{number}"), None, add_layer(&store, None));
        row.id = Id::from_parts(number, [0; 10]);
        row.tenant = if number % 2 == 0 { "even" } else { "odd" }.into();
        row.template = if number < 4 { "low" } else { "high" }.into();
        store.transact(|tx| tx.insert_sandbox(&row)).unwrap();
    }
    assert_eq!(walk(&store, Some("odd"), |_| ()), ["s1", "s3", "s5", "s7"]);
    let some = store.sandboxes_after(None, Some("even"), Some("high"), 9).unwrap();
    assert_eq!(some.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["s4", "s6"]);
    assert!(store.sandboxes_after(None, Some("none"), None, 9).unwrap().is_empty());
}

#[test]
fn sandboxes_are_counted_when_there_may_be_too_many() {
    let home = home();
    let store = open(&home);
    assert_eq!(store.sandboxes_beyond(1).unwrap(), None);
    assert_eq!(store.sandboxes_beyond(0).unwrap(), Some(0));
    let rows: Vec<_> =
        (0..5).map(|number| add_sandbox(&store, &format!("s{number}"), None)).collect();
    assert_eq!(store.sandboxes_beyond(6).unwrap(), None);
    assert_eq!(store.sandboxes_beyond(5).unwrap(), Some(5));
    assert_eq!(store.sandboxes_beyond(2).unwrap(), Some(5));
    // The latest keeps its number, and what is gone does not count.
    store.transact(|tx| tx.delete_sandbox(rows[0].id).map(drop)).unwrap();
    assert_eq!(store.sandboxes_beyond(5).unwrap(), None);
    assert_eq!(store.sandboxes_beyond(4).unwrap(), Some(4));
}

#[test]
fn what_was_forgotten_for_too_long_has_expired_and_nothing_else() {
    let home = home();
    let store = open(&home);
    let largest = i64::MAX as u64;
    for (name, touched_ms, ttl_ms) in [
        ("kept", 1, None),
        ("over", 100, Some(899)),
        ("at-the-edge", 100, Some(900)),
        ("later", 900, Some(900)),
        ("never", 100, Some(largest)),
        ("at-once", 100, Some(0)),
    ] {
        let top = add_layer(&store, None);
        let row = SandboxRow { touched_ms, ttl_ms, ..sandbox_row(name, None, top) };
        store.transact(|tx| tx.insert_sandbox(&row)).unwrap();
    }
    let expired = |now| {
        let rows = store.expired_sandboxes(now).unwrap();
        rows.into_iter().map(|row| row.name).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(expired(1000), ["at-once".to_owned(), "over".to_owned()].into());
    assert_eq!(expired(0), [].into());
    assert_eq!(expired(largest).len(), 4, "all but two");
}

#[test]
fn answers_of_one_asker_do_not_fill_the_disk() {
    let home = home();
    let store = open(&home);
    let answer = |bytes: usize| fractal_model::Given {
        print: "print".into(),
        status: 200,
        body: "x".repeat(bytes),
    };
    let give = |asker: &str, key: String, bytes: usize, now: u64| {
        store.give(asker, &key, &answer(bytes), now).unwrap();
    };
    let count = |asker: &str, keys: &mut dyn Iterator<Item = String>| {
        keys.filter(|key| store.given(asker, key, 3000).unwrap().is_some()).count()
    };
    give("other", "first".into(), 10, 1);
    for number in 0..1010 {
        give("many", format!("k{number}"), 10, 10 + number);
    }
    assert_eq!(count("many", &mut (0..1010).map(|number| format!("k{number}"))), 1000);
    assert_eq!(count("many", &mut (0..10).map(|number| format!("k{number}"))), 0);
    for number in 0..20 {
        give("long", format!("k{number}"), 4 << 20, 10 + number);
    }
    let left: Vec<u64> = (0..20)
        .filter(|number| store.given("long", &format!("k{number}"), 3000).unwrap().is_some())
        .collect();
    assert_eq!(left, (3..20).collect::<Vec<_>>(), "64 MiB beside the latest");
    assert_eq!(count("other", &mut std::iter::once("first".into())), 1);
}
