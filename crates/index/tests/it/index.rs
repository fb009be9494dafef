//! Records on disk and what is found of them.

use fractal_index::{Index, Mix, Root, RootKind};
use fractal_model::{Find, FindReply};
use std::fs;
use std::path::{Path, PathBuf};

const PROBLEM: &str = "01JQ0000000000000000000001";
const FAILURE: &str = "01JQ0000000000000000000002";
const INSIGHT: &str = "01JQ0000000000000000000003";

/// A project with one experiment, and an index of it.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().expect("a temporary directory") };
        place.write("problem.md", &format!("---\ntype: Problem\nid: {PROBLEM}\ntitle: Upgrade the web framework\n---\nThe old release is no longer supported.\n"));
        place.write(
            "failures/2026-11-01-timeout-a1.md",
            &format!(
                "---\ntype: Failure\nid: {FAILURE}\ntitle: Connections time out after the upgrade\n\
                 outcome: failed\ntags: [network, pool]\nsignature: 'exit 1: pool timed out'\n\
                 generated: {{by: ann, at: 2026-11-01T10:00:00Z}}\nrelations:\n  - type: fixed-by\n    id: {INSIGHT}\n\
                 \x20 - type: touches\n    file: src/pool.rs\n---\nThe pool gave up after thirty seconds.\n"
            ),
        );
        place.write(
            "insights/2026-11-02-keepalive-b2.md",
            &format!(
                "---\ntype: Insight\nid: {INSIGHT}\ntitle: Set keepalive below the balancer's limit\n\
                 generated: {{by: ann, at: 2026-11-02T10:00:00Z}}\n---\nIdle sockets were closed by the balancer.\n\
                 See [the problem](../problem.md).\n"
            ),
        );
        place
    }

    pub fn bundle(&self) -> PathBuf {
        self.dir.path().join("project/sandbox/upgrade_skunkworks")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.bundle().join(path);
        fs::create_dir_all(path.parent().expect("it lies in the bundle")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }

    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub fn roots(&self) -> Vec<Root> {
        let path = self.dir.path().join("project");
        vec![Root { name: "project".into(), path, kind: RootKind::Project }]
    }

    pub fn index(&self) -> Index {
        let index = Index::open(&self.cache(), self.roots()).expect("it opens");
        index.sync(&mut |_, _| ()).expect("it is in step");
        index
    }

    pub fn find(&self, question: &Find) -> FindReply {
        self.index()
            .search(question, None, Mix::default(), 1_800_000_000_000, Vec::new())
            .expect("an answer")
    }

    fn titles(&self, text: &str) -> Vec<String> {
        let question = Find { text: text.into(), ..Find::default() };
        self.find(&question).hits.into_iter().map(|hit| hit.title).collect()
    }
}

pub fn asked(text: &str) -> Find {
    Find { text: text.into(), ..Find::default() }
}

#[test]
fn a_question_brings_the_failure_and_what_fixed_it() {
    let place = Place::new();
    let answer = place.find(&asked("why did the upgrade time out?"));
    let first = &answer.hits[0];
    assert_eq!(first.title, "Connections time out after the upgrade");
    assert_eq!(first.key, FAILURE);
    assert_eq!(first.path, "sandbox/upgrade_skunkworks/failures/2026-11-01-timeout-a1.md");
    let fix = answer.hits.iter().find(|hit| hit.key == INSIGHT).expect("what fixed it");
    assert_eq!(fix.why, ["“Connections time out after the upgrade” fixed-by this"]);
    assert_eq!(answer.records, 3);
}

#[test]
fn the_snippet_shows_the_words_that_were_found() {
    let place = Place::new();
    let answer = place.find(&asked("balancer sockets"));
    assert_eq!(answer.hits[0].key, INSIGHT);
    assert!(
        answer.hits[0].snippet.contains("Idle ⟦sockets⟧ were closed by the ⟦balancer⟧"),
        "{answer:?}"
    );
}

#[test]
fn filters_leave_out_what_does_not_pass() {
    let place = Place::new();
    let check = |question: Find, keys: &[&str]| {
        let answer = place.find(&question);
        let found: Vec<&str> = answer.hits.iter().map(|hit| hit.key.as_str()).collect();
        assert_eq!(found, keys, "{question:?}");
    };
    let about = || asked("upgrade keepalive pool");
    check(Find { kinds: vec!["failure".into()], ..about() }, &[FAILURE]);
    check(Find { tags: vec!["Pool".into(), "network".into()], ..about() }, &[FAILURE]);
    check(Find { tags: vec!["pool".into(), "x".into()], ..about() }, &[]);
    check(Find { outcome: Some("failed".into()), ..about() }, &[FAILURE]);
    check(Find { since_ms: Some(1_793_584_800_000), ..about() }, &[INSIGHT]);
    check(Find { until_ms: Some(1_793_584_800_000), ..about() }, &[FAILURE]);
    check(Find { sandbox: Some("x".into()), ..about() }, &[]);
}

#[test]
fn hand_edits_new_and_removed_files_are_picked_up() {
    let place = Place::new();
    assert!(place.titles("flamingo").is_empty());
    place.write("insights/bird.md", "# About a flamingo\n");
    assert_eq!(place.titles("flamingo"), ["About a flamingo"]);
    place.write("insights/bird.md", "# About a pelican\n");
    assert!(place.titles("flamingo").is_empty());
    assert_eq!(place.titles("pelican"), ["About a pelican"]);
    fs::remove_file(place.bundle().join("insights/bird.md")).expect("it is there");
    assert!(place.titles("pelican").is_empty());
}

#[test]
fn an_edit_that_keeps_size_and_second_is_seen() {
    let place = Place::new();
    for round in 0..40 {
        let word = if round % 2 == 0 { "flamingo" } else { "pelicans" };
        place.write("insights/bird.md", &format!("# About a {word}\n"));
        assert_eq!(place.titles(word).len(), 1, "round {round}");
    }
}

#[test]
fn a_rebuilt_index_answers_to_the_byte() {
    let place = Place::new();
    let questions =
        ["upgrade", "why did it time out", "pool balancer", "sockets closed", "keepalive limit"];
    let answers = || -> Vec<String> {
        let text = |question: &&str| {
            serde_json::to_string(&place.find(&asked(question))).expect("it is plain data")
        };
        questions.iter().map(text).collect()
    };
    // An index with a past.
    for round in 0..20 {
        place.write("insights/x.md", &format!("# The pool, again {round}\nupgrade upgrade\n"));
        place.write(&format!("insights/y{round}.md"), "# sockets\n");
        place.index();
    }
    for round in 0..20 {
        fs::remove_file(place.bundle().join(format!("insights/y{round}.md"))).expect("it is there");
    }
    let before = answers();
    fs::remove_dir_all(place.cache()).expect("it is there");
    assert_eq!(answers(), before);
}

#[test]
fn a_damaged_or_foreign_database_is_made_anew() {
    let place = Place::new();
    let before = place.titles("upgrade");
    for content in [&b"not a database at all, but long enough to be looked at"[..], b""] {
        for name in ["index.db-wal", "index.db-shm"] {
            let _ = fs::remove_file(place.cache().join(name));
        }
        fs::write(place.cache().join("index.db"), content).expect("it is written");
        assert_eq!(place.titles("upgrade"), before);
    }
    let conn = rusqlite::Connection::open(place.cache().join("index.db")).expect("it opens");
    conn.execute_batch("PRAGMA user_version = 99; CREATE TABLE other (x);").expect("it is written");
    drop(conn);
    assert_eq!(place.titles("upgrade"), before);
}

#[test]
fn relations_lead_by_id_then_by_path_and_otherwise_nowhere() {
    let place = Place::new();
    place.write(
        "insights/links.md",
        "---\ntype: Insight\ntitle: Links\nrelations:\n  - type: cites\n    id: 01JQ0000000000000000000009\n\
         \x20   path: ../problem.md\n  - type: depends-on\n    package: serde\n---\n\
         [there](../problem.md) [gone](nowhere.md) [out](../../../../../etc/passwd) [web](https://example.org)\n",
    );
    let graph = place
        .index()
        .around("sandbox/upgrade_skunkworks/insights/links.md", 1)
        .expect("it is there");
    let to: Vec<(&str, &str)> = graph
        .edges
        .iter()
        .filter(|edge| edge.from.ends_with("links.md"))
        .map(|edge| (edge.kind.as_str(), edge.to.as_str()))
        .collect();
    assert_eq!(
        to,
        [
            ("cites", PROBLEM),
            ("cites", "url:https://example.org"),
            ("depends-on", "package:serde"),
            ("part-of", PROBLEM)
        ]
    );
    let lint = place.index().lint().expect("it is read");
    let said: Vec<String> = lint
        .faults
        .iter()
        .map(|it| format!("{}:{} {}", it.path, it.line.unwrap_or(0), it.what))
        .collect();
    assert_eq!(
        said,
        [
            "sandbox/upgrade_skunkworks/insights/links.md:11 cites `../../../../../etc/passwd` leads to no record",
            "sandbox/upgrade_skunkworks/insights/links.md:11 cites `nowhere.md` leads to no record",
        ]
    );
}

#[test]
fn two_records_with_one_id_are_both_kept_and_neither_is_meant() {
    let place = Place::new();
    place.write(
        "insights/copy.md",
        &format!("---\ntype: Insight\nid: {INSIGHT}\ntitle: A copy\n---\nkeepalive copy\n"),
    );
    let index = place.index();
    assert_eq!(index.counts().expect("it is read").records, 4);
    let lint = index.lint().expect("it is read");
    let whats: Vec<&str> = lint.faults.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(
        whats.iter().filter(|what| what.contains("is also that of")).count(),
        2,
        "{whats:?}"
    );
    assert!(whats.iter().any(|what| what.contains("several have this id")), "{whats:?}");
    assert!(index.around(INSIGHT, 1).expect_err("which one?").to_string().contains("2 records"));
    let titles = place.titles("keepalive");
    assert!(titles.contains(&"A copy".to_owned()), "{titles:?}");
    assert!(titles.iter().any(|title| title.starts_with("Set keepalive")), "{titles:?}");
    // Without the copy everything is as it was.
    fs::remove_file(place.bundle().join("insights/copy.md")).expect("it is there");
    let graph = place.index().around(FAILURE, 1).expect("it is there");
    assert!(graph.edges.iter().any(|edge| edge.kind == "fixed-by" && edge.to == INSIGHT));
    assert!(place.index().lint().expect("it is read").faults.is_empty());
}

#[test]
fn a_record_that_comes_later_is_what_links_were_waiting_for() {
    let place = Place::new();
    place.write("insights/early.md", "# Early\n[late](late.md)\n");
    let edges = |place: &Place| {
        place
            .index()
            .around("sandbox/upgrade_skunkworks/insights/early.md", 1)
            .expect("it is there")
            .edges
    };
    assert_eq!(edges(&place).len(), 1, "part of the problem only");
    place.write("insights/late.md", "# Late\n");
    assert_eq!(edges(&place).len(), 2);
    fs::remove_file(place.bundle().join("insights/late.md")).expect("it is there");
    assert_eq!(edges(&place).len(), 1);
}

#[test]
fn cycles_end_and_ways_are_found() {
    let place = Place::new();
    place.write("insights/a.md", "# A\n[b](b.md)\n");
    place.write("insights/b.md", "# B\n[c](c.md)\n");
    place.write("insights/c.md", "# C\n[a](a.md)\n");
    let at = |name: &str| format!("sandbox/upgrade_skunkworks/insights/{name}.md");
    let graph = place.index().around(&at("a"), 30).expect("it ends");
    assert!(graph.nodes.len() >= 6 && !graph.cut, "{graph:?}");
    assert_eq!(place.index().way(&at("a"), &at("c")).expect("there is one").edges.len(), 1);
    assert_eq!(place.index().way(&at("a"), FAILURE).expect("there is one").edges.len(), 2);
    assert!(place.index().way(&at("a"), "file:nothing").expect("no error").edges.is_empty());
}

#[test]
fn fixes_of_failures_that_look_alike_are_found() {
    let place = Place::new();
    place.write("failures/again.md", "---\ntype: Failure\nid: 01JQ0000000000000000000007\ntitle: Again\nsignature: 'exit 1: pool timed out'\n---\n");
    let graph = place.index().fixes("01JQ0000000000000000000007").expect("it is there");
    assert!(graph.nodes.iter().any(|node| node.key == INSIGHT), "{graph:?}");
    let learned = place.index().learned(0).expect("it is read");
    assert_eq!((learned.failures.len(), learned.failures[0].times), (1, 2));
    assert_eq!(learned.failures[0].fixed_by[0].key, INSIGHT);
    assert_eq!(place.index().touching_file("src/pool.rs").expect("it is read")[0].key, FAILURE);
}

#[test]
fn what_is_superseded_or_deprecated_comes_after_what_holds() {
    let place = Place::new();
    place.write("insights/old.md", "---\ntype: Insight\nid: 01JQ0000000000000000000010\ntitle: Walrus walrus\n---\nwalrus walrus walrus\n");
    place.write("insights/new.md", "---\ntype: Insight\ntitle: Walrus\nrelations:\n  - type: supersedes\n    id: 01JQ0000000000000000000010\n---\nwalrus\n");
    let answer = place.find(&asked("walrus"));
    assert_eq!(answer.hits[0].title, "Walrus");
    assert_eq!(answer.hits[1].marks, ["superseded"]);
    place.write(
        "insights/new.md",
        "---\ntype: Insight\ntitle: Walrus\nstatus: deprecated\n---\nwalrus\n",
    );
    assert_eq!(place.find(&asked("walrus")).hits[0].title, "Walrus walrus");
}

#[test]
fn a_broken_file_is_named_with_its_line_and_still_found() {
    let place = Place::new();
    place.write(
        "insights/broken.md",
        "---\ntype: Insight\ntitle: [unclosed\n---\n# Ostrich\nbody\n",
    );
    place.write("insights/wrong.md", "---\ntype: Insight\ntitle: Emu\ntags: 5\n---\n");
    assert_eq!(place.titles("ostrich"), ["Ostrich"]);
    assert_eq!(place.titles("emu"), ["Emu"]);
    let lint = place.index().lint().expect("it is read");
    let lines: Vec<(&str, Option<u32>)> = lint
        .faults
        .iter()
        .map(|it| (it.path.rsplit('/').next().expect("a name"), it.line))
        .collect();
    assert!(lines.contains(&("wrong.md", Some(4))), "{:?}", lint.faults);
    assert!(
        lines.iter().any(|(name, line)| *name == "broken.md" && line.is_some()),
        "{:?}",
        lint.faults
    );
}

#[test]
fn an_index_that_is_in_step_verifies_and_another_does_not() {
    let place = Place::new();
    let index = place.index();
    assert!(index.verify().expect("it is read").faults.is_empty());
    place.write("insights/new.md", "# New\n");
    fs::remove_file(place.bundle().join("problem.md")).expect("it is there");
    place.write("failures/2026-11-01-timeout-a1.md", "# Changed\n");
    let whats: Vec<String> =
        index.verify().expect("it is read").faults.into_iter().map(|it| it.what).collect();
    assert_eq!(whats.len(), 3, "{whats:?}");
    index.sync(&mut |_, _| ()).expect("it is in step");
    assert!(index.verify().expect("it is read").faults.is_empty());
}

#[test]
fn many_at_once_converge_and_lose_nothing() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let place = &place;
            scope.spawn(move || {
                for round in 0..25 {
                    place.write(
                        &format!("insights/w{writer}-{round}.md"),
                        &format!("# Heron {writer} {round}\n"),
                    );
                    if round % 5 == 4 {
                        place.index();
                        let _ = fs::remove_file(
                            place.bundle().join(format!("insights/w{writer}-{}.md", round - 1)),
                        );
                    }
                }
            });
        }
    });
    let index = place.index();
    assert_eq!(index.counts().expect("it is read").records, 3 + 4 * 20);
    assert!(index.verify().expect("it is read").faults.is_empty());
    let question = Find { limit: Some(1000), ..asked("heron") };
    assert_eq!(place.find(&question).hits.len(), 80);
}

#[test]
fn nothing_outside_of_bundles_is_read_and_no_link_is_followed() {
    let place = Place::new();
    let project = place.roots()[0].path.clone();
    let secret = project.join("../secret.md");
    fs::write(&secret, "# Cassowary\n").expect("it is written");
    fs::write(project.join("README.md"), "# Cassowary\n").expect("it is written");
    std::os::unix::fs::symlink(&secret, place.bundle().join("insights/link.md")).expect("a link");
    std::os::unix::fs::symlink(project.join(".."), place.bundle().join("out")).expect("a link");
    for dir in [".git", "node_modules", ".venv", "target"] {
        place.write(&format!("{dir}/x.md"), "# Cassowary\n");
    }
    place.write("index.md", "# Cassowary\n");
    assert!(place.titles("cassowary").is_empty());
}

#[test]
fn questions_are_only_ever_words() {
    let place = Place::new();
    for text in [
        "upgrade\" OR *",
        "NEAR(a, b)",
        "title:upgrade",
        "'; DROP TABLE files; --",
        "^x",
        "-x",
        "{a b}",
    ] {
        place.find(&asked(text));
    }
    let error = place
        .index()
        .search(&asked(" ?! "), None, Mix::default(), 0, Vec::new())
        .expect_err("no words");
    assert!(error.to_string().contains("no words"), "{error}");
    assert!(
        place
            .index()
            .search(&asked(&"x ".repeat(100_000)), None, Mix::default(), 0, Vec::new())
            .is_ok()
    );
}

#[test]
fn a_root_that_is_not_there_is_empty() {
    let place = Place::new();
    let missing = Root {
        name: "notes".into(),
        path: Path::new("/nonexistent/x").into(),
        kind: RootKind::Notes,
    };
    let index =
        Index::open(&place.cache(), [place.roots(), vec![missing]].concat()).expect("it opens");
    index.sync(&mut |_, _| ()).expect("it is in step");
    assert_eq!(index.counts().expect("it is read").records, 3);
    // And one that is no longer asked for is forgotten.
    let index = Index::open(&place.cache(), Vec::new()).expect("it opens");
    index.sync(&mut |_, _| ()).expect("it is in step");
    assert_eq!(index.counts().expect("it is read").records, 0);
}
