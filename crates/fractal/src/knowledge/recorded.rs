//! The verbs that are written down where they belong to an experiment.

use super::experiment::{self, Experiment};
use super::recording;
use crate::verbs::attempt::{Stop, Watch};
use crate::{Caller, Engine, RunIo, verbs};
use fractal_model::{
    Guard, GuardReply, Part, Promote, PromoteReply, Result, Run, RunReply, Try, TryReply,
};
use fractal_store::Reads;

/// Runs of a sandbox that are looked back at for its experiment.
const LOOK_BACK: u64 = 200;

impl Engine {
    /// `run`, and its record.
    pub(crate) fn run_recorded(&self, caller: &Caller, run: Run, io: RunIo) -> Result<RunReply> {
        let wanted = match &run.part {
            Part::None => experiment::wanted(caller, run.experiment.as_deref())?,
            _ => None,
        };
        let Some(experiment) = wanted else { return verbs::run::run(self, caller, run, io) };
        // It is remembered which experiment the sandbox belongs to.
        let run = Run { experiment: Some(experiment.name.clone()), ..run };
        let (io, streamed) = io.keeping(recording::OUTPUT_BYTES_MAX);
        let mut reply = verbs::run::run(self, caller, run.clone(), io)?;
        self.write_run(caller, &experiment, &run, &mut reply, streamed);
        Ok(reply)
    }

    /// Writes a run down, and takes what went to the caller's own descriptors
    /// out of the reply again.
    fn write_run(
        &self,
        caller: &Caller,
        experiment: &Experiment,
        run: &Run,
        reply: &mut RunReply,
        streamed: (bool, bool),
    ) {
        reply.recorded = Some(recording::run(self, caller, experiment, run, reply));
        if streamed.0 {
            reply.stdout.clear();
        }
        if streamed.1 {
            reply.stderr = not_started(std::mem::take(&mut reply.stderr));
        }
        if streamed.0 || streamed.1 {
            reply.truncated = false;
        }
    }

    /// `guard`, and a record of the run and of its promotion.
    pub(crate) fn guard_recorded(
        &self,
        caller: &Caller,
        asked: Guard,
        io: RunIo,
    ) -> Result<GuardReply> {
        let wanted = experiment::wanted(caller, asked.run.experiment.as_deref())?;
        let Some(experiment) = wanted else {
            return verbs::guard::guard(self, caller, asked, io);
        };
        let run = Run { experiment: Some(experiment.name.clone()), ..asked.run };
        let promote = asked.promote.clone();
        let (io, streamed) = io.keeping(recording::OUTPUT_BYTES_MAX);
        let asked = Guard { run: run.clone(), ..asked };
        let mut reply = verbs::guard::guard(self, caller, asked, io)?;
        self.write_run(caller, &experiment, &run, &mut reply.run, streamed);
        if let Some(promotion) = &mut reply.promotion {
            let recorded = recording::promotion(caller, &experiment, &promote, promotion);
            promotion.recorded = Some(recorded);
        }
        Ok(reply)
    }

    /// `try`, and a record for each attempt.
    pub(crate) fn try_recorded(
        &self,
        caller: &Caller,
        asked: Try,
        watch: Watch<'_>,
        stop: Stop<'_>,
    ) -> Result<TryReply> {
        let wanted = experiment::wanted(caller, asked.run.experiment.as_deref())?;
        let Some(experiment) = wanted else {
            return verbs::attempt::try_all(self, caller, asked, watch, stop);
        };
        let asked = with_experiment(asked, &experiment);
        let commands: Vec<(String, Vec<String>)> =
            asked.attempts.iter().map(|one| (one.name.clone(), one.command.clone())).collect();
        let mut reply = verbs::attempt::try_all(self, caller, asked, watch, stop)?;
        let mut recorded = Vec::new();
        for report in &reply.attempts {
            let command = commands.iter().find(|(name, _)| *name == report.name);
            let command = command.map(|(_, command)| command.as_slice()).unwrap_or_default();
            let won = reply.winner.as_deref() == Some(report.name.as_str());
            recorded.push(recording::attempt(self, caller, &experiment, command, report, won));
        }
        reply.recorded = recorded;
        Ok(reply)
    }

    /// `promote`, and its record.
    pub(crate) fn promote_recorded(
        &self,
        caller: &Caller,
        asked: &Promote,
    ) -> Result<PromoteReply> {
        let named = match &asked.experiment {
            Some(name) => Some(experiment::named(caller, name)?),
            None => None,
        };
        let remembered = || {
            let name = self.experiment_of(caller, asked.sandbox.as_deref())?;
            experiment::named(caller, &name).ok()
        };
        let experiment = named.or_else(remembered).or_else(|| experiment::around(caller));
        let mut reply = verbs::promote::promote(self, caller, asked)?;
        if let Some(experiment) = experiment.filter(|_| !asked.dry_run) {
            reply.recorded = Some(recording::promotion(caller, &experiment, asked, &reply));
        }
        Ok(reply)
    }

    /// The experiment that a sandbox's runs belonged to, as the journal has it.
    fn experiment_of(&self, caller: &Caller, sandbox: Option<&str>) -> Option<String> {
        if !caller.is_owner() {
            return None;
        }
        self.ready().ok()?;
        let row = self.find(caller, sandbox).ok()?;
        let records = self.store.journal(Some(row.id), LOOK_BACK).ok()?;
        let name = |record: &fractal_model::Record| {
            Some(record.body.detail.get("experiment")?.as_str()?.to_owned())
        };
        records.iter().find_map(name)
    }
}

fn with_experiment(asked: Try, experiment: &Experiment) -> Try {
    let run = Run { experiment: Some(experiment.name.clone()), ..asked.run };
    Try { run, ..asked }
}

/// Of errors that were streamed only ours are left: that nothing was started.
fn not_started(stderr: String) -> String {
    let ours = stderr.lines().filter(|line| line.starts_with("fractal: cannot execute "));
    ours.map(|line| format!("{line}\n")).collect()
}
