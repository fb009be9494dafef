//! Where records lie, and that writers do not meet.

use crate::drafts::text;
use fractal_index::IndexError;
use fractal_index::bundle::{Bundle, PROBLEM, slug};
use fractal_index::record::{Draft, Kind, Record, Relation, Stamp, Thing, add_relation, read};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// 2026-11-15T20:43:57Z
pub const DAY_MS: u64 = 1_794_775_437_000;

pub fn draft(kind: Kind, title: &str, body: &str) -> Draft {
    let generated = Some(Stamp { by: "claude/4".to_owned(), at_ms: Some(DAY_MS) });
    let description = format!("About {title}.");
    let status = "draft".to_owned();
    Draft::new(Record { generated, description, status, ..Record::new(kind, title) }, body)
}

pub fn project() -> (TempDir, Bundle) {
    let project = TempDir::new().expect("a directory");
    let problem = draft(Kind::Problem, "Slow locks", "Writers wait.");
    let bundle = Bundle::create(&project.path().join("sandbox"), &problem).expect("a bundle");
    (project, bundle)
}

fn names(bundle: &Bundle) -> Vec<String> {
    let listing = bundle.records();
    assert_eq!(listing.faults, []);
    let relative = |path: &PathBuf| {
        path.strip_prefix(bundle.dir()).expect("it lies within").display().to_string()
    };
    listing.files.iter().map(relative).collect()
}

#[test]
fn records_lie_in_the_folders_of_their_kinds() {
    let (project, bundle) = project();
    assert!(bundle.dir().ends_with("sandbox/slow-locks_skunkworks"));
    for kind in [
        Kind::Failure,
        Kind::Insight,
        Kind::Decision,
        Kind::Pattern,
        Kind::Experiment,
        Kind::Other("Recipe".to_owned()),
    ] {
        let path = bundle.write(&draft(kind.clone(), "Größe?", "x"), "k3").expect("written");
        let reading = read(&bundle.read(&path).expect("readable").0, "x.md");
        assert_eq!((reading.record.kind, reading.faults), (kind, vec![]));
    }
    assert_eq!(
        names(&bundle),
        [
            "decisions/2026-11-15-grosse-k3.md",
            "experiments/2026-11-15-grosse-k3/experiment.md",
            "failures/2026-11-15-grosse-k3.md",
            "insights/2026-11-15-grosse-k3.md",
            "notes/2026-11-15-grosse-k3.md",
            "patterns/2026-11-15-grosse-k3.md",
            "problem.md",
        ]
    );
    let opened = Bundle::open(bundle.dir()).expect("it is one");
    assert_eq!(Bundle::containing(&bundle.dir().join("insights/x.md")), Some(opened));
    assert_eq!(Bundle::containing(project.path()), None);
    assert!(matches!(Bundle::open(project.path()), Err(IndexError::NoBundle { .. })));
}

#[test]
fn nothing_is_written_over() {
    let (project, bundle) = project();
    let exists = |result: Result<PathBuf, IndexError>| {
        assert!(matches!(result, Err(IndexError::Exists { .. })), "{result:?}");
    };
    for kind in [Kind::Insight, Kind::Experiment] {
        bundle.write(&draft(kind.clone(), "One", "first"), "a").expect("written");
        exists(bundle.write(&draft(kind, "One", "second"), "a"));
    }
    let experiment = bundle.dir().join("experiments/2026-11-15-one-a");
    let run = bundle.write_beside(&experiment, "run.json", b"{}").expect("written");
    exists(bundle.write_beside(&experiment, "run.json", b"[]"));
    assert_eq!(fs::read(run).expect("there"), b"{}");
    let again = draft(Kind::Problem, "Slow LOCKS", "");
    exists(Bundle::create(&project.path().join("sandbox"), &again).map(|it| it.dir().to_owned()));
    assert!(
        fs::read_to_string(bundle.dir().join(PROBLEM)).expect("there").contains("Writers wait.")
    );
    let left: Vec<_> = walk(bundle.dir()).into_iter().filter(|p| p.ends_with(".tmp")).collect();
    assert_eq!(left, Vec::<String>::new());
}

fn walk(dir: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] })
        .collect()
}

#[test]
fn what_cannot_be_named_or_read_back_is_not_written() {
    let (_project, bundle) = project();
    let experiment = bundle.write(&draft(Kind::Experiment, "One", "x"), "a").expect("written");
    let experiment = experiment.parent().expect("a directory");
    for name in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/x",
        ".hidden",
        "a\0b",
        "a\nb",
        "index.md",
        &"x".repeat(201),
    ] {
        let refused = bundle.write_beside(experiment, name, b"");
        assert!(matches!(refused, Err(IndexError::Invalid(_))), "{name:?}: {refused:?}");
    }
    for dir in ["..", "experiments/../..", "/etc"] {
        let refused = bundle.write_beside(Path::new(dir), "x", b"");
        assert!(matches!(refused, Err(IndexError::Invalid(_))), "{dir}: {refused:?}");
    }
    for suffix in ["", "a/b", "..", &"x".repeat(33)] {
        let refused = bundle.write(&draft(Kind::Insight, "One", ""), suffix);
        assert!(matches!(refused, Err(IndexError::Invalid(_))), "{suffix:?}");
    }
    let mut long = draft(Kind::Insight, "One", "");
    long.record.description = "x".repeat(70_000);
    let mut undated = draft(Kind::Insight, "One", "");
    undated.record.generated = None;
    for draft in [long, undated] {
        let refused = bundle.write(&draft, "a");
        assert!(matches!(refused, Err(IndexError::Invalid(_))), "{refused:?}");
    }
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let (_project, bundle) = project();
    let path = bundle.write(&draft(Kind::Insight, "Shared", "body"), "s").expect("written");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (bundle, path) = (&bundle, &path);
            scope.spawn(move || {
                for turn in 0..10 {
                    let kind = if turn % 2 == 0 { Kind::Failure } else { Kind::Experiment };
                    let suffix = format!("w{writer}t{turn}");
                    bundle.write(&draft(kind, "Same title", "x"), &suffix).expect("written");
                    let thing = Some(Thing::File(suffix));
                    let kind = "touches".to_owned();
                    let added = Relation { kind, id: None, path: None, thing, line: 0 };
                    bundle.edit(path, |bytes| add_relation(bytes, &added)).expect("edited");
                    bundle.refresh().expect("refreshed");
                }
            });
        }
    });
    assert_eq!(bundle.records().files.len(), 42);
    let reading = read(&bundle.read(&path).expect("readable").0, "x.md");
    let files: BTreeSet<String> =
        reading.record.relations.iter().map(|relation| format!("{:?}", relation.thing)).collect();
    assert_eq!((files.len(), reading.faults), (40, vec![]));
}

#[test]
fn of_many_who_take_one_name_one_gets_it() {
    let (project, bundle) = project();
    let count = |make: &(dyn Fn() -> bool + Sync)| {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            all.into_iter().map(|one| one.join().expect("no panic")).filter(|won| *won).count()
        })
    };
    assert_eq!(count(&|| bundle.write(&draft(Kind::Insight, "One", ""), "a").is_ok()), 1);
    assert_eq!(count(&|| bundle.write(&draft(Kind::Experiment, "One", ""), "a").is_ok()), 1);
    let within = project.path().join("sandbox");
    assert_eq!(count(&|| Bundle::create(&within, &draft(Kind::Problem, "New", "")).is_ok()), 1);
}

#[test]
fn bundles_within_bundles_are_found_and_keep_their_records() {
    let (project, outer) = project();
    let inner = Bundle::create(&outer.dir().join("parts"), &draft(Kind::Problem, "Part", "x"))
        .expect("a bundle");
    let innermost =
        Bundle::create(inner.dir(), &draft(Kind::Problem, "Deeper", "x")).expect("a bundle");
    inner.write(&draft(Kind::Insight, "One", "x"), "a").expect("written");
    fs::create_dir_all(outer.dir().join("no_skunkworks")).expect("a directory");
    fs::write(outer.dir().join("no_skunkworks/page.md"), "x").expect("a page");
    assert_eq!(names(&outer), ["no_skunkworks/page.md", "problem.md"]);
    assert_eq!(names(&inner).len(), 2);
    let found = Bundle::find_below(project.path()).expect("found");
    assert_eq!(found, [outer.clone(), inner.clone(), innermost.clone()]);
    assert_eq!(innermost.parent(), Some(inner.clone()));
    assert_eq!(inner.parent(), Some(outer.clone()));
    assert_eq!(outer.parent(), None);
    assert_eq!(Bundle::containing(&inner.dir().join("x/y.md")), Some(inner));
    assert_eq!(Bundle::find_below(&project.path().join("none")).expect("nothing"), []);
}

proptest! {
    #[test]
    fn a_slug_is_a_plain_name(title in text()) {
        let slug = slug(&title);
        prop_assert!((1..=60).contains(&slug.len()));
        prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        prop_assert!(!slug.starts_with('-') && !slug.ends_with('-'));
    }
}
