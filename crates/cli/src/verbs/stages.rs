use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
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
        let head = ["STAGE", "IS", "HOLDS", "EVIDENCE"].map(str::to_owned).to_vec();
        let mut rows = vec![head];
        rows.extend(reply.stages.iter().map(row));
        // Lines that follow a stage are no columns of its table.
        let table = columns(&rows);
        let mut lines = table.lines();
        let mut text = lines.next().map(|head| format!("{head}\n")).unwrap_or_default();
        for (line, stage) in lines.zip(&reply.stages) {
            text.push_str(&format!("{line}\n"));
            text.extend(below(stage).map(|line| format!("  {line}\n")));
        }
        session.print(&text)
    }
}

fn row(stage: &StageReport) -> Vec<String> {
    vec![plain(&stage.name), kind(&stage.kind), holds(stage), proof(stage.stands.as_ref())]
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
    let mark = if evidence.result == fractal::model::CheckResult::Pass { "✓" } else { "✗" };
    format!("{mark} {}", plain(&evidence.name))
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
    let rejected = stage.rejected_by.as_ref().map(|who| format!("rejected by {}", plain(who)));
    frozen.into_iter().chain(waits).chain(refused).chain(rejected)
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
