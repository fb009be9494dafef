use crate::bounds::Bounds;
use crate::failure::Failure;
use crate::inside::{Inside, Target, Where};
use crate::remote::{Door, Refused, direct};
use crate::session::{Session, unexpected};
use crate::table::{plain, plural};
use crate::verbs::knowledge;
use fractal::model::{Outcome, Tier, format_duration_ms};
use fractal::{Action, Caller, Engine, Error, Reply, RunIo, RunReply};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Run a program in an isolated clone of this machine
///
/// The program sees the machine as it is, at the same paths, and starts in the
/// current directory. What it writes stays in the sandbox: reality is as it
/// was. Without `--in` a new sandbox is made; it is kept if something changed
/// in it (one line on standard error says so) and forgotten otherwise.
///
/// The exit status is the program's own; 124 when the time limit ended it, 137
/// for the limits of memory, disk and output, 125 when fractal itself failed.
#[derive(clap::Args)]
#[command(override_usage = "fractal run [OPTIONS] -- CMD...")]
pub struct Run {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    inside: Inside,
    #[command(flatten)]
    place: Where,
    /// Give the program a door: `fractal` works inside, below this sandbox
    #[arg(long)]
    door: bool,
    /// Give the program a terminal (the default when input and output are one)
    #[arg(short, long)]
    tty: bool,
    /// Pass on input from a terminal even if the output goes elsewhere
    #[arg(short, long)]
    interactive: bool,
    /// Print what would be done, step by step, and do nothing
    #[arg(long)]
    explain: bool,
    /// Say first what is known of this command: what failed and what helped
    #[arg(long)]
    known: bool,
    /// Say more: isolation and usage of the run
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
    #[command(flatten)]
    bounds: Bounds,
}

impl Run {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        self.target.check(&self.inside)?;
        let run = self.target.of(fractal::Run {
            command: self.command,
            world: self.place.world(),
            door: self.door,
            ..self.inside.run(&self.bounds, session)?
        });
        if self.known {
            let (engine, caller) = (session.engine()?, session.caller()?);
            knowledge::known(session, &engine, &caller, run.command.iter().cloned());
        }
        let style = Style { tty: self.tty, interactive: self.interactive, verbose: self.verbose };
        if let Some(door) = session.door() {
            if self.explain || self.tty {
                session.refuse_inside()?;
            }
            return through(session, door, run, style);
        }
        if !self.explain
            && let Some(reply) = by_server(session, &run, style)?
        {
            return answer(session, &reply, run.sandbox.is_none(), style);
        }
        let (engine, caller) = (Arc::new(session.late_engine()?), session.caller()?);
        if self.explain {
            return explain(session, &engine, &caller, &run);
        }
        let status = carry_out(session, &engine, &caller, run, style);
        // The process ends here: all is written, and closing the store one
        // file after the other would only take time.
        std::mem::forget(engine);
        status
    }
}

fn explain(
    session: &Session,
    engine: &Engine,
    caller: &Caller,
    run: &fractal::Run,
) -> Result<u8, Failure> {
    let steps = engine.explain(caller, run)?;
    if session.json {
        return session.print_json(&serde_json::json!({ "steps": steps }));
    }
    session.print(&steps.iter().map(|step| format!("{}\n", plain(step))).collect::<String>())
}

/// Asks for a run through the door of the sandbox we are in. What it writes
/// comes when it is over; it reads our input only if that was asked for, since
/// all of that has to be read before it starts.
fn through(
    session: &Session,
    door: &Door,
    mut run: fractal::Run,
    style: Style,
) -> Result<u8, Failure> {
    if style.interactive {
        run.stdin = Some(read_stdin("input")?);
    }
    if run.cwd.is_none() {
        run.cwd = Some(session.absolute(".")?);
    }
    let is_new = run.sandbox.is_none();
    let Reply::Run(mut reply) = door.apply(&Action::Run(run))? else { return Err(unexpected()) };
    if !session.json {
        session.print(&std::mem::take(&mut reply.stdout))?;
    }
    answer(session, &reply, is_new, style)
}

/// How a run meets the person who started it.
#[derive(Clone, Copy, Default)]
pub struct Style {
    pub tty: bool,
    pub interactive: bool,
    pub verbose: bool,
}

/// Runs, answers and gives the program's exit status.
pub fn carry_out(
    session: &Session,
    engine: &Arc<Engine>,
    caller: &Caller,
    run: fractal::Run,
    style: Style,
) -> Result<u8, Failure> {
    #[cfg(feature = "server")]
    if run.door {
        fractal_server::open_doors(engine);
    }
    let is_new = run.sandbox.is_none();
    let reply = engine.run(caller, run, io_for(session, style)?)?;
    answer(session, &reply, is_new, style)
}

/// The reply of a server that runs on the state directory, if there is one and
/// the run is one for it.
fn by_server(
    session: &Session,
    run: &fractal::Run,
    style: Style,
) -> Result<Option<RunReply>, Error> {
    let found = match direct::run_reason(run, style, session.json) {
        Some(why) => Err(why.to_owned()),
        None => session.runs(),
    };
    let runs = match found {
        Ok(runs) => runs,
        Err(why) => {
            if style.verbose && session.home()?.join("run.sock").exists() {
                session.note(&format!("without the server: {why}"));
            }
            return Ok(None);
        }
    };
    let stdio = [input(style)?, own(io::stdout())?, own(io::stderr())?];
    match runs.run(run, &stdio, session.json) {
        Ok(reply) => Ok(Some(reply)),
        Err(Refused::Unused) => Ok(None),
        Err(Refused::Error(error)) => Err(error),
    }
}

/// Prints what came of it and gives the program's exit status.
fn answer(session: &Session, reply: &RunReply, is_new: bool, style: Style) -> Result<u8, Failure> {
    if session.json {
        session.print_json(reply)?;
    } else {
        // Empty when it was streamed, but for a program that did not start.
        let _ = io::stderr().write_all(reply.stderr.as_bytes());
        remarks(session, reply, is_new, style.verbose);
    }
    if let Some(why) = &reply.output_lost {
        return Err(Error::internal(format!("cannot pass on what the program wrote: {why}"))
            .hint("it ran, and its output is incomplete: make room, or send it elsewhere")
            .into());
    }
    // Exit statuses of programs have eight bits.
    Ok((reply.exit & 0xff) as u8)
}

/// Our own input and output, or none of the latter where the answer is JSON.
pub fn io_for(session: &Session, style: Style) -> Result<RunIo, Error> {
    if session.json { captured(style) } else { connected(style) }
}

/// The program writes to our own output.
fn connected(style: Style) -> Result<RunIo, Error> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    if style.tty || (stdin.is_terminal() && stdout.is_terminal()) {
        return Ok(RunIo::terminal(own(stdin)?, own(stdout)?));
    }
    Ok(RunIo::streaming(input(style)?, own(stdout)?, own(io::stderr())?))
}

/// The program's output stands in the reply.
fn captured(style: Style) -> Result<RunIo, Error> {
    Ok(RunIo::capturing_interactive(input(style)?))
}

/// Our input; but what a person types is for the program only if it has a
/// terminal, or else it would be taken from the pager behind us.
fn input(style: Style) -> Result<OwnedFd, Error> {
    let stdin = io::stdin();
    if !stdin.is_terminal() || style.interactive {
        return own(stdin);
    }
    let null = File::open("/dev/null");
    null.map(OwnedFd::from)
        .map_err(|error| Error::internal(format!("cannot open /dev/null: {error}")))
}

/// All of our input as text: a script or a program, as `what` says.
pub fn read_stdin(what: &str) -> Result<String, Error> {
    io::read_to_string(io::stdin())
        .map_err(|error| Error::invalid(format!("cannot read the {what}: {error}")))
}

pub fn own(stream: impl AsFd) -> Result<OwnedFd, Error> {
    stream
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Error::internal(format!("cannot use our input and output: {error}")))
}

/// What a person should know after a run, one line each.
pub fn remarks(session: &Session, reply: &RunReply, is_new: bool, verbose: bool) {
    knowledge::recorded(session, &reply.recorded);
    if let Some(limit) = limit_reached(reply.outcome) {
        session.note(&format!("stopped: {limit} limit"));
    }
    for limit in reply.limits_reached.iter().filter(|limit| **limit != reply.outcome) {
        let name = limit_reached(*limit).unwrap_or_default();
        session.note(&format!("{name} limit reached inside, and the program went on"));
    }
    if let Some(line) = isolation(reply, verbose) {
        session.note(&line);
    }
    if verbose {
        let usage = &reply.usage;
        let memory = fractal::model::format_bytes(usage.memory_peak_bytes);
        session.note(&format!("used {} ms, {} ms of cpu, {memory}", usage.wall_ms, usage.cpu_ms));
    }
    if let Some(stale) = &reply.stale {
        session.note(&staleness(stale));
    }
    if reply.kept && (is_new || verbose) {
        session.note(&kept(reply));
    }
}

fn limit_reached(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Exited | Outcome::Signalled => None,
        Outcome::Timeout => Some("time"),
        Outcome::Memory => Some("memory"),
        Outcome::Disk => Some("disk"),
        Outcome::Output => Some("output"),
    }
}

fn isolation(reply: &RunReply, verbose: bool) -> Option<String> {
    let isolation = &reply.isolation;
    let usual = matches!(isolation.tier, Tier::Clone | Tier::Virtual);
    if usual && isolation.missing.is_empty() && !verbose {
        return None;
    }
    let missing = match isolation.missing.as_slice() {
        [] => String::new(),
        list => format!(", without {}", list.join(", ")),
    };
    Some(format!("isolation: {}{missing} (fractal doctor)", isolation.tier.name()))
}

fn kept(reply: &RunReply) -> String {
    let name = &reply.sandbox;
    if reply.changes.is_empty() && !reply.changes_truncated {
        return format!("kept {name}: no changes (fractal drop {name})");
    }
    let more = if reply.changes_truncated { "more than " } else { "" };
    let changes = plural(reply.changes.len(), "change");
    format!("kept {name}: {more}{changes} (fractal diff {name} · fractal drop {name})")
}

/// `reality moved: 14 minutes behind, 3 files changed under you`.
pub fn staleness(stale: &fractal::model::Staleness) -> String {
    let behind = format_duration_ms(stale.behind_ms);
    let more = if stale.more { "more than " } else { "" };
    let files = plural(stale.changed.len(), "file");
    format!("reality moved: {behind} behind, {more}{files} changed under you")
}
