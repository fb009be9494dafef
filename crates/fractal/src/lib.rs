//! The engine: the verbs over sandboxes.
//!
//! Every surface produces an [`Action`] and hands it to [`Engine::apply`];
//! one file per verb in `verbs` carries it out. The engine prints nothing,
//! reads no environment variable and knows neither HTTP nor terminals: what
//! it must know of its caller stands in [`Caller`]. Data flows one way, from
//! the verb through the runner to the changes and into the journal.

mod apply;
mod attest;
mod authenticate;
mod base;
mod budget;
mod cancel;
mod capture;
mod check;
mod config;
mod doctor;
mod doors;
mod doorway;
mod environment;
#[cfg(feature = "tools")]
mod files;
mod flat;
mod full_disk;
#[cfg(feature = "knowledge")]
mod knowledge;
#[cfg(feature = "virtual")]
mod landing;
mod living;
#[cfg(feature = "virtual")]
mod memory_view;
mod merge;
mod names;
pub mod patch;
mod reach;
mod scripts;
mod stages;
mod stale;
mod template;
#[cfg(feature = "tools")]
pub mod tools;
mod verbs;
mod view;

pub use cancel::Cancel;
pub use config::{Config, Line, Server, Setting, Stage, TrySettings};
#[cfg(feature = "knowledge")]
pub use config::{IndexServers, ModelChoice};
pub use doctor::{Diagnosis, Finding};
pub use doors::{fingerprint, new_name};
pub use doorway::{DOOR_VARIABLE, Doors, Doorway, Grant, KEY_VARIABLE};
pub use environment::{default_hidden, filter as filter_environment};
#[cfg(feature = "tools")]
pub use files::OpenFile;
pub use fractal_jail::terminal::{FarEnd, Signals};
pub use fractal_jail::{Input, OpenDoor, Output, Starts, Streams, starts};
pub use fractal_model as model;
pub use fractal_model::{Action, Code, Error, Policy, Reply, Result, Run, RunReply};
pub use fractal_store::{Census, FORMAT_VERSION};
pub use template::Template;
pub use verbs::attempt::{Progress, Stop, Watch};
pub use verbs::diff::{DiffFormat, DiffOutput};
pub use verbs::run::RunIo;
#[cfg(feature = "mount")]
pub use verbs::run::{Mounting, Told};

use fractal_jail::layer::Marks;
use fractal_model::{
    Check, CheckReport, Guard, GuardReply, Id, Reach, RecordBody, Tier, Try, TryReply, Verb,
};
use fractal_store::{Reads, RunRow, SandboxRow, Store, Tx, now_ms};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use verbs::attempt::plan::Judged;

/// Who asks, from where, and within which bounds.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The key's name, for the journal: `owner` for the local user.
    pub who: String,
    /// The key's id; none for the local user.
    pub key: Option<Id>,
    /// What the key allows.
    pub policy: Policy,
    /// Which sandboxes, volumes and records it can see.
    pub reach: Reach,
    /// The directory the request comes from.
    pub directory: PathBuf,
    /// The caller's environment; runs get a filtered part of it.
    pub environment: Vec<(OsString, OsString)>,
    /// Settings and templates that apply there.
    pub config: Config,
    /// The door it came through, for a program in a sandbox.
    pub door: Option<std::sync::Arc<Doorway>>,
    /// What else bounds the key, for keys that are made in its name.
    pub bounds: KeyBounds,
    /// Whether somebody still waits for the answer. Verbs that only read look
    /// at it now and then; what changes something goes on to its end.
    pub cancel: Cancel,
}

/// How long a key is good, and how often at once and in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// When it ends.
    pub expires_ms: Option<u64>,
    /// Requests in a minute.
    pub rate_per_minute: Option<u32>,
    /// Requests at once.
    pub concurrent: Option<u32>,
}

impl KeyBounds {
    pub(crate) fn of(key: &fractal_model::Key) -> KeyBounds {
        KeyBounds {
            expires_ms: key.expires_ms,
            rate_per_minute: key.rate_per_minute,
            concurrent: key.concurrent,
        }
    }
}

impl Caller {
    /// The local user in a directory, with nothing forbidden.
    pub fn owner(directory: impl Into<PathBuf>) -> Caller {
        Caller {
            who: "owner".to_owned(),
            key: None,
            policy: Policy::default(),
            reach: Reach::default(),
            directory: directory.into(),
            environment: Vec::new(),
            config: Config::default(),
            door: None,
            bounds: KeyBounds::default(),
            cancel: Cancel::default(),
        }
    }
}

/// A state directory and the verbs over it. Safe to share between threads and
/// to open in many processes at once.
pub struct Engine {
    home: PathBuf,
    store: Opened,
    tier: OnceLock<Tier>,
    fault_hook: OnceLock<apply::Hook>,
    refusals: authenticate::Refusals,
    doors: OnceLock<Doors>,
    #[cfg(feature = "tools")]
    tools: OnceLock<tools::ToolRegistry>,
    #[cfg(feature = "tools")]
    mcp: tools::mcp::Known,
    #[cfg(feature = "knowledge")]
    models: knowledge::meaning::Models,
}

/// The store, once a door has opened it with [`Engine::ready`].
struct Opened(OnceLock<Store>);

impl Deref for Opened {
    type Target = Store;
    fn deref(&self) -> &Store {
        self.0.get().expect("every door calls `ready` before a verb needs the store")
    }
}

impl Engine {
    /// Opens (or makes) a state directory and settles what a crash left.
    pub fn open(home: &Path) -> Result<Engine> {
        let engine = Engine::at(home)?;
        engine.ready()?;
        Ok(engine)
    }

    /// The same, but an existing state directory is opened when it is first
    /// needed. A throw-away run needs it late, so that opening it costs no
    /// time: that is for command lines, which open it for each call.
    pub fn at(home: &Path) -> Result<Engine> {
        // A relative path would mean another place inside a sandbox.
        let home = std::path::absolute(home)
            .map_err(|error| Error::invalid(format!("{} is no path: {error}", home.display())))?;
        let engine = Engine {
            home,
            store: Opened(OnceLock::new()),
            tier: OnceLock::new(),
            fault_hook: OnceLock::new(),
            refusals: authenticate::Refusals::default(),
            doors: OnceLock::new(),
            #[cfg(feature = "tools")]
            tools: OnceLock::new(),
            #[cfg(feature = "tools")]
            mcp: tools::mcp::Known::default(),
            #[cfg(feature = "knowledge")]
            models: knowledge::meaning::Models::default(),
        };
        if !engine.layers_dir().is_dir() {
            engine.ready()?;
        }
        Ok(engine)
    }

    /// Opens the state directory if nobody has yet.
    pub(crate) fn ready(&self) -> Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        self.open_store()?;
        self.settle_crashes()
    }

    pub(crate) fn open_store(&self) -> Result<()> {
        if !self.is_ready() {
            let store = Store::open(&self.home)?;
            // Another thread may have been faster; then ours is closed again.
            let _ = self.store.0.set(store);
        }
        Ok(())
    }

    /// Settles what processes that died left behind.
    pub(crate) fn settle_crashes(&self) -> Result<()> {
        self.recover()?;
        apply::recover(self)
    }

    /// Has every change that a write into reality makes announced before it
    /// happens, for tests of what a crash or a full disk leaves.
    #[doc(hidden)]
    pub fn set_fault_hook(
        &self,
        hook: impl Fn(&'static str, u64) -> std::io::Result<()> + Send + Sync + 'static,
    ) {
        let _ = self.fault_hook.set(std::sync::Arc::new(hook));
    }

    pub(crate) fn fault_hook(&self) -> Option<apply::Hook> {
        self.fault_hook.get().cloned()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.store.0.get().is_some()
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where layers live.
    pub(crate) fn layers_dir(&self) -> PathBuf {
        self.home.join("layers")
    }

    /// Carries out an action and records it. On an error nothing has changed.
    pub fn apply(&self, caller: &Caller, action: Action) -> Result<Reply> {
        let verb = action.verb();
        self.on_any_disk(action, |action| {
            self.authorize(caller, verb)?;
            let done = self.carry_out(caller, action);
            self.noted(caller, verb, done)
        })
    }

    fn carry_out(&self, caller: &Caller, action: Action) -> Result<Reply> {
        match action {
            Action::Run(run) => {
                let io = RunIo::told(run.stdin.as_deref());
                self.run_recorded(caller, run, io).map(|reply| Reply::Run(Box::new(reply)))
            }
            Action::Fork { sandbox, name, ask, network, ttl_ms, world } => {
                let asked =
                    verbs::fork::Asked { ask: &ask, network: network.as_ref(), ttl_ms, world };
                verbs::fork::fork(self, caller, sandbox.as_deref(), name.as_deref(), &asked)
                    .map(Reply::Sandbox)
            }
            Action::Snapshot { sandbox, name } => {
                verbs::snapshot::snapshot(self, caller, sandbox.as_deref(), name.as_deref())
                    .map(Reply::Snapshot)
            }
            Action::Rollback { sandbox, to } => {
                verbs::rollback::rollback(self, caller, sandbox.as_deref(), &to).map(Reply::Sandbox)
            }
            Action::Diff { sandbox, since } => {
                verbs::diff::diff(self, caller, sandbox.as_deref(), since.as_deref())
                    .map(Reply::Diff)
            }
            Action::List => verbs::list::list(self, caller).map(Reply::List),
            Action::Show { sandbox } => verbs::show::show(self, caller, sandbox.as_deref())
                .map(|reply| Reply::Show(Box::new(reply))),
            Action::Log { sandbox, limit, here, whole } => {
                let asked = verbs::log::Asked { sandbox: sandbox.as_deref(), limit, here, whole };
                verbs::log::log(self, caller, &asked).map(Reply::Log)
            }
            Action::Drop { sandboxes, force } => verbs::drop::drop(self, caller, &sandboxes, force),
            Action::Copy { from, to } => {
                verbs::copy::copy(self, caller, &from, &to).map(Reply::Archive)
            }
            Action::Export { sandbox, to, history } => {
                verbs::export::export(self, caller, sandbox.as_deref(), Path::new(&to), history)
                    .map(Reply::Archive)
            }
            Action::Import { from, name } => {
                verbs::import::import(self, caller, Path::new(&from), name.as_deref())
                    .map(Reply::Sandbox)
            }
            Action::Volume(verb) => verbs::volume::volume(self, caller, verb),
            Action::Gc { dry_run, undo_ms } => {
                verbs::gc::gc(self, caller, dry_run, undo_ms).map(Reply::Gc)
            }
            Action::Try(asked) => self
                .try_recorded(caller, *asked, &|_| (), &|| false)
                .map(|reply| Reply::Try(Box::new(reply))),
            Action::Compare { sandboxes, checks, score, rank, repeat } => {
                let asked = Judged {
                    checks: &checks,
                    repeat,
                    score: score.as_deref(),
                    rank: rank.as_ref(),
                    criteria: &[],
                    weights: &BTreeMap::new(),
                };
                verbs::compare::compare(self, caller, &sandboxes, asked)
                    .map(|reply| Reply::Try(Box::new(reply)))
            }
            Action::Promote(asked) => {
                self.promote_recorded(caller, &asked).map(|reply| Reply::Promote(Box::new(reply)))
            }
            Action::Verify { promotion } => {
                verbs::verify::verify(self, caller, promotion.as_deref())
                    .map(|reply| Reply::Verify(Box::new(reply)))
            }
            Action::Update { sandbox, ours, theirs, dry_run } => {
                let asked = verbs::update::Asked { ours, theirs, dry_run };
                verbs::update::update(self, caller, sandbox.as_deref(), &asked)
                    .map(|reply| Reply::Promote(Box::new(reply)))
            }
            Action::Guard(asked) => self
                .guard_recorded(caller, *asked, RunIo::captured())
                .map(|reply| Reply::Guard(Box::new(reply))),
            Action::Undo { promotion, only, dry_run } => {
                let asked =
                    verbs::undo::Asked { promotion: promotion.as_deref(), only: &only, dry_run };
                verbs::undo::undo(self, caller, &asked).map(|reply| Reply::Promote(Box::new(reply)))
            }
            Action::Approve(vote) => verbs::vote::vote(self, caller, &vote, true).map(Reply::Vote),
            Action::Reject(vote) => verbs::vote::vote(self, caller, &vote, false).map(Reply::Vote),
            Action::Stages => verbs::stages::stages(self, caller).map(Reply::Stages),
            Action::Key(verb) => verbs::key::key(self, caller, verb),
            Action::Audit { since_ms, until_ms, key, action, sandbox, denied, limit, after } => {
                let asked = verbs::audit::Asked {
                    since_ms,
                    until_ms,
                    key: key.as_deref(),
                    action: action.as_deref(),
                    sandbox: sandbox.as_deref(),
                    denied,
                    limit,
                    after,
                };
                verbs::audit::audit(self, caller, &asked).map(Reply::Audit)
            }
            Action::AuditVerify { expect } => {
                verbs::audit::verify(self, caller, expect.as_deref()).map(Reply::AuditVerify)
            }
            #[cfg(feature = "tools")]
            Action::Tool(call) => self.call_tool(caller, &call),
            #[cfg(feature = "tools")]
            Action::Calls(asked) => self.call_tools(caller, asked),
            #[cfg(feature = "tools")]
            Action::Tools { sandbox } => {
                self.list_tools(caller, sandbox.as_deref()).map(Reply::Tools)
            }
            #[cfg(feature = "knowledge")]
            Action::Note(asked) => verbs::note::note(self, caller, &asked).map(Reply::Note),
            #[cfg(feature = "knowledge")]
            Action::Find(asked) => {
                verbs::find::find(self, caller, &asked).map(|reply| Reply::Find(Box::new(reply)))
            }
            #[cfg(feature = "knowledge")]
            Action::Graph(asked) => verbs::find::graph(self, caller, &asked).map(Reply::Graph),
            #[cfg(feature = "knowledge")]
            Action::Learned { since_ms } => {
                verbs::find::learned(self, caller, since_ms).map(Reply::Learned)
            }
            #[cfg(feature = "knowledge")]
            Action::Skunk(verb) => verbs::skunk::skunk(self, caller, *verb),
            #[cfg(feature = "knowledge")]
            Action::Index(verb) => verbs::index::index(self, caller, verb, &mut |_, _| ()),
            #[cfg(not(feature = "knowledge"))]
            Action::Note(_)
            | Action::Find(_)
            | Action::Graph(_)
            | Action::Learned { .. }
            | Action::Skunk(_)
            | Action::Index(_) => {
                Err(Error::new(Code::Unsupported, "this fractal was built without records")
                    .hint("build it with the feature `knowledge`"))
            }
            #[cfg(not(feature = "tools"))]
            Action::Tool(_) | Action::Calls(_) | Action::Tools { .. } => {
                Err(Error::new(Code::Unsupported, "this fractal was built without tools")
                    .hint("build it with the feature `tools`"))
            }
        }
    }

    /// Looks after the index of what was learned, and tells how far it is.
    #[cfg(feature = "knowledge")]
    pub fn index_with(
        &self,
        caller: &Caller,
        verb: fractal_model::IndexVerb,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Reply> {
        self.ready()?;
        let needed = verb.verb();
        self.authorize(caller, needed)?;
        let done = verbs::index::index(self, caller, verb, progress);
        self.noted(caller, needed, done)
    }

    /// There is none without the feature `knowledge`.
    #[cfg(not(feature = "knowledge"))]
    pub fn index_with(
        &self,
        caller: &Caller,
        verb: fractal_model::IndexVerb,
        _: &mut dyn FnMut(u64, u64),
    ) -> Result<Reply> {
        self.apply(caller, Action::Index(verb))
    }

    #[cfg(not(feature = "knowledge"))]
    fn run_recorded(&self, caller: &Caller, run: Run, io: RunIo) -> Result<RunReply> {
        refuse_experiment(run.experiment.as_deref())?;
        verbs::run::run(self, caller, run, io)
    }

    #[cfg(not(feature = "knowledge"))]
    fn try_recorded(
        &self,
        caller: &Caller,
        asked: Try,
        watch: Watch<'_>,
        stop: Stop<'_>,
    ) -> Result<TryReply> {
        refuse_experiment(asked.run.experiment.as_deref())?;
        verbs::attempt::try_all(self, caller, asked, watch, stop)
    }

    #[cfg(not(feature = "knowledge"))]
    fn guard_recorded(&self, caller: &Caller, asked: Guard, io: RunIo) -> Result<GuardReply> {
        refuse_experiment(asked.run.experiment.as_deref())?;
        verbs::guard::guard(self, caller, asked, io)
    }

    #[cfg(not(feature = "knowledge"))]
    fn promote_recorded(
        &self,
        caller: &Caller,
        asked: &fractal_model::Promote,
    ) -> Result<fractal_model::PromoteReply> {
        refuse_experiment(asked.experiment.as_deref())?;
        verbs::promote::promote(self, caller, asked)
    }

    /// `run` with the caller's own input and output.
    pub fn run(&self, caller: &Caller, run: Run, io: RunIo) -> Result<RunReply> {
        self.authorize(caller, Verb::Run)?;
        let done = self.run_recorded(caller, run, io);
        self.noted(caller, Verb::Run, done)
    }

    /// Makes the sandbox that a run would make, and runs nothing: a fork of
    /// reality.
    pub fn make(&self, caller: &Caller, run: &Run) -> Result<fractal_model::SandboxInfo> {
        self.ready()?;
        self.authorize(caller, Verb::Fork)?;
        let done = verbs::run::make(self, caller, run);
        self.noted(caller, Verb::Fork, done)
    }

    /// What a sandbox shows now, as a tree in memory: its layers, and of the
    /// host the project alone. What is written into it stays in it; to write
    /// into the sandbox, run with [`RunIo::working`].
    #[cfg(feature = "virtual")]
    pub fn view(&self, caller: &Caller, sandbox: &str) -> Result<fractal_fs::Vfs> {
        self.ready()?;
        self.authorize(caller, Verb::Copy)?;
        let done = verbs::run::look(self, caller, sandbox);
        self.noted(caller, Verb::Copy, done)
    }

    /// Ends what has begun to run in a sandbox, without waiting for it: whoever
    /// waits for the run is told.
    pub fn stop(&self, caller: &Caller, sandbox: &str) -> Result<()> {
        self.ready()?;
        self.authorize(caller, Verb::Run)?;
        let found = self.find(caller, Some(sandbox));
        let row = self.noted(caller, Verb::Run, found)?;
        self.refuse_own(caller, &row, "stop")?;
        living::end_begun(self, &row, &mut std::collections::BTreeSet::new());
        Ok(())
    }

    /// `try`, telling what happens on the way, and ending early when asked to.
    pub fn try_with(
        &self,
        caller: &Caller,
        asked: Try,
        watch: Watch<'_>,
        stop: Stop<'_>,
    ) -> Result<TryReply> {
        self.ready()?;
        self.authorize(caller, Verb::Try)?;
        let done = self.try_recorded(caller, asked, watch, stop);
        self.noted(caller, Verb::Try, done)
    }

    /// Writes what differs between two sandboxes, in the files that either of
    /// them changed, as a patch from the first to the second.
    pub fn write_between(
        &self,
        caller: &Caller,
        pair: (&str, &str),
        paths: &[String],
        out: &mut dyn std::io::Write,
    ) -> Result<patch::Stat> {
        self.ready()?;
        self.authorize(caller, Verb::Diff)?;
        let done = verbs::compare::write_between(self, caller, pair, paths, out);
        self.noted(caller, Verb::Diff, done)
    }

    /// `guard` with the caller's own input and output.
    pub fn guard(&self, caller: &Caller, asked: Guard, io: RunIo) -> Result<GuardReply> {
        self.ready()?;
        self.authorize(caller, Verb::Guard)?;
        let done = self.guard_recorded(caller, asked, io);
        self.noted(caller, Verb::Guard, done)
    }

    /// Runs checks against a sandbox, each in a throw-away child of it.
    pub fn check(
        &self,
        caller: &Caller,
        sandbox: &str,
        checks: &[Check],
        repeat: u32,
    ) -> Result<Vec<CheckReport>> {
        self.ready()?;
        self.authorize(caller, Verb::Run)?;
        let done = check::run_checks(self, caller, sandbox, checks, repeat);
        self.noted(caller, Verb::Run, done)
    }

    /// Prepares this process for many runs: the first one finds everything
    /// ready that can be made ahead.
    pub fn warm(&self) {
        fractal_jail::warm();
    }

    /// Waits until finished runs of this process are cleaned up to the last
    /// mount. Runs return before that; only who deletes the state directory
    /// afterwards needs it.
    pub fn settle(&self) {
        fractal_jail::settle();
    }

    /// What `run` would do, step by step, without doing it.
    pub fn explain(&self, caller: &Caller, run: &Run) -> Result<Vec<String>> {
        self.ready()?;
        self.authorize(caller, Verb::Run)?;
        let done = verbs::run::explain(self, caller, run);
        self.noted(caller, Verb::Run, done)
    }

    /// Writes a diff as text.
    pub fn write_diff(
        &self,
        caller: &Caller,
        sandbox: Option<&str>,
        since: Option<&str>,
        format: DiffFormat,
        out: &mut dyn std::io::Write,
    ) -> Result<DiffOutput> {
        self.ready_to_look()?;
        self.authorize(caller, Verb::Diff)?;
        let done = verbs::diff::write(self, caller, sandbox, since, format, out);
        self.noted(caller, Verb::Diff, done)
    }

    /// Refuses whoever may not use a verb at all, and writes it down.
    pub fn authorize(&self, caller: &Caller, verb: Verb) -> Result<()> {
        if caller.policy.allows(verb) {
            return Ok(());
        }
        self.ready()?;
        let name = format!("{verb:?}").to_lowercase();
        let mut body = record(caller, &name, None);
        body.error = Some(Code::Denied);
        self.store.transact_relaxed(|tx| tx.append(body))?;
        Err(Error::denied(format!("the key `{}` may not {name}", caller.who)))
    }

    /// The strongest tier that this machine can give, if any.
    pub fn strongest_tier(&self) -> Option<Tier> {
        self.tier().ok()
    }

    /// Writes down what a key asked for and does not get. What is out of reach
    /// and what does not exist take the same way, so that the time it takes
    /// does not tell them apart either.
    pub(crate) fn noted<T>(&self, caller: &Caller, verb: Verb, done: Result<T>) -> Result<T> {
        if caller.key.is_none() {
            return done;
        }
        done.map_err(|error| {
            let error = self.without_home(error);
            if matches!(error.code, Code::Denied | Code::NotFound) {
                let name = format!("{verb:?}").to_lowercase();
                self.record_refused(caller, &name, error.code, &error.message);
            }
            error
        })
    }

    /// An error as its caller may read it.
    pub(crate) fn readable(&self, caller: &Caller, error: Error) -> Error {
        match caller.key {
            Some(_) => self.without_home(error),
            None => error,
        }
    }

    /// An error as whoever comes with a key may read it: where the owner keeps
    /// the state directory is not theirs to know.
    pub fn without_home(&self, mut error: Error) -> Error {
        let home = self.home().to_string_lossy().into_owned();
        if home.len() > 1 {
            error.message = error.message.replace(&home, "$FRACTAL_HOME");
            error.hint = error.hint.map(|hint| hint.replace(&home, "$FRACTAL_HOME"));
        }
        error
    }

    /// The strongest tier of this machine, found once.
    pub(crate) fn tier(&self) -> Result<Tier> {
        if let Some(tier) = self.tier.get() {
            return Ok(*tier);
        }
        let tier = fractal_jail::probe::best_tier(self.home())?;
        Ok(*self.tier.get_or_init(|| tier))
    }

    /// Which attributes mark deletions in layers that we write.
    pub(crate) fn marks(&self) -> Marks {
        match self.tier() {
            Ok(Tier::Clone | Tier::Masked) => Marks::Trusted,
            _ => Marks::User,
        }
    }

    /// The same sandbox as it is now.
    pub(crate) fn find_again(&self, row: &SandboxRow) -> Result<SandboxRow> {
        self.store.sandbox(row.id)?.ok_or_else(|| {
            Error::not_found(format!("the sandbox `{}` was dropped meanwhile", row.name))
                .hint("`fractal list` shows what there is")
        })
    }

    /// Living runs of a sandbox; rows of dead ones are settled on the way.
    pub(crate) fn is_running(&self, id: Id) -> Result<bool> {
        if self.store.runs_of(id)?.is_empty() {
            return Ok(false);
        }
        self.recover()?;
        Ok(!self.store.runs_of(id)?.is_empty())
    }

    /// Refuses when something runs in the sandbox.
    pub(crate) fn require_idle(&self, row: &SandboxRow, verb: &str) -> Result<()> {
        self.rest_servers(row.id);
        if !self.is_running(row.id)? {
            return Ok(());
        }
        Err(Error::new(
            Code::Busy,
            format!("cannot {verb} `{}`: something is running in it", row.name),
        )
        .hint("wait for it to end; `fractal drop` would end it and forget the sandbox"))
    }

    /// Without tools there are no servers to end.
    #[cfg(not(feature = "tools"))]
    pub(crate) fn rest_servers(&self, _: Id) {}

    /// Settles what processes that died left behind.
    fn recover(&self) -> Result<()> {
        let lost = self.store.recover()?;
        self.clean_up(lost)
    }

    /// Records runs as lost whose process lives and does not care for them.
    pub(crate) fn lose(&self, runs: Vec<RunRow>) -> Result<()> {
        let lost = self.store.lose(runs)?;
        self.clean_up(lost)
    }

    /// What lost runs leave: keys of their doors, and groups of processes.
    fn clean_up(&self, lost: Vec<RunRow>) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        self.close_lost(&lost)?;
        let labels: Vec<String> =
            self.store.runs()?.into_iter().filter_map(|run| run.cgroup).collect();
        let lost: Vec<String> = lost.into_iter().filter_map(|run| run.cgroup).collect();
        let controllers = fractal_jail::cgroup::Controllers::find();
        // Only groups of runs that we know to be over: other state
        // directories on this machine have groups beside ours.
        fractal_jail::cgroup::sweep(&controllers, &|label| {
            labels.iter().any(|alive| alive == label) || !lost.iter().any(|dead| dead == label)
        });
        Ok(())
    }
}

/// What is asked to be written down must not be forgotten silently.
#[cfg(not(feature = "knowledge"))]
fn refuse_experiment(name: Option<&str>) -> Result<()> {
    match name {
        None => Ok(()),
        Some(_) => Err(Error::new(Code::Unsupported, "this fractal was built without records")
            .hint("build it with the feature `knowledge`")),
    }
}

/// A record of a verb on a sandbox, to be completed by the verb.
pub(crate) fn record(caller: &Caller, action: &str, row: Option<&SandboxRow>) -> RecordBody {
    let directory = row.map_or(&caller.directory, |row| &row.directory);
    RecordBody {
        time_ms: now_ms(),
        who: caller.who.clone(),
        key: caller.key,
        tenant: Some(row.map_or(caller.reach.home(), |row| &row.tenant).to_owned())
            .filter(|tenant| !tenant.is_empty()),
        action: action.to_owned(),
        place: Some(RecordBody::place_of(directory.as_os_str().as_bytes())),
        sandbox: row.map(|row| row.id),
        name: row.map(|row| row.name.clone()),
        before: row.map(|row| row.top),
        after: row.map(|row| row.top),
        error: None,
        detail: serde_json::Value::Null,
    }
}

/// Makes the directory and the row of a new, empty layer on top of `below`.
pub(crate) fn insert_layer(tx: &Tx<'_>, id: Id, below: Option<Id>) -> fractal_store::Result<()> {
    tx.insert_layer(&fractal_store::LayerRow {
        id,
        below,
        sealed: false,
        created_ms: now_ms(),
        size_bytes: 0,
    })
}
