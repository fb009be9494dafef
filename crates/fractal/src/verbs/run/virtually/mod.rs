//! A run in the virtual world: a shell in this process over a tree in memory.
//!
//! The tree shows the sandbox's layers and the project; what the script
//! changes is put into the sandbox's top layer afterwards, as an overlay would
//! have written it. So every other verb, and a native run too, goes on from
//! there without knowing which world the work was done in.

mod asked;
mod bring;
mod caller;
mod io;
mod keep;
#[cfg(feature = "mount")]
mod mounted;
mod mounts;

use super::place::Place;
use super::{CAPTURE_BYTES_MAX, Done, Job, RunIo, changes};
use crate::memory_view::Project;
use crate::{Caller, Engine, base, scripts, stale, template};
use asked::{Granting, lock};
use fractal_fs::{Kind, Limits, Vfs};
use fractal_jail::layer::{Changes, View, is_autorun};
use fractal_jail::{Captured, Ended, Reached, Report, Why};
use fractal_model::{Change, ChangeKind, EntryKind, Error, Policy, Result, Run, SandboxPath};
use fractal_shell::{Settings, Shell};
use fractal_store::{Reads, SandboxRow};
use io::{Interrupts, Streams};
use keep::Work;
#[cfg(feature = "mount")]
pub use mounted::{Mounting, Told};
use mounts::Mounts;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a script may take where no limit was set.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// What a view may hold where no limit was set.
const BYTES_MAX: u64 = 2 << 30;

pub(super) fn execute(
    engine: &Engine,
    caller: &Caller,
    run: &Run,
    place: &Place,
    io: RunIo,
) -> Result<Done> {
    engine.ready()?;
    let below = match place.in_memory.is_some() && place.parent.is_none() {
        true => engine.host_view(&place.row, Vec::new())?,
        // Without the top, which is written as the tree in memory changes.
        false => {
            let below = engine.store.layer(place.row.top)?.and_then(|top| top.below);
            engine.views(&place.row, below)?.common
        }
    };
    let (vfs, mounts) = view(engine, below, &place.row, &place.policy)?;
    let watch = (!place.is_new).then(|| stale::watch(engine, &place.row));
    let mut work = Work { engine, place, vfs: &vfs, start: vfs.tree(), put: vfs.tree(), mounts };
    let mut report = blank();
    let clock = Clock::start();
    let unkept = match io.job {
        #[cfg(feature = "mount")]
        Job::Mount(mounting) => mounted::serve(&mut work, mounting).map(|()| None)?,
        Job::Code(code) => {
            code(&vfs);
            work.land().err()
        }
        job => {
            let streams = Streams::new(io.streams, io.terminal);
            scripts(caller, run, job, streams, work, &mut report)?.err()
        }
    };
    let stale = watch.and_then(stale::Watch::take);
    clock.stop(&vfs, &mut report);
    if place.in_memory.is_some() {
        let list = vfs.changes()?.into_iter().map(with_autorun).collect();
        let changes = Changes { list, ..Changes::default() };
        return Ok(Done { report, changes, stale, unkept });
    }
    let unknown = |_| Changes { truncated: true, ..Changes::default() };
    let changes = changes(engine, place, &mut report).unwrap_or_else(unknown);
    if !run.discard {
        // Without notes a promotion is more careful, no more.
        let _ = base::note(engine, &place.row, place.run_id, &changes);
    }
    Ok(Done { report, changes, stale, unkept })
}

/// One script, or what a person types. The inner result is whether all that
/// was done is where it belongs.
fn scripts(
    caller: &Caller,
    run: &Run,
    job: Job,
    mut streams: Streams,
    work: Work<'_>,
    report: &mut Report,
) -> Result<Result<()>> {
    let (engine, vfs) = (work.engine, work.vfs.clone());
    let mut settings = settings(caller, run, work.place)?;
    if run.cwd.is_some() {
        check_cwd(&vfs, &settings.cwd)?;
    }
    let ([fork, run_native], asked) = asked::commands();
    (settings.fork, settings.run_native) = (Some(fork), Some(run_native));
    let deadline = Instant::now() + settings.time_max;
    let run_id = work.place.run_id;
    let work = Mutex::new(work);
    let granting = Granting { engine, caller, work: &work, deadline };
    let input = match job {
        Job::Command => streams.input(run_id)?,
        _ => Vec::new(),
    };
    std::thread::scope(|scope| {
        // It holds the other ends of `asked`, so it goes before the thread.
        let mut shell = Shell::new(vfs, settings);
        // Threads that are there before it would let signals do as they like.
        let interrupts = Interrupts::watch(&shell, streams.interactive);
        let _attended = streams.attend(&shell)?;
        scope.spawn(|| granting.serve(asked));
        let mut run_and_land = |shell: &mut Shell, script: &str, input: &[u8]| {
            let outcome = shell.run(script, input);
            interrupts.script_ended();
            streams.pass_on(outcome, report);
            lock(&work).land()
        };
        let landed = match job {
            Job::Lines(mut lines) => loop {
                interrupts.set_idle(true);
                let line = lines(&shell.cwd());
                interrupts.set_idle(false);
                let Some(line) = line else { break Ok(()) };
                // A session may last for hours, and be killed.
                if let Err(error) = run_and_land(&mut shell, &line, b"") {
                    break Err(error);
                }
            },
            _ if scripts::may_begin(run_id, shell.canceller()) => {
                run_and_land(&mut shell, &script(&run.command), &input)
            }
            _ => {
                Streams::never_began(report);
                Ok(())
            }
        };
        streams.finish(report);
        Ok(landed)
    })
}

/// What a sandbox shows now, to be looked at: what is written into the view
/// stays in it.
pub fn look(engine: &Engine, caller: &Caller, selector: &str) -> Result<Vfs> {
    let row = engine.find(caller, Some(selector))?;
    let top = engine.views(&row, row.base)?.top();
    view(engine, top, &row, &caller.policy.meet(&row.policy)).map(|(vfs, _)| vfs)
}

/// The sandbox as a tree in memory, over what it reads from.
fn view(engine: &Engine, below: View, row: &SandboxRow, policy: &Policy) -> Result<(Vfs, Mounts)> {
    let limits = &policy.limits;
    let bytes = [limits.memory_bytes, limits.disk_bytes].into_iter().flatten().min();
    let limits = Limits { bytes_max: bytes.unwrap_or(BYTES_MAX), ..Limits::default() };
    let source = Project::new(below, &row.directory)?;
    let vfs = Vfs::over(Arc::new(source), limits);
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    vfs.set_owner(uid.as_raw(), gid.as_raw());
    vfs.set_who(&row.name);
    // A shell expects somewhere to put what is of no interest later.
    vfs.make_dir_all("/tmp")?;
    for dir in template::scratch(&row.mounts) {
        vfs.make_dir_all(dir)?;
    }
    let mounts = mounts::mount_all(engine, row, policy, &vfs)?;
    vfs.rebase();
    for path in &policy.read_only {
        vfs.set_access(&SandboxPath::parse(path)?, Some(fractal_fs::Access::ReadOnly));
    }
    Ok((vfs, mounts))
}

fn settings(caller: &Caller, run: &Run, place: &Place) -> Result<Settings> {
    let template = place.template.as_ref();
    let cwd = run.cwd.clone().or_else(|| template.and_then(|template| template.cwd.clone()));
    let cwd = cwd.map_or_else(|| caller.directory.clone(), |cwd| caller.directory.join(cwd));
    let mut env = vec![
        ("HOME".to_owned(), "/home/user".to_owned()),
        ("FRACTAL_SANDBOX".to_owned(), place.row.name.clone()),
    ];
    let given = template.into_iter().flat_map(|template| &template.env).chain(&run.env);
    env.extend(given.map(|(name, value)| (name.clone(), value.clone())));
    let limits = &place.policy.limits;
    let output = limits.output_bytes.unwrap_or(CAPTURE_BYTES_MAX as u64 * 16);
    let shell = Settings::default();
    let memory = limits.memory_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let python = shell.python_memory_bytes_max;
    Ok(Settings {
        env,
        cwd: utf8(cwd)?,
        output_bytes_max: usize::try_from(output).unwrap_or(usize::MAX),
        time_max: limits.time_ms.map_or(TIME_MAX, Duration::from_millis),
        python_memory_bytes_max: memory.map_or(python, |most| most.min(python)),
        ..shell
    })
}

/// A directory that was asked for has to be there: a script that is started
/// elsewhere would work on other files.
fn check_cwd(vfs: &Vfs, cwd: &str) -> Result<()> {
    match vfs.stat(cwd) {
        Ok(stat) if stat.kind == EntryKind::Directory => Ok(()),
        Ok(_) => Err(Error::invalid(format!("{cwd} is no directory in the sandbox"))
            .hint("name a directory with `-w`")),
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::NotADirectory) => {
            Err(Error::not_found(format!("there is no directory {cwd} in the sandbox"))
                .hint("leave out `-w`, and let the script make it: mkdir -p DIR && cd DIR"))
        }
        Err(error) => Err(error.into()),
    }
}

fn utf8(path: PathBuf) -> Result<String> {
    path.into_os_string().into_string().map_err(|path| {
        Error::invalid(format!("{} is not UTF-8", path.display()))
            .hint("the shell in memory starts in directories with UTF-8 names only")
    })
}

/// `sh -c SCRIPT` is that script; other words are one command, quoted.
fn script(command: &[String]) -> String {
    if let [shell, flag, script, rest @ ..] = command
        && matches!(shell.rsplit('/').next(), Some("sh" | "bash"))
        && flag == "-c"
    {
        // As a shell has it: $0, then $1 and so on.
        let rest = rest.iter().skip(1).map(|word| quoted(word)).collect::<Vec<_>>();
        return match rest.is_empty() {
            true => script.clone(),
            false => format!("set -- {}\n{script}", rest.join(" ")),
        };
    }
    command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn with_autorun(change: Change) -> Change {
    let autorun = change.kind != ChangeKind::Deleted && is_autorun(&change.path);
    Change { autorun, ..change }
}

/// Wall-clock and processor time of this thread, in which the script runs.
struct Clock {
    wall: Instant,
    cpu_ns: u64,
}

impl Clock {
    fn start() -> Clock {
        Clock { wall: Instant::now(), cpu_ns: Clock::cpu_ns() }
    }

    fn cpu_ns() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn stop(&self, vfs: &Vfs, report: &mut Report) {
        report.wall_ms = self.wall.elapsed().as_millis() as u64;
        report.cpu_ms = (Clock::cpu_ns() - self.cpu_ns) / 1_000_000;
        report.memory_peak_bytes = vfs.usage().bytes;
        report.reached.disk = vfs.usage().bytes >= vfs.limits().bytes_max;
    }
}

/// The report of a run in which nothing has happened yet.
fn blank() -> Report {
    Report {
        ended: Ended::Exited(0),
        why: Why::Ended,
        reached: Reached::default(),
        wall_ms: 0,
        cpu_ms: 0,
        memory_peak_bytes: 0,
        io_read_bytes: 0,
        io_write_bytes: 0,
        output: Captured::default(),
        errors: Captured::default(),
        write_errno: None,
        top: None,
        missing: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_script_and_scripts_stay_one() {
        let check = |words: &[&str], expect: &str| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(script(&words), expect);
        };
        check(&["ls", "-l", "it's"], r"'ls' '-l' 'it'\''s'");
        check(&["sh", "-c", "echo a; echo b"], "echo a; echo b");
        check(&["/bin/bash", "-c", "echo $1", "sh", "x y"], "set -- 'x y'\necho $1");
        check(&["sh", "script"], "'sh' 'script'");
    }
}
