use crate::board::sign;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use crate::terminal;
use crate::time::distance;
use fractal::model::{Evidence, Pending, Promotion, StageKind, StageReport};
use fractal::{Action, Reply};

/// Show what stands in each stage, and on what evidence
///
/// One line per stage of the project's `fractal.toml`, in the order in which a
/// change comes through them; below it what waits before it or was kept out.
/// All of it is read from the journal.
#[derive(clap::Args)]
pub struct Stages {}

impl Stages {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let Reply::Stages(reply) = session.apply(Action::Stages)? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        session.print(&text(&reply.stages, terminal::width()))
    }
}

/// One line per stage, and below it what follows from it. Evidence has a
/// column of its own where there is room for it.
fn text(stages: &[StageReport], width: usize) -> String {
    let fits = |table: &str| table.lines().all(|line| terminal::columns_of(line) <= width);
    let whole = columns(&rows(stages, usize::MAX, true));
    let (table, is_whole) = match fits(&whole) {
        true => (whole, true),
        false => (columns(&rows(stages, width / 4, false)), false),
    };
    // Lines that follow a stage are no columns of its table.
    let mut lines = table.lines().map(|line| format!("{}\n", terminal::cut(line, width)));
    let mut text = lines.next().unwrap_or_default();
    for (line, stage) in lines.zip(stages) {
        text.push_str(&line);
        let proof = Some(proof(stage.stands.as_ref())).filter(|it| !is_whole && !it.is_empty());
        for line in proof.into_iter().chain(below(stage)) {
            let room = width.saturating_sub(2);
            let lines = terminal::wrapped(&line, room, "  ");
            text.extend(lines.iter().map(|line| format!("  {}\n", terminal::cut(line, room))));
        }
    }
    text
}

fn rows(stages: &[StageReport], kind_max: usize, with_proof: bool) -> Vec<Vec<String>> {
    let row = |stage: &StageReport| {
        let kind = terminal::cut_front(&kind(&stage.kind), kind_max);
        vec![plain(&stage.name), kind, holds(stage), proof(stage.stands.as_ref())]
    };
    let head = ["STAGE", "IS", "HOLDS", "EVIDENCE"].map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = [head].into_iter().chain(stages.iter().map(row)).collect();
    if !with_proof {
        rows.iter_mut().for_each(|row| row.truncate(3));
    }
    rows
}

fn kind(kind: &StageKind) -> String {
    match kind {
        StageKind::Virtual => "virtual".to_owned(),
        StageKind::Reality => "reality".to_owned(),
        StageKind::Directory(path) => plain(path),
        StageKind::Git(branch) => format!("git:{}", plain(branch)),
    }
}

fn holds(stage: &StageReport) -> String {
    let Some(stands) = &stage.stands else { return "-".to_owned() };
    let (from, by) = (plain(&stands.from), plain(&stands.by));
    format!("{from}, by {by} {} ago", distance(&stands.at))
}

/// `✓ test ✗ lint, approved by bob`.
fn proof(stands: Option<&Promotion>) -> String {
    let Some(stands) = stands else { return String::new() };
    let mut parts: Vec<String> = Vec::new();
    if !stands.checks.is_empty() {
        parts.push(stands.checks.iter().map(check).collect::<Vec<_>>().join(" "));
    }
    if !stands.approvals.is_empty() {
        let names: Vec<String> = stands.approvals.iter().map(|name| plain(name)).collect();
        parts.push(format!("approved by {}", names.join(", ")));
    }
    parts.extend(stands.published.map(|published| match published {
        true => "published".to_owned(),
        false => "not published".to_owned(),
    }));
    parts.extend(stands.commit.as_ref().map(|id| format!("commit {}", short(id))));
    parts.extend(stands.undo.map(|id| format!("undo {id}")));
    parts.join(", ")
}

fn check(evidence: &Evidence) -> String {
    format!("{} {}", sign(evidence.result), plain(&evidence.name))
}

fn short(commit: &str) -> String {
    plain(&commit.chars().take(10).collect::<String>())
}

/// What is in the way, what waits, what was kept out.
fn below(stage: &StageReport) -> impl Iterator<Item = String> {
    let frozen = stage.frozen_until.as_ref().map(|until| format!("frozen until {until}"));
    let waits = stage.pending.as_ref().map(|pending| waits(stage, pending));
    let refused = stage.refused.as_ref().map(|refused| {
        let why = refused.why.as_deref().unwrap_or("its gate is closed");
        let checks: Vec<String> = refused.checks.iter().map(check).collect();
        let said =
            if checks.is_empty() { String::new() } else { format!(" ({})", checks.join(" ")) };
        format!("kept out: {}: {}{said}", plain(&refused.from), plain(why))
    });
    let stands = stage.stands.as_ref().filter(|stands| stands.published == Some(false));
    let cut = stands.and_then(|stands| {
        let (why, from) = (plain(stands.why.as_deref()?), plain(&stands.from));
        Some(format!("not published: {why}; `fractal promote {from}` publishes it again"))
    });
    let rejected = stage.rejected_by.as_ref().map(|who| format!("rejected by {}", plain(who)));
    cut.into_iter().chain(frozen).chain(waits).chain(refused).chain(rejected)
}

fn waits(stage: &StageReport, pending: &Pending) -> String {
    let count = usize::try_from(pending.promotions).unwrap_or(usize::MAX);
    let mut text = format!("waits: {} from {}", plural(count, "promotion"), plain(&pending.from));
    if stage.approve > 0 {
        let given = stage.approvals.len();
        text.push_str(&format!(", {given} of {} approvals", stage.approve));
    }
    if let Some(until) = &pending.waits_until {
        text.push_str(&format!(", not before {until}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use fractal::model::CheckResult;

    fn stage(kind: StageKind, checks: &[&str]) -> StageReport {
        let evidence = |name: &&str| Evidence { name: (*name).into(), result: CheckResult::Pass };
        StageReport {
            name: "production".into(),
            kind,
            sandbox: None,
            stands: Some(Promotion {
                id: None,
                from: "try-7k2q-brackets".into(),
                by: "alice".into(),
                at: "2026-11-15T20:43:57Z".into(),
                digest: String::new(),
                paths: 1,
                checks: checks.iter().map(evidence).collect(),
                approvals: vec!["bob".into(), "carol".into()],
                commit: Some("0123456789abcdef".into()),
                undo: None,
                published: Some(true),
                why: None,
            }),
            pending: None,
            refused: None,
            checks: Vec::new(),
            approve: 0,
            approvals: Vec::new(),
            rejected_by: None,
            frozen_until: Some("2026-11-16T06:00:00Z".into()),
        }
    }

    #[test]
    fn a_wide_table_fits_the_terminal() {
        let path = "/srv/some/rather/deep/place/for/a/web/site".to_owned();
        let stages =
            [stage(StageKind::Virtual, &["test"]), stage(StageKind::Directory(path), &["lint"; 9])];
        for width in [40, 80, 120] {
            let text = text(&stages, width);
            let is_narrow = |line: &str| terminal::columns_of(line) <= width;
            assert!(text.lines().all(is_narrow), "{width}\n{text}");
            assert!(text.contains("approved by bob"), "{width}\n{text}");
            assert!(text.contains("\n  ✓ ") || width > 80, "{width}\n{text}");
            assert!(text.contains("a/web/site") || width < 80, "{text}");
        }
        let wide = text(&stages[..1], 200);
        assert_eq!(wide.lines().count(), 3);
        assert!(wide.lines().next().is_some_and(|head| head.ends_with("EVIDENCE")), "{wide}");
    }
}
