//! What a script asks of the engine around it: `fork` and `run-native`.
//!
//! A command of the shell outlives every borrow, so it cannot hold the engine.
//! It sends its wish to a thread that does, and waits for the answer as for
//! any program.

use super::bring::bring;
use super::keep::Work;
use crate::{Caller, Engine};
use fractal_jail::Input;
use fractal_model::{Action, Code, Error, Limits, Policy, Reply, Result, Run, World};
use fractal_shell::{Call, Command, Output};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a program may outlive the script that waits for it.
const AFTER: Duration = Duration::from_millis(100);

/// What a script wants.
enum Wish {
    /// A child of the sandbox as it is now, under this name.
    Fork(Option<String>),
    /// A real program on the sandbox's files as they are now.
    RunNative { command: Vec<String>, env: BTreeMap<String, String>, cwd: String, stdin: Vec<u8> },
}

/// A wish and where its answer goes.
pub(super) struct Asked {
    wish: Wish,
    answer: Sender<Output>,
}

/// A command of the shell that asks.
struct Asking {
    read: fn(&Call) -> std::result::Result<Wish, Output>,
    to: Mutex<Sender<Asked>>,
}

impl Command for Asking {
    fn call(&self, call: &Call) -> Output {
        let wish = match (self.read)(call) {
            Ok(wish) => wish,
            Err(usage) => return usage,
        };
        let (answer, answered) = channel();
        let sent =
            self.to.lock().unwrap_or_else(PoisonError::into_inner).send(Asked { wish, answer });
        let answer = sent.ok().and_then(|()| answered.recv().ok());
        answer.unwrap_or_else(|| Output::fail(125, format!("{}: the engine is gone\n", call.name)))
    }
}

/// The commands `fork` and `run-native`, and where their wishes arrive.
pub(super) fn commands() -> ([Arc<dyn Command>; 2], Receiver<Asked>) {
    let (to, asked) = channel();
    let command =
        |read| -> Arc<dyn Command> { Arc::new(Asking { read, to: Mutex::new(to.clone()) }) };
    ([command(read_fork), command(read_run_native)], asked)
}

fn read_fork(call: &Call) -> std::result::Result<Wish, Output> {
    match call.args {
        [] => Ok(Wish::Fork(None)),
        [name] if !name.starts_with('-') => Ok(Wish::Fork(Some(name.clone()))),
        _ => Err(Output::fail(2, "fork: usage: fork [NAME]\n")),
    }
}

fn read_run_native(call: &Call) -> std::result::Result<Wish, Output> {
    let command = match call.args {
        [dashes, command @ ..] if dashes == "--" => command,
        command => command,
    };
    if command.is_empty() {
        return Err(Output::fail(2, "run-native: usage: run-native CMD [ARG]...\n"));
    }
    Ok(Wish::RunNative {
        command: command.to_vec(),
        env: call.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        cwd: call.cwd.to_owned(),
        stdin: call.stdin.to_vec(),
    })
}

/// Carries out wishes until nobody is left to have one.
pub(super) struct Granting<'a> {
    pub(super) engine: &'a Engine,
    pub(super) caller: &'a Caller,
    pub(super) work: &'a Mutex<Work<'a>>,
    /// When the script has to be done.
    pub(super) deadline: Instant,
}

impl Granting<'_> {
    pub(super) fn serve(&self, asked: Receiver<Asked>) {
        for Asked { wish, answer } in asked {
            let (name, granted) = match wish {
                Wish::Fork(name) => ("fork", self.fork(name).map(|name| Output::ok(name + "\n"))),
                Wish::RunNative { command, env, cwd, stdin } => {
                    let run = Run { command, env, cwd: Some(cwd), ..Run::default() };
                    ("run-native", self.run_native(run, stdin))
                }
            };
            let output = granted.unwrap_or_else(|error| refused(name, &error));
            // Who asked may have been stopped meanwhile.
            let _ = answer.send(output);
        }
    }

    /// A child that sees what the script sees.
    fn fork(&self, name: Option<String>) -> Result<String> {
        let mut work = lock(self.work);
        let row = &work.place.row;
        if work.place.in_memory.is_some() {
            let message = "a throw-away run has no sandbox that could have children";
            return Err(Error::new(Code::Unsupported, message).hint("leave out --rm"));
        }
        let sandbox = Some(row.name.clone());
        work.keep()?;
        let ask = Policy::default();
        let action = Action::Fork { sandbox, name, ask, network: None, ttl_ms: None, world: None };
        match self.engine.apply(self.caller, action)? {
            Reply::Sandbox(child) => Ok(child.name),
            _ => Err(Error::internal("the engine gave an answer of another verb")),
        }
    }

    /// Runs a program in a child of the sandbox, and brings back what it did.
    fn run_native(&self, run: Run, stdin: Vec<u8>) -> Result<Output> {
        let child = self.fork(None)?;
        let ran = self.run_in(&child, run, stdin);
        let gone = Action::Drop { sandboxes: vec![child], force: true };
        let dropped = self.engine.apply(self.caller, gone);
        let output = ran?;
        dropped.map(|_| output)
    }

    fn run_in(&self, child: &str, run: Run, stdin: Vec<u8>) -> Result<Output> {
        // A moment more than the script has, so that it ends with the program.
        let left = self.deadline.saturating_duration_since(Instant::now()) + AFTER;
        let limits = Limits { time_ms: Some(at_least_one_ms(left)), ..Limits::default() };
        let run = Run {
            sandbox: Some(child.to_owned()),
            world: Some(World::Native),
            ask: Policy { limits, ..run.ask },
            ..run
        };
        let io = super::RunIo::capturing(Input::Bytes(stdin));
        let reply = self.engine.run(self.caller, run, io)?;
        let row = self.engine.find(self.caller, Some(child))?;
        bring(self.engine, &row, lock(self.work).vfs)?;
        let (stdout, stderr) = (reply.stdout.into_bytes(), reply.stderr.into_bytes());
        Ok(Output { stdout, stderr, exit: reply.exit })
    }
}

fn at_least_one_ms(left: Duration) -> u64 {
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// A script and what it asks for never keep at the same time, so that a panic
/// of one cannot leave half of the other's work.
pub(super) fn lock<'w, 'a>(work: &'w Mutex<Work<'a>>) -> MutexGuard<'w, Work<'a>> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error as a command tells it.
fn refused(name: &str, error: &Error) -> Output {
    let hint = error.hint.as_ref().map(|hint| format!("{name}: {hint}\n")).unwrap_or_default();
    Output::fail(i32::from(error.code.exit_status()), format!("{name}: {}\n{hint}", error.message))
}
