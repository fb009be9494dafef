//! `python3`: CPython in WebAssembly, over a view.
//!
//! The interpreter is data to us: bytecode that an interpreter of WebAssembly
//! runs. It can do what [`imports`] lets it do, which is files of one view,
//! its own input and output, a clock and random numbers. There is no import
//! for a process, a socket or a file of the host, so nothing has to be
//! forbidden. Every program gets an instance of its own, and a program that
//! runs is looked after every few milliseconds: whoever cancels or runs out
//! of time need not wait for it.

mod abi;
mod beside;
mod calls;
mod clock;
mod files;
mod guest;
mod imports;
mod memory;
mod paths;

use crate::command::{Call, Output};
use crate::name;
use clock::{Clock, Wake};
use files::Files;
use guest::{End, Guest, Interpreter, Said};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wasmtime::{Store, Trap};

/// Instructions between two looks at whether the program shall go on; some
/// milliseconds.
const LOOK_INSTRUCTIONS: u64 = 300_000;

/// How long a program that sleeps is left alone at a time.
const NAP: Duration = Duration::from_millis(10);

/// The exit status of a program that was stopped at a limit, as if by a kill.
const AT_LIMIT: i32 = 137;

/// What a program may have.
pub(crate) struct Bounds {
    pub(crate) memory_bytes_max: usize,
    /// Of standard output and standard error together, which a shell takes
    /// in one piece.
    pub(crate) said_bytes_max: usize,
}

pub(crate) fn call(call: &Call) -> Output {
    let interpreter = match guest::interpreter() {
        Ok(interpreter) => interpreter,
        Err(why) => return Output::fail(126, format!("python3: cannot be loaded: {why}\n")),
    };
    let memory = call.own.python.memory_bytes_max;
    if memory < interpreter.memory_bytes_min {
        return Output::fail(126, too_little(interpreter.memory_bytes_min, memory));
    }
    let wake = Wake::default();
    let mut store = Store::new(&interpreter.engine, guest(call, &wake));
    store.limiter(|guest| &mut guest.limits);
    let ended = run(call, interpreter, &mut store, &wake);
    let mut said = store.into_data().said;
    let exit = match ended {
        Ended::Exited(status) => status,
        Ended::Stopped => 124,
        Ended::Failed(why, status) => {
            said.stderr.extend_from_slice(format!("python3: {why}\n").as_bytes());
            status
        }
    };
    Output { stdout: said.stdout, stderr: said.stderr, exit }
}

fn too_little(needed: usize, given: usize) -> String {
    let (needed, given) = (needed >> 20, given >> 20);
    format!("python3: needs {needed} MiB of memory to start and may have {given} MiB\n")
}

/// What a program is started with. Texts end at a NUL, so none may hold one.
fn guest(call: &Call, wake: &Wake) -> Guest {
    let text = |bytes: Vec<u8>| bytes.into_iter().filter(|byte| *byte != 0).collect::<Vec<u8>>();
    let args = call.args.iter().map(|arg| text(name::bytes(arg).into_owned()));
    let mut env: Vec<_> = call.env.iter().filter(|(key, _)| *key != "PWD").collect();
    env.sort();
    let variables = env.into_iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let variables = variables.chain([("PWD", call.cwd)]);
    let variable = |(key, value): (&str, &str)| {
        text([&name::bytes(key)[..], b"=", &name::bytes(value)].concat())
    };
    Guest {
        args: [b"python3".to_vec()].into_iter().chain(args).collect(),
        env: variables.map(variable).collect(),
        stdin: call.stdin.to_vec(),
        stdin_at: 0,
        said: Said { bytes_max: call.own.python.said_bytes_max, ..Said::default() },
        files: Files::new(call.view.clone()),
        clock: Clock::start(wake.clone()),
        limits: guest::limits(call.own.python.memory_bytes_max),
        refusal: None,
        end: None,
    }
}

enum Ended {
    Exited(i32),
    /// The script that called it is out of time or cancelled.
    Stopped,
    /// Why, and the exit status.
    Failed(String, i32),
}

/// Drives a program until it ends or shall not go on.
fn run(call: &Call, interpreter: &Interpreter, store: &mut Store<Guest>, wake: &Wake) -> Ended {
    let ready = store.set_fuel(u64::MAX);
    let ready = ready.and_then(|()| store.fuel_async_yield_interval(Some(LOOK_INSTRUCTIONS)));
    if let Err(error) = ready {
        return Ended::Failed(error.to_string(), 126);
    }
    let mut program = pin!(async {
        let instance = interpreter.start.instantiate_async(&mut *store).await?;
        let main = instance.get_typed_func::<(), i32>(&mut *store, "bashkit_run")?;
        main.call_async(store, ()).await
    });
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = program.as_mut().poll(&mut context) {
            return done.map_or_else(|error| ended(&error), Ended::Exited);
        }
        if call.stopped() {
            return Ended::Stopped;
        }
        if let Some(at) = wake.at() {
            std::thread::sleep(at.saturating_duration_since(Instant::now()).min(NAP));
        }
    }
}

fn ended(error: &wasmtime::Error) -> Ended {
    if let Some(end) = error.downcast_ref::<End>() {
        return match end {
            End::Exit(status) => Ended::Exited(*status),
            End::Output => Ended::Failed(format!("stopped: {end}"), AT_LIMIT),
        };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => {
            Ended::Failed("stopped: the interpreter's stack is full".into(), AT_LIMIT)
        }
        // What a C program does when it aborts.
        Some(Trap::UnreachableCodeReached) => Ended::Failed("the interpreter aborted".into(), 134),
        Some(trap) => Ended::Failed(format!("the interpreter failed: {trap}"), 134),
        None => Ended::Failed(format!("the interpreter failed: {error}"), 126),
    }
}
