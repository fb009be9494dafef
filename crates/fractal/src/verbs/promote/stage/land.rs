//! Coming into a stage: write, publish, and go back if publishing fails.
//!
//! A directory or a branch is written first and the stage's own layers after
//! it, with the record that tells of both: should the latter fail, the former
//! is taken back. The publish command (`publish`) runs when all of it stands.

use super::step::{Step, Weighed, detail};
use crate::apply::{Job, apply};
use crate::attest::{Facts, Subject};
use crate::stages;
use crate::stages::history::{Arrival, Landing};
use crate::verbs::promote::evidence::{self, Landed};
use crate::verbs::promote::git::{self, Committed};
use crate::verbs::promote::links;
use crate::verbs::promote::plan::{Against, Plan, plan};
use crate::verbs::promote::reality;
use crate::verbs::promote::rehearse::Rehearsal;
use crate::verbs::promote::sandbox::{Records, grow};
use crate::verbs::undo::{Asked, undo};
use crate::view::path_of;
use crate::{base, record};
use fractal_model::{CheckReport, Code, Error, Form, Id, PromoteReply, Result, StageKind, Verdict};
use fractal_store::{SandboxRow, new_id};
use serde_json::json;

impl<'a> Step<'a> {
    /// Brings it in.
    pub(super) fn land(
        &self,
        weighed: &Weighed,
        checks: Vec<CheckReport>,
        rehearsal: Option<Rehearsal<'a>>,
    ) -> Result<PromoteReply> {
        let mut arrival = self.arrival(weighed, &checks);
        let promotion = new_id();
        arrival.promotion = Some(promotion);
        arrival.publish = self.stage().publish.clone();
        let commit = match (&self.stage().kind, rehearsal) {
            (StageKind::Virtual, _) => {
                self.land_in_layers(weighed, &checks, arrival).map(|()| None)?
            }
            (StageKind::Git(branch), Some(rehearsal)) => {
                Some(self.land_on_branch(branch, &rehearsal, weighed, &checks, arrival)?)
            }
            (StageKind::Git(_), None) => return Err(Error::internal("a commit needs a rehearsal")),
            (StageKind::Reality, _) => {
                self.land_in_reality(weighed, &checks, arrival).map(|()| None)?
            }
            (StageKind::Directory(_), _) => {
                self.land_in_directory(weighed, &checks, arrival).map(|()| None)?
            }
        };
        let made = commit.as_ref().map(|commit| commit.new.clone());
        let landing = self.landing(promotion)?;
        let mut progress = self.progress(weighed, checks);
        if let Some(report) = self.publish(&landing)? {
            let failed = report.rules_out();
            progress.checks.push(report);
            if failed {
                progress.notes.push(self.go_back(&landing, commit.as_ref())?);
                return Ok(self.named(progress.reply(Verdict::Gate, None, None)));
            }
        }
        self.note_bases(&weighed.plan);
        if !matches!(self.stage().kind, StageKind::Reality | StageKind::Directory(_)) {
            let plan = &weighed.plan;
            progress.notes.extend(links::separated(&plan.ours, &plan.wishes)?);
        }
        // What is kept too long is only disk.
        let _ = stages::forget_older(self.engine, &self.row, &landing);
        if let Some(winner) = &progress.overruled {
            progress.notes.push(format!("this overrules the ranking, which chose `{winner}`"));
        }
        if let Some(undo) = landing.arrival.undo {
            progress.notes.extend(evidence::missing(self.engine, undo)?);
        }
        Ok(self.named(progress.reply(Verdict::Applied, landing.arrival.undo, made)))
    }

    /// The records of a promotion: who gave, who received.
    fn records(
        &self,
        weighed: &Weighed,
        checks: &[CheckReport],
        arrival: &Arrival,
    ) -> Result<Records> {
        let gave = self.progress(weighed, checks.to_vec()).record(self.caller);
        let mut received = record(self.caller, "promote", Some(&self.row));
        received.detail = detail(arrival)?;
        // What was written into a directory is signed with what takes it back.
        let landed = match (&self.stage().kind, arrival.undo) {
            (StageKind::Reality, _) | (_, Some(_)) => None,
            (_, None) => self.landed(checks, arrival)?,
        };
        Ok(Records { gave, received, landed })
    }

    /// What is signed of something that needs no write, or none of ours.
    pub(super) fn landed(
        &self,
        checks: &[CheckReport],
        arrival: &Arrival,
    ) -> Result<Option<Landed>> {
        let Some(promotion) = arrival.promotion else { return Ok(None) };
        let (digest, commit) = (arrival.digest.clone(), arrival.commit.clone());
        let subject = Subject::Landed { digest, commit };
        Ok(Some(Landed { promotion, subject, facts: self.facts(checks)? }))
    }

    fn facts(&self, checks: &[CheckReport]) -> Result<Facts> {
        evidence::facts(self.engine, self.caller, &self.source.row, &self.stage().name, checks)
    }

    fn land_in_layers(
        &self,
        weighed: &Weighed,
        checks: &[CheckReport],
        arrival: Arrival,
    ) -> Result<()> {
        let records = self.records(weighed, checks, &arrival)?;
        grow(self.engine, &self.row, &weighed.plan, records).map(drop)
    }

    fn land_in_reality(
        &self,
        weighed: &Weighed,
        checks: &[CheckReport],
        arrival: Arrival,
    ) -> Result<()> {
        let Records { gave, received, .. } = self.records(weighed, checks, &arrival)?;
        let plan = self.again(weighed)?;
        let root = reality::root(&self.row, &plan)?;
        let steps = plan.wishes.iter().map(|wish| wish.step()).collect();
        let facts = Some(self.facts(checks)?);
        self.apply(Job { root, steps, view: Some(&plan.ours), record: received, facts })?;
        self.engine.store.transact(|tx| tx.append(gave))?;
        Ok(())
    }

    fn land_in_directory(
        &self,
        weighed: &Weighed,
        checks: &[CheckReport],
        mut arrival: Arrival,
    ) -> Result<()> {
        let plan = self.again(weighed)?;
        let root = self.directory.clone().ok_or_else(|| Error::internal("no directory"))?;
        let (project, target) = (self.project()?, path_of(&root)?);
        let moved = |wish: &super::super::Wish| {
            let mut step = wish.step();
            step.path = wish.path.moved(&project, &target)?;
            Some(step)
        };
        let steps = plan.wishes.iter().filter_map(moved).collect();
        let view = plan.ours.seen_at(target.clone(), project.clone());
        // The promotion itself is told with the layers; this one tells of the
        // write alone, and what takes it back.
        let mut written = record(self.caller, "promote", Some(&self.row));
        written.detail = json!({ "stage": self.stage().name, "files": true });
        let facts = Some(self.facts(checks)?);
        let undo = self.apply(Job { root, steps, view: Some(&view), record: written, facts })?;
        arrival.undo = Some(undo);
        self.with_layers(weighed, checks, &arrival).inspect_err(|_| {
            let _ = self.undo(undo);
        })
    }

    fn land_on_branch(
        &self,
        branch: &str,
        rehearsal: &Rehearsal<'_>,
        weighed: &Weighed,
        checks: &[CheckReport],
        mut arrival: Arrival,
    ) -> Result<Committed> {
        let promotion = arrival.promotion.unwrap_or_else(new_id);
        let named = SandboxRow { name: self.from(), ..self.row.clone() };
        let form = Form::Branch(branch.to_owned());
        let commit = git::commit(self.engine, self.caller, &named, rehearsal, &form, promotion)?;
        arrival.commit = Some(commit.new.clone());
        let told = self.with_layers(weighed, checks, &arrival);
        told.inspect_err(|_| drop(git::take_back(self.caller, &self.line.root, &commit)))?;
        Ok(commit)
    }

    /// Follows a directory or a branch with the stage's layers.
    fn with_layers(
        &self,
        weighed: &Weighed,
        checks: &[CheckReport],
        arrival: &Arrival,
    ) -> Result<()> {
        let records = self.records(weighed, checks, arrival)?;
        let plan = self.layers_lack()?;
        if plan.wishes.is_empty() {
            return Ok(self.engine.store.transact(|tx| records.write(self.engine, tx))?);
        }
        grow(self.engine, &self.row, &plan, records).map(drop)
    }

    /// What moves, weighed against the stage's layers alone.
    fn layers_lack(&self) -> Result<Plan> {
        let shows = self.engine.views(&self.row, self.row.base)?.top();
        let asked = fractal_model::Promote {
            // The directory had the last word about both sides' edits.
            ours: vec!["/".into()],
            ..self.asked.clone()
        };
        plan(self.engine, self.caller, &self.source.row, &asked, Against::Stage(shows))
    }

    /// Where a directory has everything already, by a crash or by hand, the
    /// layers follow; false when they have it too.
    pub(super) fn catch_up(&self, weighed: &Weighed) -> Result<bool> {
        if self.directory.is_none() {
            return Ok(false);
        }
        let plan = self.layers_lack()?;
        if plan.wishes.is_empty() {
            return Ok(false);
        }
        let arrival = Arrival {
            promotion: Some(new_id()),
            // Whether it was published nobody knows: the next promotion does.
            publish: self.stage().publish.clone(),
            ..self.arrival(weighed, &[])
        };
        grow(self.engine, &self.row, &plan, self.records(weighed, &[], &arrival)?)?;
        self.note_bases(&plan);
        Ok(true)
    }

    /// The gate took its time: what it judged must be what is written.
    fn again(&self, weighed: &Weighed) -> Result<Plan> {
        let now = self.weigh()?;
        match now.digest == weighed.digest && now.plan.conflicts.is_empty() {
            true => Ok(now.plan),
            false => Err(self.moved()),
        }
    }

    fn apply(&self, job: Job<'_>) -> Result<Id> {
        apply(self.engine, job).map(|done| done.undo).map_err(|error| match error.code {
            Code::Conflict => self.moved(),
            _ => error,
        })
    }

    fn moved(&self) -> Error {
        let message =
            format!("`{}` was written by others while its gate judged", self.stage().name);
        Error::new(Code::Busy, message).hint("nothing has changed; promote again when it rests")
    }

    fn landing(&self, promotion: Id) -> Result<Landing> {
        let history = stages::history(self.engine, &self.row)?;
        let found = history.stands().filter(|one| one.arrival.promotion == Some(promotion));
        found.cloned().ok_or_else(|| {
            Error::new(Code::Busy, format!("`{}` moved on at once", self.stage().name))
                .hint("`fractal stages` shows what stands there")
        })
    }

    /// Takes back what came in; returns what to tell.
    fn go_back(&self, landing: &Landing, commit: Option<&Committed>) -> Result<String> {
        let stage = &self.stage().name;
        let mut trouble = Vec::new();
        if let Some(undo) = landing.arrival.undo {
            trouble.extend(self.undo(undo).err());
        }
        if let Some(commit) = commit {
            let back = git::take_back(self.caller, &self.line.root, commit);
            trouble.extend(back.err().map(|error| error.message));
        }
        if trouble.is_empty() {
            let row = self.engine.find_again(&self.row)?;
            let history = stages::history(self.engine, &row)?;
            // As it is told now: a directory's undo has marked it already.
            let newest = history.taken_back().filter(|one| one.top == landing.top);
            let landing = newest.unwrap_or(landing);
            stages::take_back(self.engine, self.caller, &row, landing, "publishing failed")?;
            return Ok(format!("publishing failed, so `{stage}` is as it was before"));
        }
        Ok(format!(
            "publishing failed, and `{stage}` could not be put back: {}",
            trouble.join("; ")
        ))
    }

    fn undo(&self, id: Id) -> std::result::Result<(), String> {
        let asked = Asked { promotion: Some(id.as_str()), ..Asked::default() };
        match undo(self.engine, self.caller, &asked) {
            Ok(reply) if reply.conflicts.is_empty() => Ok(()),
            Ok(_) => {
                Err(format!("others wrote there meanwhile; see `fractal undo {id} --dry-run`"))
            }
            Err(error) => Err(error.message),
        }
    }

    /// Without these notes the next promotion is more careful, no more.
    fn note_bases(&self, plan: &Plan) {
        let whole = plan.wishes.iter().filter(|wish| !wish.merged);
        let paths = whole.map(|wish| &wish.path);
        let from = &self.source.row;
        let _ = match self.stage().kind {
            StageKind::Reality => base::note_promoted(self.engine, from, None, paths),
            _ => self
                .shows()
                .and_then(|shows| base::note_staged(self.engine, from, &self.row, &shows, paths)),
        };
    }
}
