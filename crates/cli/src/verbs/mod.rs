//! One file per verb. The doc comment of each verb's arguments is its help.

mod approve;
mod attempt;
mod audit;
mod compare;
mod completions;
mod config;
mod cp;
mod diff;
mod doctor;
mod drop;
mod enter;
mod env;
mod export;
mod fork;
mod gc;
mod guard;
mod help;
mod import;
mod key;
pub mod knowledge;
mod list;
mod log;
mod mcp;
mod mount;
mod promote;
mod py;
mod reject;
mod rollback;
mod run;
mod serve;
mod sh;
mod show;
mod snapshot;
mod stages;
mod tool;
mod undo;
mod update;
mod verify;
mod version;
mod volume;

pub use run::{Run, Style};

use crate::failure::Failure;
use crate::session::Session;
use fractal::{Code, Error, Reply};

#[derive(clap::Subcommand)]
pub enum Verb {
    Run(run::Run),
    Sh(sh::Sh),
    Py(py::Py),
    Enter(enter::Enter),
    Mount(mount::Mount),
    Fork(fork::Fork),
    Snapshot(snapshot::Snapshot),
    Rollback(rollback::Rollback),
    Diff(diff::Diff),
    Try(attempt::Try),
    Compare(compare::Compare),
    Promote(promote::Promote),
    Approve(approve::Approve),
    Reject(reject::Reject),
    Stages(stages::Stages),
    Guard(guard::Guard),
    Undo(undo::Undo),
    Update(update::Update),
    Verify(verify::Verify),
    #[command(visible_alias = "ls")]
    List(list::List),
    Show(show::Show),
    Log(log::Log),
    Audit(audit::Audit),
    #[command(visible_alias = "rm")]
    Drop(drop::Drop),
    Cp(cp::Cp),
    Export(export::Export),
    Import(import::Import),
    Volume(volume::Volume),
    Skunk(knowledge::skunk::Skunk),
    Note(knowledge::note::Note),
    Find(knowledge::find::Find),
    Learned(knowledge::learned::Learned),
    Graph(knowledge::graph::Graph),
    Index(knowledge::index::Index),
    Model(knowledge::model::Model),
    Tool(tool::Tool),
    Key(key::Key),
    Env(env::Env),
    Gc(gc::Gc),
    Serve(serve::Serve),
    Mcp(mcp::Mcp),
    Doctor(doctor::Doctor),
    Config(config::Config),
    Completions(completions::Completions),
    Help(help::Help),
    Version(version::Version),
}

impl Verb {
    /// Carries the verb out and gives the exit status.
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        match self {
            Verb::Run(args) => args.call(session),
            Verb::Sh(args) => args.call(session),
            Verb::Py(args) => args.call(session),
            Verb::Enter(args) => args.call(session),
            Verb::Mount(args) => args.call(session),
            Verb::Fork(args) => args.call(session),
            Verb::Snapshot(args) => args.call(session),
            Verb::Rollback(args) => args.call(session),
            Verb::Diff(args) => args.call(session),
            Verb::Try(args) => args.call(session),
            Verb::Compare(args) => args.call(session),
            Verb::Promote(args) => args.call(session),
            Verb::Approve(args) => args.call(session),
            Verb::Reject(args) => args.call(session),
            Verb::Stages(args) => args.call(session),
            Verb::Guard(args) => args.call(session),
            Verb::Undo(args) => args.call(session),
            Verb::Update(args) => args.call(session),
            Verb::Verify(args) => args.call(session),
            Verb::List(args) => args.call(session),
            Verb::Show(args) => args.call(session),
            Verb::Log(args) => args.call(session),
            Verb::Audit(args) => args.call(session),
            Verb::Drop(args) => args.call(session),
            Verb::Cp(args) => args.call(session),
            Verb::Export(args) => args.call(session),
            Verb::Import(args) => args.call(session),
            Verb::Volume(args) => args.call(session),
            Verb::Skunk(args) => args.call(session),
            Verb::Note(args) => args.call(session),
            Verb::Find(args) => args.call(session),
            Verb::Learned(args) => args.call(session),
            Verb::Graph(args) => args.call(session),
            Verb::Index(args) => args.call(session),
            Verb::Model(args) => args.call(session),
            Verb::Tool(args) => args.call(session),
            Verb::Key(args) => args.call(session),
            Verb::Env(args) => args.call(session),
            Verb::Gc(args) => args.call(session),
            Verb::Serve(args) => args.call(session),
            Verb::Mcp(args) => args.call(session),
            Verb::Doctor(args) => args.call(session),
            Verb::Config(args) => args.call(session),
            Verb::Completions(args) => args.call(session),
            Verb::Help(args) => args.call(session),
            Verb::Version(args) => args.call(session),
        }
    }
}

/// A verb that takes `[S] [NAME]`. A single word is a sandbox if there is one
/// of that name, and otherwise the name of what is made from the latest one.
/// Asking the engine first would cost a listing and could be outrun.
fn sandbox_or_new_name(
    sandbox: Option<String>,
    name: Option<String>,
    act: impl Fn(Option<String>, Option<String>) -> fractal::Result<Reply>,
) -> fractal::Result<Reply> {
    let (Some(word), None) = (&sandbox, &name) else { return act(sandbox, name) };
    let is_missing = |error: &Error| error.code == Code::NotFound;
    act(sandbox.clone(), None).or_else(|first| match is_missing(&first) {
        // With no latest one either, the word was meant to be a sandbox.
        true => act(None, Some(word.clone()))
            .map_err(|second| if is_missing(&second) { first } else { second }),
        false => Err(first),
    })
}
