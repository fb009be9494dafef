//! A script's input and output, and the keys that stop it.

use super::caller::Attended;
use crate::scripts;
use fractal_jail::terminal::Signals;
use fractal_jail::{Captured, Ended, Input, Output, Report, Why};
use fractal_model::{Code, Error, Id, Result};
use fractal_shell::{Ended as Shelled, Outcome, Shell};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Input that a script may be given.
const STDIN_BYTES_MAX: u64 = 256 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// How often it is looked whether a script that waits for input is to end.
const NAP: Duration = Duration::from_millis(50);

/// The caller's input and output.
pub(super) struct Streams {
    /// Signals are for the script.
    pub(super) interactive: bool,
    caller: Option<OwnedFd>,
    stdin: Input,
    stdout: Sink,
    stderr: Sink,
}

enum Sink {
    Keep(usize, Captured),
    To(File),
    /// To a file, and the end of it is kept.
    Both(File, usize, Captured),
    /// Where the other one goes, as on a terminal.
    Joined,
}

impl Sink {
    fn new(output: Output) -> Sink {
        match output {
            Output::Capture(most) => Sink::Keep(most, Captured::default()),
            Output::Descriptor(to) => Sink::To(to.into()),
            Output::Copied(to, most) => Sink::Both(to.into(), most, Captured::default()),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Sink::Keep(most, kept) => {
                let room = most.saturating_sub(kept.bytes.len()).min(bytes.len());
                kept.bytes.extend_from_slice(&bytes[..room]);
                kept.total_bytes += bytes.len() as u64;
                Ok(())
            }
            Sink::To(file) => file.write_all(bytes),
            Sink::Both(file, most, kept) => {
                kept.keep_end(bytes, *most);
                file.write_all(bytes)
            }
            Sink::Joined => Ok(()),
        }
    }

    fn kept(self) -> Captured {
        match self {
            Sink::Keep(_, kept) | Sink::Both(_, _, kept) => kept,
            Sink::To(_) | Sink::Joined => Captured::default(),
        }
    }
}

impl Streams {
    pub(super) fn new(streams: fractal_jail::Streams, terminal: bool) -> Streams {
        let stderr = match terminal {
            true => Sink::Joined,
            false => Sink::new(streams.stderr),
        };
        let (stdin, stdout) = (streams.stdin, Sink::new(streams.stdout));
        let (interactive, caller) = (streams.interactive, streams.caller);
        Streams { interactive, caller, stdin, stdout, stderr }
    }

    /// Has the shell stop when whoever asked goes away.
    pub(super) fn attend(&mut self, shell: &Shell) -> Result<Option<Attended>> {
        let watch = |connection| Attended::watch(connection, shell.canceller());
        self.caller.take().map(watch).transpose().map_err(|error| {
            Error::internal(format!("cannot follow who asked for the script: {error}"))
        })
    }

    /// All of the input, which a script has beforehand. A person at a
    /// terminal is not asked, and one that is to end gets no more of it.
    pub(super) fn input(&mut self, run: Id) -> Result<Vec<u8>> {
        let descriptor = match std::mem::replace(&mut self.stdin, Input::Null) {
            Input::Null | Input::Far(_) => return Ok(Vec::new()),
            Input::Bytes(bytes) => return Ok(bytes),
            Input::Descriptor(descriptor) => descriptor,
        };
        if fractal_jail::terminal::is_terminal(&descriptor) {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        let mut file = File::from(descriptor).take(STDIN_BYTES_MAX + 1);
        let mut piece = vec![0; PIECE_BYTES];
        while self.has_more(file.get_ref(), run) {
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::internal(format!("cannot read standard input: {error}")));
                }
            }
        }
        if bytes.len() as u64 > STDIN_BYTES_MAX {
            let message = format!("standard input is larger than {STDIN_BYTES_MAX} bytes");
            return Err(Error::new(Code::Limit, message)
                .hint("put it into a file of the sandbox with `fractal cp`"));
        }
        Ok(bytes)
    }

    /// Waits for more of the input; false when the script is to end first.
    fn has_more(&self, file: &File, run: Id) -> bool {
        let nap = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as i64 };
        while !scripts::is_ended(run) {
            let mut ends = vec![PollFd::new(file, PollFlags::IN)];
            ends.extend(self.caller.as_ref().map(|caller| PollFd::new(caller, PollFlags::IN)));
            let found = poll(&mut ends, Some(&nap));
            if ends.get(1).is_some_and(|caller| !caller.revents().is_empty()) {
                scripts::end(run);
            } else if !matches!(found, Ok(0) | Err(Errno::INTR)) {
                return true;
            }
        }
        false
    }

    /// Gives out what a script wrote, and notes how it ended.
    pub(super) fn pass_on(&mut self, outcome: Outcome, report: &mut Report) {
        report.ended = match &outcome.ended {
            Shelled::Cancelled => Ended::Signalled(SIGINT),
            _ => Ended::Exited(outcome.exit),
        };
        report.why = match &outcome.ended {
            Shelled::Exited if outcome.truncated => Why::Output,
            Shelled::Exited => Why::Ended,
            Shelled::Timeout => Why::Time,
            Shelled::Cancelled => Why::Asked,
            Shelled::Limit(_) if outcome.truncated => Why::Output,
            Shelled::Limit(_) => Why::Memory,
        };
        let mut stderr = outcome.stderr;
        if let Shelled::Limit(limit) = &outcome.ended {
            report.reached.memory = !outcome.truncated;
            stderr.extend_from_slice(format!("fractal: stopped: {limit}\n").as_bytes());
        }
        let written = self.stdout.take(&outcome.stdout).and_then(|()| match &mut self.stderr {
            Sink::Joined => self.stdout.take(&stderr),
            sink => sink.take(&stderr),
        });
        if let Err(error) = written {
            report.write_errno = error.raw_os_error();
        }
    }

    /// Notes that a script was ended before it began.
    pub(super) fn never_began(report: &mut Report) {
        (report.ended, report.why) = (Ended::Signalled(SIGINT), Why::Asked);
    }

    pub(super) fn finish(self, report: &mut Report) {
        (report.output, report.errors) = (self.stdout.kept(), self.stderr.kept());
    }
}

/// Ctrl-C and its like stop the script, not this process with all that it
/// has in memory. Between two lines of a session everything is kept already,
/// so that what ends processes may end this one.
pub(super) struct Interrupts {
    signals: Option<Arc<Signals>>,
    state: Arc<State>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    over: AtomicBool,
    idle: AtomicBool,
    /// How many scripts have ended.
    ended: AtomicU64,
}

const SIGINT: i32 = 2;

/// How long a script that was asked to stop may take before the next signal
/// ends this process: a loop of awk's that does nothing hears of no signal.
const STUBBORN: Duration = Duration::from_secs(6);

impl Interrupts {
    pub(super) fn watch(shell: &Shell, wanted: bool) -> Interrupts {
        let signals = if wanted { Signals::take().map(Arc::new) } else { None };
        let state = Arc::new(State::default());
        let watcher = signals.clone().map(|signals| {
            let (state, canceller) = (state.clone(), shell.canceller());
            std::thread::spawn(move || {
                let mut asked = None;
                while !state.over.load(Ordering::Relaxed) {
                    match signals.ending() {
                        Some(signal) if state.ends_us(signal, &mut asked) => end_by(signal),
                        Some(_) => canceller.cancel(),
                        None => std::thread::sleep(Duration::from_millis(20)),
                    }
                }
            })
        });
        Interrupts { signals, state, watcher }
    }

    /// Whether no script runs.
    pub(super) fn set_idle(&self, idle: bool) {
        self.state.idle.store(idle, Ordering::Relaxed);
    }

    /// A script has ended; what it did is yet to be kept.
    pub(super) fn script_ended(&self) {
        self.state.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    /// Whether a signal is for this process rather than for the script:
    /// between two lines, and when the script was asked long ago.
    fn ends_us(&self, signal: i32, asked: &mut Option<(u64, Instant)>) -> bool {
        if self.idle.load(Ordering::Relaxed) {
            return signal != SIGINT;
        }
        let ended = self.ended.load(Ordering::Relaxed);
        match asked {
            Some((script, since)) if *script == ended => since.elapsed() > STUBBORN,
            _ => {
                *asked = Some((ended, Instant::now()));
                false
            }
        }
    }
}

/// Lets a signal do what it usually does: in this thread it is not held back
/// any more.
fn end_by(signal: i32) {
    Signals::unblock();
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        if self.signals.take().is_some() {
            Signals::unblock();
        }
    }
}
