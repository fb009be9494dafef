//! A program of the host that the embedding program chose, as a file: what it
//! prints is the content.
//!
//! There is no shell between. Its output and its time are bounded, and when
//! its answer is there, or nobody waits any more, it is ended with all of its
//! process group.

use super::{Context, Made, Provide};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::{Duration, Instant};

/// How much of its complaint is told.
const COMPLAINT_BYTES_MAX: u64 = 4096;

/// Between its last output and looking whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// How long the pipes of a program that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A program with its arguments.
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    dir: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
}

impl Command {
    /// Runs a program with arguments, as they are.
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let args = args.into_iter().map(Into::into).collect();
        Command { program: program.into(), args, dir: None, env: Vec::new() }
    }

    /// Runs it in this directory of the host.
    pub fn in_dir(self, dir: impl Into<PathBuf>) -> Command {
        Command { dir: Some(dir.into()), ..self }
    }

    /// Gives it one more variable. It is told the path that was asked for as
    /// `FRACTAL_PATH` and who asks as `FRACTAL_WHO`.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Command {
        self.env.push((name.into(), value.into()));
        self
    }

    fn start(&self, context: &Context) -> Result<Group, String> {
        use std::os::unix::ffi::OsStrExt;
        let path = crate::error::shown(&context.path);
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env("FRACTAL_PATH", std::ffi::OsStr::from_bytes(&path));
        command.env("FRACTAL_WHO", &*context.who);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let child = command.spawn();
        child.map(Group).map_err(|error| format!("{}: {error}", self.program.display()))
    }
}

/// A program and what it started; all of it ends with this value.
struct Group(Child);

impl Group {
    fn end(&mut self) {
        // Its own pid is not given to anybody else before it was waited for,
        // so the group is still the one that was made for it.
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // The group may be gone already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    /// Waits until the program ends by itself, without taking its pid back.
    fn has_ended(&self) -> bool {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match Pid::from_raw(self.0.id() as i32) {
            Some(pid) => !matches!(waitid(WaitId::Pid(pid), options), Ok(None)),
            None => true,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
        // It was killed: this does not take long, and says nothing new.
        let _ = self.0.wait();
    }
}

impl Provide for Command {
    fn read(&self, context: &Context) -> Result<Made, String> {
        let mut group = self.start(context)?;
        let (stdout, stderr) = (group.0.stdout.take(), group.0.stderr.take());
        let (send, receive) = channel();
        let limit = context.bytes_max + 1;
        spawn(move || {
            // Nobody may be waiting any more, which is no error.
            let _ = send.send(all(stdout, limit));
        });
        let (send, complaint) = channel();
        spawn(move || {
            let _ = send.send(all(stderr, COMPLAINT_BYTES_MAX));
        });
        let left = context.deadline.saturating_duration_since(Instant::now());
        // A little earlier than nobody waits any more, to say so itself.
        let left = left.mul_f32(0.95);
        let until = Instant::now() + left;
        // The output may end because it was cut off, or be held open by
        // something that was left behind.
        let mut output = None;
        while output.is_none() && !group.has_ended() {
            match Instant::now() < until {
                true => output = receive.recv_timeout(PAUSE).ok(),
                false => return Err(format!("it took longer than {left:?} and was ended")),
            }
        }
        let whole = output.as_ref().is_none_or(|output| (output.len() as u64) < limit);
        while whole && !group.has_ended() {
            match Instant::now() < until {
                true => std::thread::sleep(PAUSE),
                false => return Err(format!("it took longer than {left:?} and was ended")),
            }
        }
        group.end();
        let status = group.0.wait().map_err(|error| error.to_string())?;
        // What left its group can hold the pipes open for ever.
        let output = output.map_or_else(|| receive.recv_timeout(LAST_WORDS), Ok);
        let output = output.map_err(|_| "something it started keeps its output open".to_owned())?;
        let complaint = complaint.recv_timeout(LAST_WORDS).unwrap_or_default();
        match whole && !status.success() {
            false => Ok(Made::Bytes(output.into())),
            true => {
                let complaint = String::from_utf8_lossy(&complaint);
                Err(format!("{status}: {}", complaint.trim().lines().last().unwrap_or_default()))
            }
        }
    }
}

/// What comes out of a pipe until it ends, or so much of it.
fn all(pipe: Option<impl Read>, limit: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(pipe) = pipe {
        // What came before an error is told.
        let _ = pipe.take(limit).read_to_end(&mut out);
    }
    out
}
