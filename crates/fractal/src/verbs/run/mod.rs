//! `run`: execute something in a sandbox and say what it did.
//!
//! Without a sandbox it forks reality first. The order is: decide (policy,
//! stack, limits), claim (rows for the sandbox and the living run), run,
//! compare, and settle everything in one transaction with the record.

pub mod claim;
mod copied;
mod make;
pub mod place;
mod settle;
mod spec;
#[cfg(feature = "virtual")]
mod virtually;

use crate::view::Views;
use crate::{Caller, Engine, base, doorway, living, scripts, stale, template};
use claim::{abandon, claim};
use fractal_jail::layer::{Bounds, Changes, Layer};
use fractal_jail::terminal::FarEnd;
use fractal_jail::{Input, Output, Report, Streams};
use fractal_model::{Change, Error, Id, Mount, Result, Run, RunReply, SandboxPath, Tier, World};
use place::{Place, decide};
use settle::settle;
use spec::spec;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

/// Bytes of each stream that a captured run keeps.
pub const CAPTURE_BYTES_MAX: usize = 4 << 20;

/// Where a run's input comes from and its output goes.
pub struct RunIo {
    streams: Streams,
    terminal: bool,
    job: Job,
    begun: Option<Begun>,
    /// Whoever asked runs scripts in memory itself.
    native_only: bool,
}

/// Where a run that has begun writes down which one it is: its own id and the
/// layer it writes, by which it can be ended.
pub type Begun = Arc<OnceLock<(Id, Id)>>;

/// What a run carries out; all but the first belong to the virtual world.
enum Job {
    /// The command.
    Command,
    /// What a person types, line by line.
    Lines(#[cfg_attr(not(feature = "virtual"), expect(dead_code))] Lines),
    /// What code of the embedding program does to the files.
    #[cfg(feature = "virtual")]
    Code(Code),
    /// What other programs do in a directory.
    #[cfg(feature = "mount")]
    Mount(Mounting),
}

/// Gives the next lines of a session in the virtual world, told where the
/// shell stands; `None` ends it.
pub type Lines = Box<dyn FnMut(&str) -> Option<String>>;

/// Code of the program that embeds us, at work on a sandbox's files.
#[cfg(feature = "virtual")]
pub type Code = Box<dyn FnOnce(&fractal_fs::Vfs)>;

impl RunIo {
    /// No input; output is kept in the reply.
    pub fn captured() -> RunIo {
        RunIo::capturing(Input::Null)
    }

    /// The given input; output is kept in the reply.
    pub fn capturing(stdin: Input) -> RunIo {
        let keep = || Output::Capture(CAPTURE_BYTES_MAX);
        RunIo::through(stdin, keep(), keep())
    }

    fn through(stdin: Input, stdout: Output, stderr: Output) -> RunIo {
        let streams = Streams { stdin, stdout, stderr, interactive: false, caller: None };
        RunIo { streams, terminal: false, job: Job::Command, begun: None, native_only: false }
    }

    /// This text as input, or none; output is kept in the reply.
    pub fn told(stdin: Option<&str>) -> RunIo {
        RunIo::capturing(stdin.map_or(Input::Null, |text| Input::Bytes(text.into())))
    }

    /// Output goes to these descriptors as it appears. Signals of this
    /// process are its own, as a server needs it.
    pub fn piped(stdin: Option<&str>, stdout: OwnedFd, stderr: OwnedFd) -> RunIo {
        let mut io = RunIo::told(stdin);
        io.streams.stdout = Output::Descriptor(stdout);
        io.streams.stderr = Output::Descriptor(stderr);
        io
    }

    /// The same, with interrupts forwarded to the program, for command lines.
    pub fn capturing_interactive(stdin: OwnedFd) -> RunIo {
        let mut io = RunIo::capturing(Input::Descriptor(stdin));
        io.streams.interactive = true;
        io
    }

    /// Descriptors of pipes whose other ends somebody holds who may write and
    /// read while it runs. A script in memory is given all of its input first.
    pub fn beside(stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> RunIo {
        let (stdout, stderr) = (Output::Descriptor(stdout), Output::Descriptor(stderr));
        RunIo::through(Input::Descriptor(stdin), stdout, stderr)
    }

    /// Has it end when this connection does.
    pub fn ending_with(mut self, connection: OwnedFd) -> RunIo {
        self.streams.caller = Some(connection);
        self
    }

    /// Has the end of what goes to descriptors kept as well, and says which of
    /// output and errors go there.
    #[cfg(feature = "knowledge")]
    pub(crate) fn keeping(mut self, most: usize) -> (RunIo, (bool, bool)) {
        let copied = |output: Output| match output {
            Output::Descriptor(to) => (Output::Copied(to, most), true),
            other => (other, false),
        };
        let (stdout, out) = copied(self.streams.stdout);
        let (stderr, err) = copied(self.streams.stderr);
        self.streams.stdout = stdout;
        self.streams.stderr = stderr;
        (self, (out, err))
    }

    /// Whether it is one script in memory, which can be ended as a program can.
    fn is_script(&self, world: World) -> bool {
        world == World::Virtual && matches!(self.job, Job::Command)
    }

    /// Has it told which run it is, for who may want to end it.
    #[cfg(feature = "tools")]
    pub(crate) fn telling(mut self, begun: Begun) -> RunIo {
        self.begun = Some(begun);
        self
    }

    /// Nothing goes in or out; this code works on the sandbox's files. The
    /// run's command only tells the journal what it is. For the virtual world.
    #[cfg(feature = "virtual")]
    pub fn working(code: Code) -> RunIo {
        RunIo { job: Job::Code(code), ..RunIo::captured() }
    }

    /// The caller's own descriptors.
    pub fn streaming(stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> RunIo {
        let mut io = RunIo::beside(stdin, stdout, stderr);
        io.streams.interactive = true;
        io
    }

    /// Ends of pipes for a conversation, and a connection whose end ends the
    /// run. What goes to standard error is kept in the reply.
    #[cfg(feature = "tools")]
    pub(crate) fn conversing(stdin: OwnedFd, stdout: OwnedFd, connection: OwnedFd) -> RunIo {
        let mut io = RunIo::capturing(Input::Descriptor(stdin));
        io.streams.stdout = Output::Descriptor(stdout);
        io.streams.caller = Some(connection);
        io.native_only = true;
        io
    }

    /// A socket that the program has as its standard input, to be spoken with by
    /// whoever holds the other end, and a connection whose end ends the run.
    /// Output is kept in the reply.
    pub fn attended(socket: OwnedFd, connection: OwnedFd) -> RunIo {
        let mut io = RunIo::capturing(Input::Descriptor(socket));
        io.streams.caller = Some(connection);
        io.native_only = true;
        io
    }

    /// Descriptors that another process handed over with its connection: each
    /// byte that comes by it is a signal for the program, and its end ends the
    /// run. Without places for output that is kept in the reply.
    pub fn handed(
        stdin: OwnedFd,
        output: Option<(OwnedFd, OwnedFd)>,
        connection: OwnedFd,
    ) -> RunIo {
        let mut io = RunIo::capturing(Input::Descriptor(stdin));
        if let Some((stdout, stderr)) = output {
            io.streams.stdout = Output::Descriptor(stdout);
            io.streams.stderr = Output::Descriptor(stderr);
        }
        io.streams.caller = Some(connection);
        io.native_only = true;
        io
    }

    /// The caller's own descriptors for what lines of a session write; for
    /// the virtual world.
    pub fn session(lines: Lines, stdout: OwnedFd, stderr: OwnedFd) -> RunIo {
        let (stdout, stderr) = (Output::Descriptor(stdout), Output::Descriptor(stderr));
        let mut io = RunIo::through(Input::Null, stdout, stderr);
        io.streams.interactive = true;
        io.job = Job::Lines(lines);
        io
    }

    /// Nothing to read or write: programs work in a directory meanwhile.
    #[cfg(feature = "mount")]
    pub fn mounted(mounting: Mounting) -> RunIo {
        RunIo { job: Job::Mount(mounting), ..RunIo::captured() }
    }

    /// A terminal made inside, joined to the caller's.
    pub fn terminal(stdin: OwnedFd, stdout: OwnedFd) -> RunIo {
        let mut io = RunIo::at_terminal(Input::Descriptor(stdin), stdout);
        io.streams.interactive = true;
        io
    }

    /// A terminal made inside, for somebody far away. Signals of this process
    /// are its own, as a server needs it.
    pub fn far_terminal(far: FarEnd, stdout: OwnedFd) -> RunIo {
        RunIo::at_terminal(Input::Far(far), stdout)
    }

    fn at_terminal(stdin: Input, stdout: OwnedFd) -> RunIo {
        let io = RunIo::through(stdin, Output::Descriptor(stdout), Output::Capture(0));
        RunIo { terminal: true, ..io }
    }
}

pub fn run(engine: &Engine, caller: &Caller, run: Run, io: RunIo) -> Result<RunReply> {
    // Other verbs quote it in what they answer.
    run_in_place(engine, caller, run, io).map_err(|error| engine.readable(caller, error))
}

fn run_in_place(engine: &Engine, caller: &Caller, run: Run, io: RunIo) -> Result<RunReply> {
    if run.command.is_empty() {
        return Err(Error::invalid("there is no command to run").hint("fractal run -- CMD"));
    }
    if run.sandbox.is_some() {
        engine.ready()?;
    }
    let mut place = decide(engine, caller, &run)?;
    if place.world == World::Virtual && io.native_only {
        return Err(Error::new(
            fractal_model::Code::Unsupported,
            "a script in memory runs in the process that asked for it",
        )
        .hint("run it without the server: `--no-server`"));
    }
    if place.in_memory.is_none() || !place.row.mounts.is_empty() {
        engine.ready()?;
    }
    copied::check(engine, caller, &run, &place)?;
    check_door(caller, &run, &place)?;
    let (top, limits) = (place.row.top, &mut place.policy.limits);
    let part = caller.door.as_ref();
    let part = part.map(|door| door.enter(engine, top, limits, &run.ask.limits));
    let mut part = part.transpose()?;
    claim(engine, &mut place)?;
    let _settled = living::Underway::new(engine, place.run_id, place.row.top);
    // Until it is written down how it ended.
    let _script = io.is_script(place.world).then(|| scripts::begin(place.run_id));
    if let Some(part) = &mut part
        && let Err(error) = part.began(place.run_id, place.row.top)
    {
        abandon(engine, &place);
        return Err(error);
    }
    if let Some(begun) = &io.begun {
        let _ = begun.set((place.run_id, place.row.top));
    }
    let ran = match place.world {
        World::Native => copied::materialise(engine, &place)
            .and_then(|()| execute(engine, caller, &run, &place, io)),
        World::Virtual => execute_virtually(engine, caller, &run, &place, io),
    };
    match ran {
        Ok(mut done) => {
            if run.door && run.discard {
                engine.drop_below(caller, place.row.id)?;
            }
            let unkept = done.unkept.take();
            let reply = settle(engine, caller, &run, place, done)?;
            match unkept {
                None => Ok(reply),
                Some(error) if reply.kept => {
                    let hint = format!("what could be kept is in `{}`", reply.sandbox);
                    Err(error.hint(hint))
                }
                Some(error) => Err(error),
            }
        }
        Err(error) => {
            abandon(engine, &place);
            Err(error)
        }
    }
}

/// What a door needs, and what cannot be ended behind one.
fn check_door(caller: &Caller, run: &Run, place: &Place) -> Result<()> {
    let refuse =
        |why: &str, hint: &str| Err(Error::new(fractal_model::Code::Unsupported, why).hint(hint));
    match (run.door, place.world) {
        (true, World::Virtual) => refuse(
            "a script in memory has no door",
            "leave out `--door`, or run it with `--native`",
        ),
        (true, World::Native) if place.tier == Tier::Copied => refuse(
            "with isolation `copied` programs have no sockets, and so no door",
            "leave out `--door`; `fractal doctor` shows what stronger isolation needs",
        ),
        (false, World::Virtual) if caller.door.is_some() => {
            refuse("scripts in memory do not run behind a door", "run it with `--native`")
        }
        _ => Ok(()),
    }
}

/// The plan of a run as text.
pub fn explain(engine: &Engine, caller: &Caller, run: &Run) -> Result<Vec<String>> {
    let place = decide(engine, caller, run)?;
    copied::check(engine, caller, run, &place)?;
    check_door(caller, run, &place)?;
    let spec = spec(engine, caller, run, &place)?;
    let mut lines = copied::explain(engine, &place);
    lines.extend(fractal_jail::explain(&spec)?);
    Ok(lines)
}

pub use make::make;
#[cfg(feature = "virtual")]
use virtually::execute as execute_virtually;
#[cfg(feature = "virtual")]
pub use virtually::look;
#[cfg(feature = "mount")]
pub use virtually::{Mounting, Told};

#[cfg(not(feature = "virtual"))]
fn execute_virtually(_: &Engine, _: &Caller, _: &Run, _: &Place, _: RunIo) -> Result<Done> {
    Err(Error::new(
        fractal_model::Code::Unsupported,
        "this fractal was built without the virtual world",
    )
    .hint("build it with the feature `virtual`, or run it natively"))
}

/// What came out of the jail.
struct Done {
    report: Report,
    changes: Changes,
    stale: Option<fractal_model::Staleness>,
    /// Why not all that was done in memory is where it belongs.
    unkept: Option<Error>,
}

fn execute(engine: &Engine, caller: &Caller, run: &Run, place: &Place, io: RunIo) -> Result<Done> {
    let mut spec = spec(engine, caller, run, place)?;
    spec.terminal = io.terminal;
    let mut door = match run.door {
        true => {
            Some(doorway::open(engine, caller, &place.row, place.run_id, &place.policy, &spec.env)?)
        }
        false => None,
    };
    if let Some(door) = &door {
        spec.env.retain(|(name, _)| door.variables.iter().all(|(other, _)| other != name));
        spec.env.extend(door.variables.clone());
    }
    let watch = (!place.is_new).then(|| stale::watch(engine, &place.row));
    // Whoever's actions cannot be written down must not act.
    let open = door.as_mut().and_then(|door| door.open.take());
    let result = match (open, engine.is_ready()) {
        (Some(open), _) => {
            fractal_jail::run_with_door(&spec, io.streams, open).map_err(Error::from)
        }
        (None, true) => fractal_jail::run(&spec, io.streams).map_err(Error::from),
        (None, false) => fractal_jail::run_when(&spec, io.streams, || {
            engine.ready()?;
            engine.store.warm();
            Ok(())
        }),
    };
    drop(door);
    let stale = watch.and_then(stale::Watch::take);
    let mut report = result?;
    // The program has run: whatever happens to the list now, its work stays.
    let unknown = |_| Changes { truncated: true, ..Changes::default() };
    let changes = changes(engine, place, &mut report).unwrap_or_else(unknown);
    let stays = !place.is_new || run.name.is_some() || !changes.list.is_empty();
    if stays && place.in_memory.is_none() && !run.discard {
        // Without notes a promotion is more careful, no more.
        let _ = base::note(engine, &place.row, place.run_id, &changes);
    }
    Ok(Done { report, changes, stale, unkept: None })
}

fn changes(engine: &Engine, place: &Place, report: &mut Report) -> Result<Changes> {
    let views = match (place.in_memory, report.top.take()) {
        (Some(_), Some(top)) => Views {
            common: engine.host_view(&place.row, Vec::new())?,
            own: vec![Layer::from_fd(top).marked_by(engine.marks())],
            beside: Vec::new(),
        },
        (Some(_), None) => return Ok(Changes::default()),
        (None, _) => engine.views(&place.row, place.row.base)?,
    };
    let mut changes = views.changes(&Bounds::default())?;
    without_mount_points(&mut changes.list, &place.row.mounts)?;
    Ok(changes)
}

/// Mount points appear in the layer because something must be mounted on.
pub fn without_mount_points(list: &mut Vec<Change>, mounts: &[Mount]) -> Result<()> {
    let points = mounts.iter().map(|mount| mount.at.clone()).chain(template::scratch(mounts));
    let points = points.map(SandboxPath::parse).collect::<Result<Vec<_>>>()?;
    list.retain(|change| !points.contains(&change.path));
    Ok(())
}
