//! Programs that run to their end, by themselves.

use super::asked::{Command as Asked, Words, until};
use super::gathered::Gathered;
use super::{Thrown, text};
use crate::users::missing_variables;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Programs at once; others wait for their turn.
const AT_ONCE: usize = 64;
const CHUNK_BYTES: usize = 64 << 10;
/// How long others may keep a program's output open once it has ended, while
/// they write nothing, and while they write.
const AFTER: Duration = Duration::from_millis(250);
const AFTER_MAX: Duration = Duration::from_secs(2);

/// The programs that run.
pub struct Programs(Semaphore);

impl Default for Programs {
    fn default() -> Programs {
        Programs(Semaphore::new(AT_ONCE))
    }
}

impl Programs {
    /// Runs a program and gives what it wrote and how it ended.
    pub async fn run(&self, asked: Asked) -> Result<Value, Thrown> {
        let _turn = self.0.acquire().await;
        let end = until(asked.timeout);
        let shown = shown(&asked);
        let (mut child, mut outputs) = start(&asked)?;
        let Ok(status) = tokio::time::timeout_at(end, child.wait()).await else {
            kill_all(child.id());
            let _ = child.wait().await;
            let limit = asked.timeout.unwrap_or_default();
            return Err(Thrown::timeout(format!(
                "`{shown}` took longer than {limit} s and was killed"
            )));
        };
        outputs.drain().await;
        let status = status.map_err(|error| Thrown::system(&error, &shown))?;
        let ([stdout, stderr], exit) = (outputs.texts(), exit_code(status));
        if asked.check && exit != 0 {
            let why = format!(
                "`{shown}` ended with exit code {exit}. It wrote:\n{stdout}\nand as errors:\n{stderr}"
            );
            let why = match asked.error_msg.as_str() {
                "" => why,
                said => format!("{said}: {why}"),
            };
            return Err(Thrown::new("NonZeroExitCodeError", why));
        }
        Ok(json!({ "stdout": stdout, "stderr": stderr, "exit_code": exit }))
    }
}

/// The command as people write it.
fn shown(asked: &Asked) -> String {
    match &asked.command {
        Words::One(word) => word.clone(),
        Words::Many(words) => words.join(" "),
    }
}

/// A number as Python gives it: negative for a signal.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| -status.signal().unwrap_or_default())
}

/// Ends a program with what it started in its group.
pub fn kill_all(id: Option<u32>) {
    let pid = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // One that has ended is what was wanted.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

fn start(asked: &Asked) -> Result<(tokio::process::Child, Outputs), Thrown> {
    let words: Vec<&str> = match &asked.command {
        Words::One(word) => vec![word],
        Words::Many(words) => words.iter().map(String::as_str).collect(),
    };
    let words = if asked.shell { [vec!["/bin/sh", "-c"], words].concat() } else { words };
    let [program, args @ ..] = words.as_slice() else {
        return Err(Thrown::of("builtins.ValueError", "there is no program in an empty list"));
    };
    let mut command = Command::new(program);
    command.args(args).process_group(0).kill_on_drop(true).stdin(Stdio::null());
    command.envs(missing_variables());
    if let Some(env) = &asked.env {
        if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            let name = name.escape_debug();
            return Err(Thrown::of("builtins.ValueError", format!("`{name}` names no variable")));
        }
        command.env_clear().envs(env);
    }
    if let Some(directory) = &asked.cwd {
        // What is missing is told apart from a program that is.
        std::fs::read_dir(Path::new(directory))
            .map_err(|error| Thrown::system(&error, directory))?;
        command.current_dir(directory);
    }
    let cannot = |error: io::Error| Thrown::system(&error, program);
    let outputs = Outputs::of(&mut command, asked.merge_output_streams).map_err(cannot)?;
    let child = command.spawn().map_err(cannot)?;
    Ok((child, outputs))
}

type Kept = Arc<Mutex<Gathered>>;

/// What is read while a program runs.
struct Outputs {
    kept: [Kept; 2],
    following: JoinSet<()>,
    last: Arc<Mutex<Instant>>,
}

impl Outputs {
    /// Both streams apart, or both as one.
    fn of(command: &mut Command, as_one: bool) -> io::Result<Outputs> {
        let mut outputs = Outputs {
            kept: Default::default(),
            following: JoinSet::new(),
            last: Arc::new(Mutex::new(Instant::now())),
        };
        let (read, write) = io::pipe()?;
        if as_one {
            command.stderr(write.try_clone()?);
        } else {
            let (read, write) = io::pipe()?;
            command.stderr(write);
            outputs.follow(1, read.into())?;
        }
        command.stdout(write);
        outputs.follow(0, read.into())?;
        Ok(outputs)
    }

    fn follow(&mut self, which: usize, pipe: OwnedFd) -> io::Result<()> {
        let mut pipe = Receiver::from_owned_fd(pipe)?;
        let (kept, last) = (self.kept[which].clone(), self.last.clone());
        self.following.spawn(async move {
            let mut chunk = vec![0; CHUNK_BYTES];
            while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..count]);
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
        });
        Ok(())
    }

    /// Lets all that the program wrote arrive. What it left behind may hold its
    /// output open for ever, and is not waited for.
    async fn drain(&mut self) {
        let end = Instant::now() + AFTER_MAX;
        loop {
            let quiet = tokio::time::timeout(AFTER, self.following.join_next()).await;
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match quiet {
                Ok(None) => return,
                Ok(Some(_)) => {}
                Err(_) if last.elapsed() >= AFTER || Instant::now() >= end => return,
                Err(_) => {}
            }
        }
    }

    fn texts(&self) -> [String; 2] {
        self.kept.clone().map(|kept| {
            text::of_program(&kept.lock().unwrap_or_else(PoisonError::into_inner).take_all())
        })
    }
}
