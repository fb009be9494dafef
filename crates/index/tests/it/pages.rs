//! The generated pages, and that other tools take the whole bundle.

use crate::bundles::{DAY_MS, draft, project};
use fractal_index::bundle::{Bundle, is_generated};
use fractal_index::record::{Kind, Stamp};
use okf_validator::{Severity, validate_bundle};
use std::fs;
use std::path::Path;

const DAY: u64 = 86_400_000;

fn fill(bundle: &Bundle) {
    let titles = ["Locks [wait](x) for <b>all</b>", "---\n# not a heading", "日本 *語*", "plain"];
    for (number, title) in (0..).zip(titles) {
        for kind in [
            Kind::Failure,
            Kind::Insight,
            Kind::Experiment,
            Kind::Other("Re*cipe\n## x".to_owned()),
        ] {
            let mut draft = draft(kind.clone(), &format!("{title} {}", kind.name()), "Text.\n");
            draft.record.generated =
                Some(Stamp { by: "claude/4".to_owned(), at_ms: Some(DAY_MS - number * DAY) });
            draft.record.outcome = "failed".to_owned();
            let at_ms = Some(DAY_MS + DAY);
            draft.record.verified = vec![Stamp { by: "human:ada".to_owned(), at_ms }];
            bundle.write(&draft, &format!("n{number}")).expect("written");
        }
    }
}

fn findings(bundle: &Bundle) -> Vec<(Severity, String)> {
    let loaded = okf_core::bundle::Bundle::load(bundle.dir()).expect("another tool loads it");
    let report = validate_bundle(&loaded);
    report.diagnostics.into_iter().map(|found| (found.severity, found.to_string())).collect()
}

#[test]
fn another_tool_finds_nothing_wrong_with_a_bundle() {
    let (_project, bundle) = project();
    fill(&bundle);
    bundle.refresh().expect("refreshed");
    let all: Vec<_> = findings(&bundle).into_iter().filter(|(s, _)| *s > Severity::Info).collect();
    assert_eq!(all, []);
    let inner = Bundle::create(bundle.dir(), &draft(Kind::Problem, "Part", "x")).expect("a bundle");
    fill(&inner);
    inner.refresh().expect("refreshed");
    bundle.refresh().expect("refreshed");
    for bundle in [&inner, &bundle] {
        let errors: Vec<_> =
            findings(bundle).into_iter().filter(|(s, _)| *s == Severity::Error).collect();
        assert_eq!(errors, []);
    }
    // Records of a bundle within may have the titles of those around it.
    let warnings = findings(&bundle).into_iter().filter(|(s, _)| *s == Severity::Warning);
    assert!(warnings.clone().all(|(_, what)| what.contains("shared with another concept")));
    let index = fs::read_to_string(bundle.dir().join("index.md")).expect("there");
    assert!(index.contains("[Part](part_skunkworks/problem.md)"), "{index}");
    assert!(!index.contains("part_skunkworks/insights"), "{index}");
}

#[test]
fn the_pages_say_what_there_is() {
    let (_project, bundle) = project();
    let mut old = draft(Kind::Insight, "Old one", "x");
    old.record.generated = Some(Stamp { by: "ada".to_owned(), at_ms: Some(DAY_MS - DAY) });
    bundle.write(&old, "a").expect("written");
    let mut failure = draft(Kind::Failure, "Dead*lock", "x");
    failure.record.outcome = "failed".to_owned();
    bundle.write(&failure, "b").expect("written");
    bundle.write(&draft(Kind::Insight, "New one", "x"), "c").expect("written");
    bundle.refresh().expect("refreshed");
    let page = |name: &str| fs::read_to_string(bundle.dir().join(name)).expect("there");
    assert_eq!(
        page("index.md"),
        r#"---
okf_version: "0.2"
---

# Slow locks

About Slow locks.

About [the problem](problem.md). This page is generated from the records, edits are lost.

## Insights

* [New one](insights/2026-11-15-new-one-c.md) - draft - About New one.
* [Old one](insights/2026-11-14-old-one-a.md) - draft - About Old one.

## Failures

* [Dead\*lock](failures/2026-11-15-dead-lock-b.md) - failed, draft - About Dead\*lock.
"#
    );
    assert_eq!(
        page("log.md"),
        r#"# Log, generated from the records, edits are lost

## 2026-11-15

* **Failure**: [Dead\*lock](failures/2026-11-15-dead-lock-b.md) by claude/4
* **Insight**: [New one](insights/2026-11-15-new-one-c.md) by claude/4
* **Problem**: [Slow locks](problem.md) by claude/4

## 2026-11-14

* **Insight**: [Old one](insights/2026-11-14-old-one-a.md) by ada
"#
    );
}

#[test]
fn the_same_records_give_the_same_pages_and_no_write() {
    let (_project, bundle) = project();
    fill(&bundle);
    assert_eq!(bundle.refresh().expect("refreshed").written.len(), 2);
    let bytes =
        || ["index.md", "log.md"].map(|name| fs::read(bundle.dir().join(name)).expect("there"));
    let before = bytes();
    assert_eq!(bundle.refresh().expect("refreshed").written.len(), 0);
    for name in ["index.md", "log.md"] {
        fs::remove_file(bundle.dir().join(name)).expect("removed");
    }
    bundle.refresh().expect("refreshed");
    assert_eq!(bytes(), before);
    let records = bundle.records().files.len();
    assert_eq!(records, 17, "the pages are no records");
    assert!(is_generated(Path::new("a/index.md")) && !is_generated(Path::new("my-index.md")));
}

#[test]
fn a_page_that_somebody_wrote_is_kept_and_a_conflict_in_ours_is_not() {
    let (_project, bundle) = project();
    bundle.refresh().expect("refreshed");
    let (index, log) = (bundle.dir().join("index.md"), bundle.dir().join("log.md"));
    fs::write(&log, "# My own log\n").expect("written");
    let page = fs::read_to_string(&index).expect("there");
    fs::write(&index, format!("<<<<<<< HEAD\n{page}=======\n>>>>>>> x\n")).expect("written");
    let refreshed = bundle.refresh().expect("refreshed");
    assert_eq!((refreshed.written, refreshed.kept), (vec![index.clone()], vec![log.clone()]));
    assert_eq!(fs::read_to_string(&index).expect("there"), page);
    assert_eq!(fs::read_to_string(&log).expect("there"), "# My own log\n");
}

#[test]
fn broken_records_are_listed_with_the_title_they_have() {
    let (_project, bundle) = project();
    fs::write(bundle.dir().join("half-done.md"), "---\ntype: [\n---\n").expect("written");
    fs::write(bundle.dir().join("b c%.md"), b"\xFF\xFE").expect("written");
    bundle.refresh().expect("refreshed");
    let index = fs::read_to_string(bundle.dir().join("index.md")).expect("there");
    assert!(index.contains("* [Half done](half-done.md)\n"), "{index}");
    assert!(index.contains("(b%20c%25.md)"), "{index}");
}
