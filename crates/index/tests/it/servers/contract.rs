//! What every store of relations promises: the embedded one, and each server.

use super::Case;
use super::notes::{Notes, key};
use fractal_index::servers::Followed;
use fractal_index::{GraphStore, Index, around, path};
use fractal_model::GraphEdge;
use std::collections::BTreeSet;

/// Somewhere relations are kept, for several places.
pub trait Graphs {
    /// Brings a place in step with an index, in batches of this size.
    fn follow(&self, index: &Index, place: &str, batch: usize) -> Followed;

    fn graph<'a>(&self, index: &'a Index, place: &str) -> Box<dyn GraphStore + 'a>;
}

pub const CASES: &[Case<dyn Graphs>] = &[
    ("neighbours and ways are those of the files", neighbours_and_ways),
    ("parallel edges, loops and things are all there", parallel_edges_loops_and_things),
    ("what is removed is gone and what is renamed moves", removal_and_renaming),
    ("edges move although their files did not change", edges_move),
    ("titles and words are only ever text", hostile_texts),
    ("any history ends in the same answers", any_history),
];

/// The embedded store, which is in step by itself.
struct Embedded;

impl Graphs for Embedded {
    fn follow(&self, _index: &Index, _place: &str, _batch: usize) -> Followed {
        Followed::default()
    }

    fn graph<'a>(&self, index: &'a Index, _place: &str) -> Box<dyn GraphStore + 'a> {
        struct Same<'a>(&'a Index);
        impl GraphStore for Same<'_> {
            fn touching(
                &self,
                keys: &[String],
                limit: usize,
            ) -> fractal_index::Result<Vec<GraphEdge>> {
                self.0.touching(keys, limit)
            }
            fn all(&self, limit: usize) -> fractal_index::Result<Vec<GraphEdge>> {
                self.0.all(limit)
            }
        }
        Box::new(Same(index))
    }
}

#[test]
fn the_embedded_store_keeps_the_contract() {
    let failed = super::failures::<dyn Graphs>(&Embedded, CASES);
    assert!(failed.is_empty(), "{failed:?}");
}

pub fn sorted(mut edges: Vec<GraphEdge>) -> Vec<GraphEdge> {
    edges.sort();
    edges
}

/// A store must give the answers of the embedded one, whatever is asked.
pub fn is_same(index: &Index, graph: &dyn GraphStore) {
    let all = sorted(index.all(100_000).expect("it answers"));
    assert_eq!(sorted(graph.all(100_000).expect("it answers")), all);
    let nodes: BTreeSet<String> =
        all.iter().flat_map(|edge| [edge.from.clone(), edge.to.clone()]).collect();
    let nodes: Vec<String> = nodes.into_iter().collect();
    for some in nodes.chunks(7).chain([&nodes[..], &["nobody".to_owned()][..]]) {
        let here = sorted(index.touching(some, 100_000).expect("it answers"));
        assert_eq!(sorted(graph.touching(some, 100_000).expect("it answers")), here, "{some:?}");
    }
    for (from, to) in nodes.iter().zip(nodes.iter().rev()).take(10) {
        let one = std::slice::from_ref(from);
        let here = around(index, one, 2).expect("it answers");
        assert_eq!(around(graph, one, 2).expect("it answers"), here);
        let here = path(index, from, to).expect("it answers");
        assert_eq!(path(graph, from, to).expect("it answers"), here);
    }
    assert_eq!(graph.all(1).expect("it answers").len(), all.len().min(1));
}

/// Brings a place in step in small batches and compares.
fn check(graphs: &dyn Graphs, notes: &Notes, place: &str) -> Index {
    let index = notes.index();
    graphs.follow(&index, place, 2);
    is_same(&index, &*graphs.graph(&index, place));
    index
}

fn relation(kind: &str, target: &str) -> String {
    format!("  - type: {kind}\n    {target}\n")
}

fn relations(list: &[(&str, &str)]) -> String {
    let lines: String = list.iter().map(|(kind, target)| relation(kind, target)).collect();
    format!("relations:\n{lines}")
}

fn edge(from: &str, kind: &str, to: &str) -> GraphEdge {
    GraphEdge { from: from.into(), kind: kind.into(), to: to.into() }
}

fn neighbours_and_ways(graphs: &dyn Graphs) {
    let notes = Notes::new();
    notes.write("a", "A", &relations(&[("fixes", "path: b.md")]), "");
    notes.write("b", "B", &relations(&[("touches", "file: src/x.rs")]), "[c](c.md)");
    notes.write("c", "C", "", "");
    notes.write("d", "D", &relations(&[("touches", "file: src/x.rs")]), "");
    let index = check(graphs, &notes, "ways");
    let graph = graphs.graph(&index, "ways");
    let of_b = sorted(graph.touching(&[key("b")], 10).expect("it answers"));
    let expected = [
        edge(&key("a"), "fixes", &key("b")),
        edge(&key("b"), "cites", &key("c")),
        edge(&key("b"), "touches", "file:src/x.rs"),
    ];
    assert_eq!(of_b, expected);
    let (near, cut) = around(&*graph, &[key("a")], 1).expect("it answers");
    assert_eq!((near, cut), (vec![expected[0].clone()], false));
    let way = path(&*graph, &key("a"), &key("d")).expect("it answers").expect("there is one");
    let to_d = edge(&key("d"), "touches", "file:src/x.rs");
    assert_eq!(way, [expected[0].clone(), expected[2].clone(), to_d]);
    assert_eq!(path(&*graph, &key("a"), "file:none").expect("it answers"), None);
}

fn parallel_edges_loops_and_things(graphs: &dyn Graphs) {
    let notes = Notes::new();
    let twice = relations(&[
        ("cites", "path: b.md"),
        ("cites", "path: b.md"),
        ("cites", "path: a.md"),
        ("fixes", "path: b.md"),
        ("depends-on", "package: serde"),
        ("touches", "file: src/x.rs"),
        ("made-in", "sandbox: kind-otter"),
    ]);
    notes.write("a", "A", &twice, "[b](b.md) [web](https://example.org/?a=1)");
    notes.write("b", "B", &relations(&[("cites", "path: a.md")]), "");
    let index = check(graphs, &notes, "parallel");
    let edges = graphs.graph(&index, "parallel").all(100).expect("it answers");
    let count = |from: &str, kind: &str, to: &str| {
        edges.iter().filter(|it| **it == edge(from, kind, to)).count()
    };
    assert_eq!(count(&key("a"), "cites", &key("b")), 3);
    assert_eq!(count(&key("a"), "cites", &key("a")), 1);
    assert_eq!(count(&key("b"), "cites", &key("a")), 1);
    assert_eq!(count(&key("a"), "depends-on", "package:serde"), 1);
    assert_eq!(edges.len(), 10);
}

fn removal_and_renaming(graphs: &dyn Graphs) {
    let notes = Notes::new();
    notes.write("a", "A", "", "[b](b.md) [c](c.md)");
    notes.write("b", "B", &relations(&[("touches", "file: only-b.rs")]), "[a](a.md)");
    notes.write("c", "C", "", "[b](b.md)");
    check(graphs, &notes, "removal");
    notes.remove("b");
    let index = check(graphs, &notes, "removal");
    let graph = graphs.graph(&index, "removal");
    assert_eq!(graph.all(100).expect("it answers").len(), 1, "a to c");
    assert_eq!(graph.touching(&["file:only-b.rs".into()], 9).expect("it answers"), []);
    drop(graph);
    // It comes back where others point.
    notes.write("b", "B again", "", "");
    let index = check(graphs, &notes, "removal");
    assert_eq!(graphs.graph(&index, "removal").all(100).expect("it answers").len(), 3);
    // A key that follows from the path, then an id of its own, then a second with it.
    notes.rename("c", "c2");
    check(graphs, &notes, "removal");
    let id = "id: 01JQ0000000000000000000001\n";
    notes.write("b", "B with an id", id, "[c](c2.md)");
    let index = check(graphs, &notes, "removal");
    let of_id = graphs.graph(&index, "removal").touching(&["01JQ0000000000000000000001".into()], 9);
    assert_eq!(of_id.expect("it answers").len(), 3);
    notes.write("copy", "B, copied", id, "[a](a.md)");
    check(graphs, &notes, "removal");
    notes.remove("b");
    check(graphs, &notes, "removal");
}

/// By id where one record has it, otherwise by path: others decide which.
fn edges_move(graphs: &dyn Graphs) {
    let notes = Notes::new();
    let id = "01JQ0000000000000000000005";
    let either = format!("relations:\n  - type: cites\n    id: {id}\n    path: old.md\n");
    notes.write("old", "Old", "", "");
    notes.write("a", "A", &either, "");
    let leads_to = |index: &Index| -> Vec<String> {
        let edges = graphs.graph(index, "moving").touching(&[key("a")], 9);
        edges.expect("it answers").into_iter().map(|edge| edge.to).collect()
    };
    assert_eq!(leads_to(&check(graphs, &notes, "moving")), [key("old")]);
    notes.write("new", "New", &format!("id: {id}\n"), "");
    assert_eq!(leads_to(&check(graphs, &notes, "moving")), [id]);
    notes.write("newer", "Newer", &format!("id: {id}\n"), "");
    assert_eq!(leads_to(&check(graphs, &notes, "moving")), [""; 0]);
    notes.remove("new");
    notes.remove("newer");
    assert_eq!(leads_to(&check(graphs, &notes, "moving")), [key("old")]);
}

/// What would do harm if it were ever more than text.
pub const HOSTILE: [&str; 8] = [
    "'}) DETACH DELETE n //",
    "\"}) MATCH (n) DETACH DELETE n //",
    "`) DETACH DELETE n //",
    "$place $rows {key: 1} \\u0027 \\",
    "line\nbreak\r\n\ttab",
    "𝕌nicode ✓ مرحبا 你好 \u{202e}reversed",
    "'; DROP TABLE files; --",
    "null",
];

fn hostile_texts(graphs: &dyn Graphs) {
    let notes = Notes::new();
    let long = "ex".repeat(5000);
    for (at, text) in HOSTILE.iter().chain([&long.as_str()]).enumerate() {
        let quoted = serde_json::to_string(text).expect("it is text");
        let head = format!(
            "relations:\n  - type: touches\n    file: {quoted}\n  - type: cites\n    path: n0.md\n"
        );
        notes.write(&format!("n{at}"), text, &head, &format!("[x](https://example.org/{long})"));
    }
    notes.write("it's `odd` {name} $place", "A name", "", "[zero](n0.md)");
    let index = check(graphs, &notes, "hostile'}) DETACH DELETE n //");
    assert_eq!(index.counts().expect("it is read").records, 10);
    let graph = graphs.graph(&index, "hostile'}) DETACH DELETE n //");
    let thing = format!("file:{}", HOSTILE[0]);
    assert_eq!(graph.touching(&[thing], 9).expect("it answers").len(), 1);
    assert!(graph.all(1000).expect("it answers").len() >= 10);
    // And another place saw nothing of it.
    drop(graph);
    neighbours_and_ways(graphs);
}

/// Files come, change, move and go at random, and at random the server is told.
fn any_history(graphs: &dyn Graphs) {
    let notes = Notes::new();
    let mut state = 42u64;
    let mut dice = move |sides: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    let mut there: BTreeSet<u64> = BTreeSet::new();
    for round in 0..120 {
        let name = dice(12);
        if dice(4) == 0 && there.remove(&name) {
            notes.remove(&format!("n{name}"));
        } else {
            let id = match dice(3) {
                0 => format!("id: 01JQ000000000000000000000{}\n", dice(4)),
                _ => String::new(),
            };
            let link = match dice(3) {
                0 => {
                    format!("id: 01JQ000000000000000000000{}\n    path: n{}.md", dice(4), dice(12))
                }
                1 => format!("path: n{}.md", dice(12)),
                _ => format!("file: f{}", dice(3)),
            };
            let head = id + &relations(&[("cites", &link)]);
            notes.write(
                &format!("n{name}"),
                &format!("{round}"),
                &head,
                &format!("[x](n{}.md)", dice(12)),
            );
            there.insert(name);
        }
        if dice(4) == 0 {
            check(graphs, &notes, "history");
        }
    }
    check(graphs, &notes, "history");
}
