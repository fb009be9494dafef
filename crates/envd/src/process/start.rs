//! Starting a process: as whom, where, with what around it.

use super::output::{Event, Listeners, Way, follow};
use super::{Inlet, Process, Start, terminal};
use crate::connect::{Code, Failure};
use crate::users::User;
use crate::{Shared, State};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Where programs are looked for, whatever the sandbox was started with.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long others may keep a process's output open once it has ended: what
/// was started in the background inherits it and may never close it.
const AFTER: Duration = Duration::from_millis(250);
/// The same for those who go on writing to those who listen.
const AFTER_MAX: Duration = Duration::from_secs(2);

/// The process, and what it does from its first moment on.
pub fn start(
    state: &Shared,
    user: &User,
    asked: Start,
) -> Result<(Arc<Process>, mpsc::Receiver<Event>), Failure> {
    if state.processes.is_full() {
        return Err(Failure::new(Code::Exhausted, "there are too many processes already"));
    }
    let is_bad = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
    if let Some(name) = asked.process.envs.keys().find(is_bad) {
        let name = name.escape_debug();
        return Err(Failure::invalid(format!("`{name}` is no name of a variable")));
    }
    let directory = directory(user, asked.process.cwd.as_deref())?;
    let size = asked.pty.as_ref().map(|pty| pty.size.unwrap_or_default());
    let mut command = match size {
        None => Command::new(&asked.process.cmd),
        Some(_) => terminal::command(user, state.users.can_switch(), &asked.process.cmd),
    };
    command.args(&asked.process.args).current_dir(&directory).kill_on_drop(false);
    surround(&mut command, state, user, &asked.process.envs);
    let listeners = Listeners::default();
    let events = listeners.join().ok_or_else(|| Failure::new(Code::Internal, "nobody listens"))?;
    let (child, inlet, screen, outlets) = match size {
        None => {
            let has_input = asked.stdin.unwrap_or(true);
            on_pipes(command, user, state.users.can_switch(), has_input)
        }
        Some(size) => on_terminal(command, size),
    }
    .map_err(|error| Failure::of(&error, format!("cannot start {}", asked.process.cmd)))?;
    let gone = || Failure::new(Code::Internal, "the process ended before it had begun");
    let process = Arc::new(Process {
        pid: child.id().ok_or_else(gone)?,
        config: asked.process,
        tag: asked.tag,
        inlet: tokio::sync::Mutex::new(inlet),
        screen,
        listeners,
    });
    state.processes.lock().insert(process.pid, process.clone());
    tokio::spawn(attend(state.clone(), process.clone(), child, outlets));
    Ok((process, events))
}

/// Where it starts: at home, or where it was asked for.
fn directory(user: &User, asked: Option<&str>) -> Result<PathBuf, Failure> {
    match asked.filter(|asked| !asked.is_empty()) {
        None if user.home.is_dir() => Ok(user.home.clone()),
        None => Ok(PathBuf::from("/")),
        Some(asked) => {
            let path = user.path(asked)?;
            match path.is_dir() {
                true => Ok(path),
                false if path.exists() => {
                    let why = format!("cwd '{}' is not a directory", path.display());
                    Err(Failure::invalid(why))
                }
                false => Err(Failure::invalid(format!("cwd '{}' does not exist", path.display()))),
            }
        }
    }
}

/// The environment: what the sandbox was given, who it is, what was asked.
pub fn surround<'a>(
    command: &mut Command,
    state: &State,
    user: &User,
    asked: impl IntoIterator<Item = (&'a String, &'a String)>,
) {
    if state.users.can_switch() {
        command.env("PATH", PATH);
    }
    command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
    command.envs(asked);
}

type Started = (Child, Inlet, Option<terminal::Screen>, Vec<(Outlet, Way)>);

/// Something to read from.
pub enum Outlet {
    Stdout(tokio::process::ChildStdout),
    Stderr(tokio::process::ChildStderr),
    Terminal(terminal::Master),
}

fn on_pipes(
    mut command: Command,
    user: &User,
    can_switch: bool,
    has_input: bool,
) -> std::io::Result<Started> {
    if can_switch {
        command.uid(user.uid).gid(user.gid);
    }
    let input = if has_input { Stdio::piped() } else { Stdio::null() };
    command.process_group(0).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let inlet = child.stdin.take().map_or(Inlet::None, Inlet::Pipe);
    let stdout = child.stdout.take().map(|pipe| (Outlet::Stdout(pipe), Way::Stdout));
    let stderr = child.stderr.take().map(|pipe| (Outlet::Stderr(pipe), Way::Stderr));
    Ok((child, inlet, None, stdout.into_iter().chain(stderr).collect()))
}

fn on_terminal(mut command: Command, size: terminal::Size) -> std::io::Result<Started> {
    let (reading, writing, screen, [stdin, stdout, stderr]) = terminal::open(size)?;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let child = command.spawn()?;
    let outlets = vec![(Outlet::Terminal(reading), Way::Terminal)];
    Ok((child, Inlet::Terminal(writing), Some(screen), outlets))
}

/// Follows a process to its end and tells of it.
async fn attend(
    state: Shared,
    process: Arc<Process>,
    mut child: Child,
    outlets: Vec<(Outlet, Way)>,
) {
    let mut following = JoinSet::new();
    for (outlet, way) in outlets {
        let process = process.clone();
        following.spawn(async move {
            match outlet {
                Outlet::Stdout(pipe) => follow(pipe, way, &process.listeners).await,
                Outlet::Stderr(pipe) => follow(pipe, way, &process.listeners).await,
                Outlet::Terminal(master) => follow(master, way, &process.listeners).await,
            }
        });
    }
    let status = child.wait().await;
    // Its number is free from now on.
    state.processes.lock().remove(&process.pid);
    drain(&process.listeners, &mut following).await;
    if let Ok(status) = status {
        process.listeners.tell(&Event::Ended(status)).await;
    }
    process.listeners.close();
    // Whoever still holds the other end writes on, and nobody hears it.
    while following.join_next().await.is_some() {}
}

/// Lets all that was written arrive: until every pipe is closed, or nothing
/// has come for a while although everybody had heard all.
async fn drain(listeners: &Listeners, following: &mut JoinSet<()>) {
    let end = Instant::now() + AFTER_MAX;
    loop {
        let before = listeners.progress();
        // What a slow listener has not taken yet may be the process's own.
        if Instant::now() > end && before.is_some() {
            return;
        }
        tokio::select! {
            next = following.join_next() => {
                if next.is_none() {
                    return;
                }
            }
            () = tokio::time::sleep(AFTER) => {
                if before.is_some() && before == listeners.progress() {
                    return;
                }
            }
        }
    }
}
