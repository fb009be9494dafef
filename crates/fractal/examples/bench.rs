//! The stopwatch of `bench/run`: does one thing per line of standard input
//! and answers with one line of JSON that holds how long it took.
//!
//! Everything that is compared is timed here, other programs too, so that the
//! same clock and the same parent process stand behind every figure. Which
//! thing comes next is the script's choice; that is how runs are interleaved.
//! `bench STATE_DIR` is started by the scripts, not by people.

use fractal::model::{Action, Limits, Network, Policy, Run, Tier};
use fractal::{Caller, Engine, Input, Output, RunIo, Streams};
use fractal_jail::{Spec, Stack, Top};
use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

type Outcome = Result<Value, Box<dyn Error>>;

/// One line of input.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Request {
    /// Another program: fork, exec, wait.
    Exec { argv: Vec<String>, cwd: Option<PathBuf> },
    /// The jail alone, without an engine.
    Jail { command: Vec<String> },
    /// `run` through the engine.
    Run { run: Run, cwd: Option<PathBuf> },
    /// Any other verb through the engine.
    Apply { action: Action, cwd: Option<PathBuf> },
    /// Waits until nothing of finished runs is left to tear down.
    Settle,
    /// So many sandboxes, alive until this process ends: through the engine
    /// with a thread each, or through the jail from one thread.
    Hold { count: usize, engine: bool },
    /// So many runs at once, each of which must answer with its number.
    Many { count: usize },
}

struct Bench {
    engine: Engine,
    home: PathBuf,
    tier: Tier,
    runs: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let home = PathBuf::from(std::env::args().nth(1).ok_or("bench STATE_DIR")?);
    let engine = Engine::open(&home)?;
    let tier = fractal_jail::probe::best_tier(&home)?;
    let mut bench = Bench { engine, home, tier, runs: 0 };
    let bench_ready = json!({ "tier": tier.name() });
    println!("{bench_ready}");
    for line in std::io::stdin().lock().lines() {
        let answer = serde_json::from_str(&line?)
            .map_err(Into::into)
            .and_then(|request| bench.answer(request))
            .unwrap_or_else(|error| json!({ "error": error.to_string() }));
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    fractal_jail::settle();
    Ok(())
}

impl Bench {
    fn answer(&mut self, request: Request) -> Outcome {
        match request {
            Request::Exec { argv, cwd } => exec(&argv, cwd.as_deref()),
            Request::Jail { command } => self.jail(&command),
            Request::Run { run, cwd } => {
                let caller = caller(cwd);
                let start = Instant::now();
                let reply = self.engine.run(&caller, run, RunIo::captured())?;
                let ns = start.elapsed().as_nanos() as u64;
                Ok(json!({
                    "ns": ns, "exit": reply.exit, "outcome": reply.outcome, "sandbox": reply.sandbox,
                    "stdout": reply.stdout, "changes": reply.changes.len(), "usage": reply.usage,
                }))
            }
            Request::Apply { action, cwd } => {
                let caller = caller(cwd);
                let start = Instant::now();
                let reply = self.engine.apply(&caller, action)?;
                Ok(json!({ "ns": start.elapsed().as_nanos() as u64, "reply": reply }))
            }
            Request::Settle => {
                let start = Instant::now();
                fractal_jail::settle();
                Ok(json!({ "ns": start.elapsed().as_nanos() as u64 }))
            }
            Request::Hold { count, engine: true } => self.hold(count),
            Request::Hold { count, engine: false } => self.hold_jailed(count),
            Request::Many { count } => self.many(count),
        }
    }

    fn spec(&mut self, command: &[String]) -> Result<Spec, Box<dyn Error>> {
        self.runs += 1;
        let here = std::env::current_dir()?;
        Ok(Spec {
            command: command.iter().map(Into::into).collect(),
            env: std::env::vars_os().collect(),
            cwd: here.clone(),
            stack: Stack {
                layers_dir: self.home.join("layers"),
                sealed: vec![],
                top: Top::Memory { size_bytes: 1 << 30 },
                state_dir: self.home.clone(),
                project: here,
                mounts: vec![],
            },
            limits: Limits::default(),
            network: Network::None,
            hidden: vec![],
            read_only: vec![],
            tier: self.tier,
            terminal: false,
            join: None,
            door: false,
            last_words: None,
            label: format!("bench-{}-{}", std::process::id(), self.runs),
        })
    }

    fn jail(&mut self, command: &[String]) -> Outcome {
        let spec = self.spec(command)?;
        let streams = Streams {
            stdin: Input::Null,
            stdout: Output::Capture(4096),
            stderr: Output::Capture(4096),
            interactive: false,
            caller: None,
        };
        let start = Instant::now();
        let report = fractal_jail::run(&spec, streams)?;
        let ns = start.elapsed().as_nanos() as u64;
        Ok(json!({ "ns": ns, "ended": format!("{:?}", report.ended) }))
    }

    /// Each program says one byte when it is up; then all of them sleep.
    fn hold(&self, count: usize) -> Outcome {
        let (mut ups, up) = pipe()?;
        // The threads run until the process is killed, so what they borrow
        // must live as long: an engine of their own.
        let engine = Arc::new(Engine::open(&self.home)?);
        let start = Instant::now();
        for _ in 0..count {
            let (engine, stdout) = (Arc::clone(&engine), up.try_clone()?);
            let sleeper = move || {
                let null = || File::open("/dev/null").map(OwnedFd::from);
                let (Ok(stdin), Ok(stderr)) = (null(), null()) else { return };
                let command = words(&["sh", "-c", "printf u; exec sleep 3600"]);
                let run = Run { command, discard: true, ..Run::default() };
                let io = RunIo::streaming(stdin, stdout.into(), stderr);
                if let Err(error) = engine.run(&caller(None), run, io) {
                    eprintln!("a sandbox could not start: {error}");
                }
            };
            std::thread::Builder::new().stack_size(256 * 1024).spawn(sleeper)?;
        }
        drop(up);
        let mut seen = 0;
        while seen < count {
            match ups.read(&mut [0u8; 4096])? {
                0 => return Err("a sandbox ended early".into()),
                bytes => seen += bytes,
            }
        }
        // Closing our end would end the sandboxes with a broken pipe only if
        // they wrote again, which they do not; it stays open all the same.
        std::mem::forget(ups);
        Ok(json!({ "ns": start.elapsed().as_nanos() as u64 }))
    }

    fn hold_jailed(&mut self, count: usize) -> Outcome {
        let start = Instant::now();
        for _ in 0..count {
            let mut spec = self.spec(&words(&["sleep", "3600"]))?;
            spec.limits.pids = Some(4096);
            let null =
                || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
            let mut running = fractal_jail::spawn(&spec, Some([null()?, null()?, null()?]))?;
            running.wait_started()?;
            std::mem::forget(running);
        }
        Ok(json!({ "ns": start.elapsed().as_nanos() as u64 }))
    }

    fn many(&self, count: usize) -> Outcome {
        let start = Instant::now();
        let one = |number: usize| -> Result<(), String> {
            let command = words(&["sh", "-c", "echo $0", &number.to_string()]);
            let run = Run { command, discard: true, ..Run::default() };
            let reply = self.engine.run(&caller(None), run, RunIo::captured());
            let reply = reply.map_err(|error| error.to_string())?;
            let right = reply.exit == 0 && reply.stdout == format!("{number}\n");
            right
                .then_some(())
                .ok_or_else(|| format!("{number}: exit {} {:?}", reply.exit, reply.stdout))
        };
        let wrong: Vec<String> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..count).map(|number| scope.spawn(move || one(number))).collect();
            let results = runs.into_iter().map(|run| run.join().unwrap_or(Err("panic".into())));
            results.filter_map(Result::err).collect()
        });
        let ns = start.elapsed().as_nanos() as u64;
        Ok(json!({ "ns": ns, "right": count - wrong.len(), "wrong": wrong }))
    }
}

fn exec(argv: &[String], cwd: Option<&Path>) -> Outcome {
    let (program, rest) = argv.split_first().ok_or("nothing to execute")?;
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    let start = Instant::now();
    let status = command.status()?;
    Ok(json!({ "ns": start.elapsed().as_nanos() as u64, "exit": status.code() }))
}

fn caller(cwd: Option<PathBuf>) -> Caller {
    let here = cwd.or_else(|| std::env::current_dir().ok()).unwrap_or_else(|| "/".into());
    Caller {
        environment: std::env::vars_os().collect(),
        policy: Policy::default(),
        ..Caller::owner(here)
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn pipe() -> Result<(std::io::PipeReader, std::io::PipeWriter), std::io::Error> {
    std::io::pipe()
}
