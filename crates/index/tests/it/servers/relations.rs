//! Keeping a graph server in step, whatever happens in between.

use super::Case;
use super::bolt::Bolt;
use super::contract::{Graphs, is_same};
use super::notes::Notes;
use fractal_index::servers::neo4j::Neo4j;
use fractal_index::servers::{Batch, Feed, Follower, Mark, Pace};
use fractal_index::{GraphStore, IndexError, Result};
use std::cell::Cell;
use std::time::Duration;

pub const CASES: &[Case<Bolt>] = &[
    ("two places on one server do not see each other", two_places),
    ("a batch that comes twice changes nothing", batches_come_twice),
    ("whoever stops at any moment goes on where it was", stopped_at_any_moment),
    ("a server that was emptied is filled again", emptied),
    ("a server that is unfollowed is empty and can be filled again", unfollowed),
    ("a budget ends it and the rest comes later", budget),
    ("only one follows at a time", one_at_a_time),
    ("what differs is said", what_differs),
];

fn some_notes() -> Notes {
    let notes = Notes::new();
    for at in 0..10 {
        let head = format!("relations:\n  - type: touches\n    file: f{}\n", at % 3);
        let body = format!("[x](n{}.md) [y](n{}.md)", (at * 3) % 10, (at * 7) % 10);
        notes.write(&format!("n{at}"), &format!("N {at}"), &head, &body);
    }
    notes
}

/// Passes everything on, twice or until it has had enough.
struct Odd<'a> {
    inner: &'a Neo4j,
    times: usize,
    left: Cell<usize>,
}

impl Follower for Odd<'_> {
    fn name(&self) -> String {
        self.inner.name()
    }
    fn wants(&self) -> Feed {
        self.inner.wants()
    }
    fn begin(&self) -> Result<()> {
        self.inner.begin()?;
        self.inner.begin()
    }
    fn mark(&self) -> Result<Option<Mark>> {
        self.inner.mark()
    }
    fn take(&self, batch: &Batch, mark: &Mark) -> Result<()> {
        for _ in 0..self.times {
            self.inner.take(batch, mark)?;
        }
        // It was taken, but nobody learns that.
        self.left.set(self.left.get().saturating_sub(1));
        match self.left.get() {
            0 => Err(IndexError::Server { name: self.name(), why: "enough".into() }),
            _ => Ok(()),
        }
    }
    fn clear(&self) -> Result<()> {
        self.inner.clear()
    }
    fn count(&self) -> Result<u64> {
        self.inner.count()
    }
    fn missing(&self, keys: &[String]) -> Result<Vec<String>> {
        self.inner.missing(keys)
    }
}

const SMALL: Pace = Pace { batch: 3, budget: Duration::MAX };

fn two_places(bolt: &Bolt) {
    let (one, two) = (some_notes(), some_notes());
    two.write("n3", "Other", "", "");
    let (here, there) = (one.index(), two.index());
    bolt.follow(&here, "one", 3);
    bolt.follow(&there, "two", 3);
    is_same(&here, &bolt.store("one"));
    is_same(&there, &bolt.store("two"));
    let store = bolt.store("one");
    store.clear().expect("it answers");
    assert_eq!(
        (store.count().expect("it answers"), store.all(9).expect("it answers")),
        (0, vec![])
    );
    is_same(&there, &bolt.store("two"));
    assert_eq!(bolt.store("two").count().expect("it answers"), 10);
}

fn batches_come_twice(bolt: &Bolt) {
    let notes = some_notes();
    let index = notes.index();
    let store = bolt.store("twice");
    let twice = Odd { inner: &store, times: 2, left: Cell::new(usize::MAX) };
    index.follow(&twice, SMALL, &mut |_, _| ()).expect("it is there");
    is_same(&index, &store);
    assert_eq!(store.count().expect("it answers"), 10);
}

fn stopped_at_any_moment(bolt: &Bolt) {
    let notes = some_notes();
    let index = notes.index();
    let store = bolt.store("stopped");
    for round in 0..8 {
        let stopping = Odd { inner: &store, times: 1, left: Cell::new(1 + round % 3) };
        let _ = index.follow(&stopping, SMALL, &mut |_, _| ());
        if round == 5 {
            notes.remove("n4");
            notes.index();
        }
    }
    let followed = index.follow(&store, SMALL, &mut |_, _| ()).expect("it is there");
    assert_eq!((followed.lag, followed.afresh), (0, false), "{followed:?}");
    is_same(&index, &store);
    let followed = index.follow(&store, SMALL, &mut |_, _| ()).expect("it is there");
    assert_eq!((followed.sent, followed.removed), (0, 0));
}

fn emptied(bolt: &Bolt) {
    let notes = some_notes();
    let index = notes.index();
    for statement in [
        "MATCH (n {place: $place}) DETACH DELETE n",
        "MATCH (n:Record {place: $place}) DETACH DELETE n",
        "MATCH (n:FractalMark {place: $place}) DELETE n",
        "MATCH (n:FractalMark {place: $place}) SET n.epoch = 'another'",
        // As from a backup that is older than what it was sent.
        "MATCH (n:FractalMark {place: $place}) SET n.rev = 3",
    ] {
        assert_eq!(bolt.follow(&index, "emptied", 3).lag, 0);
        bolt.meddle(statement, "emptied");
        let followed = bolt.follow(&index, "emptied", 3);
        assert_eq!(followed.afresh, !statement.contains("rev"), "{statement}");
        assert!(followed.sent >= 7, "{statement}: {followed:?}");
        is_same(&index, &bolt.store("emptied"));
    }
    // And an index that was made anew begins anew.
    let before = bolt.store("emptied").mark().expect("it answers").expect("it is there");
    drop(index);
    std::fs::remove_dir_all(notes.cache()).expect("it is there");
    notes.remove("n9");
    let index = notes.index();
    assert!(bolt.follow(&index, "emptied", 3).afresh);
    is_same(&index, &bolt.store("emptied"));
    let after = bolt.store("emptied").mark().expect("it answers").expect("it is there");
    assert_ne!(after.epoch, before.epoch);
}

fn unfollowed(bolt: &Bolt) {
    let notes = some_notes();
    let index = notes.index();
    bolt.follow(&index, "unfollowed", 3);
    let store = bolt.store("unfollowed");
    index.unfollow(&store).expect("it is there");
    assert_eq!(store.all(9).expect("it answers"), []);
    assert_eq!(index.lag(&store).expect("it is counted"), 10);
    let followed = bolt.follow(&index, "unfollowed", 3);
    assert_eq!((followed.sent, followed.afresh), (10, true));
    is_same(&index, &store);
}

fn budget(bolt: &Bolt) {
    let notes = some_notes();
    let index = notes.index();
    let store = bolt.store("budget");
    let pace = Pace { batch: 4, budget: Duration::ZERO };
    let lags = [6, 2, 0, 0].map(|_| index.follow(&store, pace, &mut |_, _| ()).expect("there").lag);
    assert_eq!(lags, [6, 2, 0, 0]);
    is_same(&index, &store);
}

fn one_at_a_time(bolt: &Bolt) {
    let notes = some_notes();
    let (index, other) = (notes.index(), notes.index());
    let store = bolt.store("alone");
    let mut tried = false;
    let mut progress = |_, _| {
        if !tried {
            tried = true;
            let followed = other.follow(&store, SMALL, &mut |_, _| ()).expect("no error");
            assert_eq!((followed.sent, followed.lag), (0, 10));
        }
    };
    index.follow(&store, SMALL, &mut progress).expect("it is there");
    assert!(tried);
    is_same(&index, &store);
}

fn what_differs(bolt: &Bolt) {
    let notes = some_notes();
    let index = notes.index();
    bolt.follow(&index, "differs", 3);
    let store = bolt.store("differs");
    assert_eq!(index.verify_server(&store).expect("it answers").differs, [""; 0]);
    bolt.meddle("MATCH (n:Record {place: $place, key: 'notes:n1.md'}) DETACH DELETE n", "differs");
    bolt.meddle(
        "MATCH (:Record {place: $place, key: 'notes:n5.md'})-[e:REL]->(:Thing) DELETE e",
        "differs",
    );
    let differs = index.verify_server(&store).expect("it answers").differs.join("\n");
    for said in ["9 records", "notes:n1.md is not there", "notes:n5.md has other relations"] {
        assert!(differs.contains(said), "{differs}");
    }
}
