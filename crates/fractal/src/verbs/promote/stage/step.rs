//! One step of a change: from a sandbox into the first stage, or from a stage
//! into the next.

use super::gate::{Gate, Refusal, Tally};
use super::source::{Source, authors, carried_authors, narrowed};
use crate::config::{Line, Stage};
use crate::stages;
use crate::stages::digest::digest;
use crate::stages::history::{Arrival, History};
use crate::verbs::promote::plan::{Against, Plan, plan};
use crate::verbs::promote::rehearse::Rehearsal;
use crate::verbs::promote::{Progress, git, inner, stopped, tried};
use crate::view::path_of;
use crate::{Caller, Engine, record};
use fractal_model::{
    CheckReport, Code, Conflict, Error, Evidence, Promote, PromoteReply, Result, SandboxPath,
    StageKind, Verdict,
};
use fractal_store::{SandboxRow, now_ms};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A step that is about to be taken.
pub struct Step<'a> {
    pub(super) engine: &'a Engine,
    pub(super) caller: &'a Caller,
    pub(super) line: Line,
    pub(super) at: usize,
    pub(super) source: Source,
    pub(super) asked: Promote,
    /// The stage's sandbox, as it is before anything came.
    pub(super) row: SandboxRow,
    pub(super) history: History,
    /// What happened to the stage that it comes from.
    before: Option<History>,
    authors: BTreeSet<String>,
    /// The attempt that would have been promoted without a person's word.
    overruled: Option<String>,
    /// The directory that the stage is, where it is one.
    pub(super) directory: Option<PathBuf>,
}

/// What would come in, weighed.
pub struct Weighed {
    pub plan: Plan,
    pub digest: String,
}

impl<'a> Step<'a> {
    pub fn new(
        engine: &'a Engine,
        caller: &'a Caller,
        line: &Line,
        at: usize,
        source: Source,
        asked: &Promote,
    ) -> Result<Step<'a>> {
        engine.require_idle(&source.row, "promote")?;
        let (row, history) = stages::settled(engine, caller, line, at)?;
        let kind = &line.stages[at].kind;
        let asked = narrowed(asked, &source, kind);
        let before = match source.stage {
            Some(_) => Some(stages::history(engine, &source.row)?),
            None => None,
        };
        let authors = match &before {
            Some(before) => carried_authors(before, &history),
            None => authors(engine, &source.row)?,
        };
        let overruled = match source.stage {
            Some(_) => None,
            None => tried(engine, &source.row)?.winner,
        };
        let directory = match kind {
            StageKind::Directory(path) => Some(directory(Path::new(path), line)?),
            _ => None,
        };
        let line = line.clone();
        Ok(Step {
            engine,
            caller,
            line,
            at,
            source,
            asked,
            row,
            history,
            before,
            authors,
            overruled,
            directory,
        })
    }

    pub fn stage(&self) -> &Stage {
        &self.line.stages[self.at]
    }

    pub fn from(&self) -> String {
        self.source.name(&self.line)
    }

    pub fn row(&self) -> &SandboxRow {
        &self.row
    }

    pub fn authors(&self) -> &BTreeSet<String> {
        &self.authors
    }

    /// The project's directory, as a path inside.
    pub(super) fn project(&self) -> Result<SandboxPath> {
        path_of(&self.line.root)
    }

    /// Weighs what moves against what the stage holds now.
    pub fn weigh(&self) -> Result<Weighed> {
        let against = match (&self.stage().kind, &self.directory) {
            (StageKind::Reality, _) => Against::Host,
            (_, Some(_)) => Against::Directory(self.shows()?),
            _ => Against::Stage(self.shows()?),
        };
        let mut plan = plan(self.engine, self.caller, &self.source.row, &self.asked, against)?;
        if let (StageKind::Git(branch), false) = (&self.stage().kind, plan.wishes.is_empty()) {
            plan.conflicts.extend(self.clashes_with_branch(branch, &plan)?);
        }
        let digest = digest(&plan.wishes, &plan.ours, &self.project()?)?;
        Ok(Weighed { plan, digest })
    }

    /// What the stage shows at the project's place.
    pub(super) fn shows(&self) -> Result<fractal_jail::layer::View> {
        let row = self.engine.find_again(&self.row)?;
        match &self.directory {
            Some(directory) => {
                let host = self.engine.host_view(&row, Vec::new())?;
                Ok(host.seen_at(self.project()?, path_of(directory)?))
            }
            None => Ok(self.engine.views(&row, row.base)?.top()),
        }
    }

    fn clashes_with_branch(&self, branch: &str, plan: &Plan) -> Result<Vec<Conflict>> {
        let known = self.history.stands().and_then(|landing| landing.arrival.commit.as_deref());
        let paths: Vec<&SandboxPath> = plan.wishes.iter().map(|wish| &wish.path).collect();
        let root = &self.line.root;
        let clashes = git::changed_by_others(self.caller, root, branch, known, &paths)?;
        let why = |path: SandboxPath| Conflict {
            path: path.to_string(),
            why: format!("somebody else changed it on the branch `{branch}`"),
        };
        Ok(clashes.into_iter().map(why).collect())
    }

    /// What people said about exactly this.
    pub fn tally(&self, digest: &str) -> Tally {
        self.gate(digest).tally()
    }

    fn gate<'g>(&'g self, digest: &'g str) -> Gate<'g> {
        let since = self.before.as_ref().and_then(History::stands).map(|landing| landing.at_ms);
        let name = self.source.stage.map(|at| self.line.stages[at].name.as_str());
        Gate {
            stage: self.stage(),
            now_ms: now_ms(),
            before: name.zip(since),
            digest,
            authors: &self.authors,
            votes: &self.history.votes,
            approve: format!("fractal approve {}", self.from()),
        }
    }

    /// Takes the step, or says what is in its way.
    pub fn take(self) -> Result<PromoteReply> {
        let weighed = self.weigh()?;
        inner::refuse_staged(&self.line.root, &weighed.plan.wishes)?;
        let gate = self.gate(&weighed.digest);
        let stop = stopped(&weighed.plan, self.asked.allow_autorun);
        let closed = self.unpublished().or_else(|| gate.before_checks());
        if self.asked.dry_run {
            return Ok(self.planned(&weighed, stop.map(|(verdict, _)| verdict), closed));
        }
        if let Some((verdict, code)) = stop {
            return self.refuse(&weighed, Vec::new(), verdict, code, None);
        }
        if weighed.plan.wishes.is_empty() {
            return self.nothing(&weighed);
        }
        if closed.is_some() {
            return self.refuse(&weighed, Vec::new(), Verdict::Denied, Code::Denied, closed);
        }
        let (checks, rehearsal) = self.check(&weighed)?;
        if checks.iter().any(CheckReport::rules_out) {
            return self.refuse(&weighed, checks, Verdict::Gate, Code::Gate, None);
        }
        if let Some(refusal) = gate.after_checks() {
            let refusal = Some(refusal);
            return self.refuse(&weighed, checks, Verdict::Denied, Code::Denied, refusal);
        }
        self.land(&weighed, checks, rehearsal)
    }

    /// A stage whose publish command did not end well must not pass on what
    /// stands there.
    fn unpublished(&self) -> Option<Refusal> {
        let landing = self.before.as_ref()?.stands().filter(|one| one.is_unpublished())?;
        Some(Refusal {
            why: format!("what stands in `{}` was not published yet", self.from()),
            hint: format!("`fractal promote {}` publishes it again", landing.arrival.from),
        })
    }

    /// What the gate's checks say about the stage with the change in it.
    fn check(&self, weighed: &Weighed) -> Result<(Vec<CheckReport>, Option<Rehearsal<'a>>)> {
        let mut checks = self.stage().checks.clone();
        checks.extend(inner::checks(&self.line.root, &weighed.plan.wishes)?);
        checks.extend(self.asked.checks.iter().cloned());
        let is_git = matches!(self.stage().kind, StageKind::Git(_));
        if checks.is_empty() && !is_git {
            return Ok((Vec::new(), None));
        }
        let stage = match self.stage().kind {
            StageKind::Reality => None,
            _ => Some(&self.row),
        };
        let (engine, caller) = (self.engine, self.caller);
        let rehearsal = Rehearsal::new(engine, caller, &self.row, stage, &weighed.plan)?;
        let reports = match checks.is_empty() {
            true => Vec::new(),
            false => rehearsal.check(&checks)?,
        };
        Ok((reports, Some(rehearsal)))
    }

    pub(super) fn progress<'p>(
        &'p self,
        weighed: &'p Weighed,
        checks: Vec<CheckReport>,
    ) -> Progress<'p> {
        Progress {
            row: &self.source.row,
            stage: &self.stage().name,
            plan: &weighed.plan,
            checks,
            notes: Vec::new(),
            overruled: self.overruled.clone(),
        }
    }

    /// What the journal keeps about it.
    pub(super) fn arrival(&self, weighed: &Weighed, checks: &[CheckReport]) -> Arrival {
        let mut authors = self.authors.clone();
        if self.before.is_none() {
            // Whoever brings a change into the line speaks for it.
            authors.insert(self.caller.who.clone());
        }
        let stands = self.before.as_ref().and_then(History::stands);
        Arrival {
            stage: self.stage().name.clone(),
            from: self.from(),
            carries: stands.and_then(|landing| landing.arrival.promotion),
            digest: weighed.digest.clone(),
            paths: weighed.plan.wishes.len() as u64,
            checks: checks.iter().map(Evidence::from).collect(),
            authors,
            approvals: self.tally(&weighed.digest).approvals,
            ..Arrival::default()
        }
    }

    /// The reply, with a stage under the name that people use.
    pub(super) fn named(&self, mut reply: PromoteReply) -> PromoteReply {
        reply.sandbox = Some(self.from());
        reply
    }

    fn planned(
        &self,
        weighed: &Weighed,
        stop: Option<Verdict>,
        closed: Option<Refusal>,
    ) -> PromoteReply {
        let mut progress = self.progress(weighed, Vec::new());
        let verdict = match (&closed, stop) {
            (_, Some(verdict)) => verdict,
            (_, None) if weighed.plan.wishes.is_empty() => Verdict::Nothing,
            (Some(_), None) => Verdict::Denied,
            (None, None) => Verdict::Planned,
        };
        progress.notes.extend(closed.into_iter().flat_map(words));
        self.named(progress.reply(verdict, None, None))
    }

    /// Writes down what stopped it; nothing has changed.
    fn refuse(
        &self,
        weighed: &Weighed,
        checks: Vec<CheckReport>,
        verdict: Verdict,
        code: Code,
        refusal: Option<Refusal>,
    ) -> Result<PromoteReply> {
        let mut arrival = self.arrival(weighed, &checks);
        arrival.why = Some(
            refusal
                .as_ref()
                .map_or_else(|| reason(verdict).to_owned(), |refusal| refusal.why.clone()),
        );
        let mut progress = self.progress(weighed, checks);
        let mut received = record(self.caller, "promote", Some(&self.row));
        received.error = Some(code);
        received.detail = detail(&arrival)?;
        let mut gave = progress.record(self.caller);
        gave.error = Some(code);
        self.engine.store.transact(|tx| {
            tx.append(gave)?;
            tx.append(received)
        })?;
        progress.notes.extend(refusal.into_iter().flat_map(words));
        Ok(self.named(progress.reply(verdict, None, None)))
    }

    /// The stage has all of it. What is left to do is to say so, and to
    /// publish what was not.
    fn nothing(&self, weighed: &Weighed) -> Result<PromoteReply> {
        let stands = self.history.stands();
        if let Some(landing) = stands.filter(|landing| landing.is_unpublished()) {
            return self.publish_again(weighed, landing);
        }
        let arrival = self.arrival(weighed, &[]);
        let carried = stands.and_then(|landing| landing.arrival.carries);
        if !self.catch_up(weighed)? && arrival.carries.is_some() && arrival.carries != carried {
            let arrival = Arrival { promotion: Some(fractal_store::new_id()), ..arrival };
            let mut received = record(self.caller, "promote", Some(&self.row));
            received.detail = detail(&arrival)?;
            let landed = self.landed(&[], &arrival)?;
            self.engine.store.transact(|tx| {
                let record = tx.append(received)?;
                landed.iter().for_each(|landed| landed.sign(self.engine, &record));
                Ok(())
            })?;
        }
        let progress = self.progress(weighed, Vec::new());
        Ok(self.named(progress.reply(Verdict::Nothing, None, None)))
    }
}

pub(super) fn detail(arrival: &Arrival) -> Result<serde_json::Value> {
    serde_json::to_value(arrival)
        .map_err(|error| Error::internal(format!("a record cannot be written: {error}")))
}

fn words(refusal: Refusal) -> [String; 2] {
    [refusal.why, format!("hint: {}", refusal.hint)]
}

fn reason(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Conflict => "it clashes with what stands there",
        Verdict::Gate => "a check did not pass",
        _ => "it brings files that run by themselves",
    }
}

/// The directory of a stage, with every link on its way resolved.
fn directory(path: &Path, line: &Line) -> Result<PathBuf> {
    let real = path.canonicalize().map_err(|error| {
        Error::not_found(format!("the stage's directory {} is not there: {error}", path.display()))
            .hint(format!("`cp -a {}/. {}` makes it", line.root.display(), path.display()))
    })?;
    let root = line.root.canonicalize().unwrap_or_else(|_| line.root.clone());
    if real.starts_with(&root) || root.starts_with(&real) {
        return Err(Error::invalid(format!("{} leads into the project itself", path.display()))
            .hint("give the stage a directory of its own in fractal.toml"));
    }
    Ok(real)
}
