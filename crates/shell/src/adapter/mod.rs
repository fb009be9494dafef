//! The only place that knows bashkit.
//!
//! bashkit is the shell language and most of the commands; [`files`] shows
//! it our tree, [`call`] shows it our commands. It is built without network,
//! host files and language runtimes, and nothing here adds them; of its crate
//! with CPython in it we take the bytes alone.

mod call;
#[cfg(feature = "python")]
pub(crate) mod cpython;
mod devices;
mod files;
mod memory;
mod stubs;

use crate::command::Command;
use crate::commands;
use crate::outcome::{Ended, Outcome};
use crate::own::Own;
use crate::settings::Settings;
use bashkit::{
    Bash, BuiltinRegistry, ExecOptions, ExecutionLimits, LimitExceeded, MemoryLimits,
    SessionLimits, StreamData,
};
use call::{OurOwn, Registered, Shared};
use files::Files;
use fractal_fs::Vfs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A shell that lives as long as its owner wants.
pub(crate) struct Session {
    bash: Bash,
    registry: BuiltinRegistry,
    shared: Shared,
    runtime: Driver,
    output_bytes_max: usize,
    memory_bytes_max: usize,
    /// What `set -o` switched on, which bashkit forgets after each script.
    options: Vec<&'static str>,
    /// Whether any script so far may have used `set`; looking is not free.
    may_set: bool,
}

/// Options of `set -o` that a session keeps, by the variables in which
/// bashkit holds them.
const OPTIONS: [(&str, &str); 11] = [
    ("SHOPT_a", "allexport"),
    ("SHOPT_e", "errexit"),
    ("SHOPT_E", "errtrace"),
    ("SHOPT_T", "functrace"),
    ("SHOPT_C", "noclobber"),
    ("SHOPT_f", "noglob"),
    ("SHOPT_u", "nounset"),
    ("SHOPT_P", "physical"),
    ("SHOPT_pipefail", "pipefail"),
    ("SHOPT_v", "verbose"),
    ("SHOPT_x", "xtrace"),
];

/// What drives bashkit's futures. A session may end inside a command of
/// another one, on a thread that drives that one; waiting is refused there,
/// and there is nothing to wait for.
struct Driver(Option<tokio::runtime::Runtime>);

impl Driver {
    fn block_on<F: Future>(&self, work: F) -> F::Output {
        self.0.as_ref().expect("it is taken when it is dropped").block_on(work)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Session {
    pub(crate) fn new(view: Vfs, settings: Settings) -> Session {
        let own = Own {
            user: settings.user.clone(),
            snapshots: Mutex::default(),
            last_words: Mutex::default(),
            #[cfg(feature = "python")]
            python: crate::python::Bounds {
                memory_bytes_max: settings.python_memory_bytes_max,
                said_bytes_max: settings.memory_bytes_max,
            },
            fork: settings.fork.clone(),
            run_native: settings.run_native.clone(),
        };
        let shared = Shared { view: view.clone(), own: Arc::new(own) };
        let registry = BuiltinRegistry::new();
        for command in commands::ALL {
            registry.insert(command.name, Arc::new(OurOwn { command, shared: shared.clone() }));
        }
        let mut builder = Bash::builder()
            .fs(Arc::new(Files { view, commands: registry.clone() }))
            .rootfs(false)
            .username(&settings.user)
            .hostname("fractal")
            .cwd(PathBuf::from(&settings.cwd))
            .limits(execution_limits(&settings))
            .memory_limits(memory_limits(&settings))
            .session_limits(SessionLimits::unlimited())
            .builtin_registry(registry.clone());
        for (key, value) in &settings.env {
            builder = builder.env(key, value);
        }
        let bash = builder.build();
        stubs::learn(|| bash.builtin_names());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime on this thread with nothing but a clock takes no resources");
        Session {
            bash,
            registry,
            shared,
            runtime: Driver(Some(runtime)),
            output_bytes_max: settings.output_bytes_max,
            memory_bytes_max: settings.memory_bytes_max,
            options: Vec::new(),
            may_set: false,
        }
    }

    pub(crate) fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.bash.cancellation_token()
    }

    pub(crate) fn register(&self, name: &str, command: Arc<dyn Command>) {
        let shared = self.shared.clone();
        self.registry.insert(name, Arc::new(Registered { name: name.into(), command, shared }));
    }

    pub(crate) fn set_env(&mut self, key: &str, value: &str) {
        self.bash.set_env(key, value);
    }

    pub(crate) fn cwd(&self) -> String {
        self.bash.shell_state_view().cwd.to_string_lossy().into_owned()
    }

    pub(crate) fn run(&mut self, script: &str, stdin: &[u8]) -> Outcome {
        self.bash.cancellation_token().store(false, Ordering::Relaxed);
        let (stdout, stderr) = (Kept::new(self.output_bytes_max), Kept::new(self.output_bytes_max));
        let options = ExecOptions::new().stdin(StreamData::from(stdin.to_vec()));
        let (out, err) = (stdout.clone(), stderr.clone());
        self.shared.last_words();
        // On the script's first line, so that its lines keep their numbers.
        let set: String = self.options.iter().map(|name| format!("set -o {name}; ")).collect();
        let script = format!("{set}{script}");
        let execution = self
            .bash
            .execute(&script)
            .options(options)
            .stdout_fn(move |bytes| std::future::ready(out.add(&bytes)))
            .stderr_fn(move |bytes| std::future::ready(err.add(&bytes)));
        let done = self.runtime.block_on(std::future::IntoFuture::into_future(execution));
        let too_much = stdout.is_cut() || stderr.is_cut();
        self.may_set |= ["set", "source", ". "].iter().any(|word| script.contains(word));
        if self.may_set {
            self.keep_options();
        }
        let out_of_memory =
            matches!(&done, Err(bashkit::Error::ResourceLimit(LimitExceeded::Memory(_))));
        if let (Err(_), Some(words)) = (&done, self.shared.last_words()) {
            // What does not fit is cut; the script is over already.
            let _ = (stdout.add(&words.stdout), stderr.add(&words.stderr));
        }
        let mut outcome = outcome(done, too_much, stdout, stderr);
        if outcome.ended != Ended::Exited {
            self.end_jobs();
        }
        if out_of_memory {
            for name in memory::make_room(&mut self.bash, self.memory_bytes_max) {
                outcome.stderr.extend_from_slice(format!("bash: forgot ${name}\n").as_bytes());
            }
        }
        outcome
    }

    /// What a stopped script left in the background would hold up the next
    /// one, which ends when all jobs have.
    fn end_jobs(&mut self) {
        self.bash.cancellation_token().store(false, Ordering::Relaxed);
        let kill = "builtin kill -9 $(builtin jobs -p) 2> /dev/null";
        // How it ends does not matter: there may be no job.
        let _ = self.runtime.block_on(self.bash.exec(kill));
    }

    fn keep_options(&mut self) {
        let variables = self.bash.shell_state_view().variables;
        let is_on = |name: &str| variables.get(name).is_some_and(|value| value == "1");
        let on = OPTIONS.iter().filter(|(variable, _)| is_on(variable));
        self.options = on.map(|(_, option)| *option).collect();
    }
}

/// Output up to a limit. Kept outside of bashkit, which forgets it when a
/// script is stopped.
#[derive(Clone)]
struct Kept(Arc<Mutex<(Vec<u8>, bool)>>, usize);

impl Kept {
    fn new(bytes_max: usize) -> Kept {
        Kept(Arc::default(), bytes_max)
    }

    /// An error of the one who takes output stops the script.
    fn add(&self, bytes: &[u8]) -> bashkit::Result<()> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.1.saturating_sub(kept.0.len());
        kept.1 |= bytes.len() > room;
        kept.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        match kept.1 {
            true => Err(bashkit::Error::Execution(self.too_much())),
            false => Ok(()),
        }
    }

    fn is_cut(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn too_much(&self) -> String {
        format!("more than {} bytes of output", self.1)
    }

    fn take(self) -> (Vec<u8>, bool) {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn outcome(
    done: bashkit::Result<bashkit::ExecResult>,
    too_much: bool,
    stdout: Kept,
    stderr: Kept,
) -> Outcome {
    let limit = Ended::Limit(stdout.too_much());
    let ((stdout, cut_out), (mut stderr, cut_err)) = (stdout.take(), stderr.take());
    let mut truncated = cut_out || cut_err;
    let (exit, ended) = match done {
        Ok(result) => {
            truncated |= result.stdout_truncated || result.stderr_truncated;
            (result.exit_code, Ended::Exited)
        }
        Err(_) if too_much => (limit.exit(), limit),
        Err(error) => {
            let (exit, ended, message) = failure(&error);
            stderr.extend_from_slice(message.as_bytes());
            (exit, ended)
        }
    };
    Outcome { stdout, stderr, exit, truncated, ended }
}

/// What an error of bashkit means for a script: its exit status, how it
/// ended, and what its standard error says last.
fn failure(error: &bashkit::Error) -> (i32, Ended, String) {
    use LimitExceeded::ExecutionBudget as Exhausted;
    use bashkit::{Error, ExecutionBudgetExceeded as Budget};
    let ended = match error {
        Error::Cancelled | Error::ResourceLimit(Exhausted(Budget::Cancelled)) => Ended::Cancelled,
        Error::ResourceLimit(LimitExceeded::Timeout(_) | Exhausted(Budget::Deadline { .. })) => {
            Ended::Timeout
        }
        Error::ResourceLimit(limit) => Ended::Limit(limit.to_string()),
        Error::Parse { .. } => return (2, Ended::Exited, format!("bash: {error}\n")),
        error => return (1, Ended::Exited, format!("bash: {error}\n")),
    };
    let message = match &ended {
        Ended::Timeout => "bash: timed out\n".into(),
        Ended::Limit(reason) => format!("bash: {reason}\n"),
        _ => String::new(),
    };
    (ended.exit(), ended, message)
}

/// More often than this no loop can turn in a second.
const TURNS_EACH_SECOND: u64 = 20_000_000;

/// Time and memory bound a script; counting its steps would only stop work
/// that is large. Depths guard the stack and stay as bashkit has them.
///
/// Loops are counted nevertheless: one of awk's whose body is empty looks at
/// no clock. What turns so often is out of time in any case.
fn execution_limits(settings: &Settings) -> ExecutionLimits {
    let turns = settings.time_max.as_secs().saturating_add(1).saturating_mul(TURNS_EACH_SECOND);
    let turns = usize::try_from(turns).unwrap_or(usize::MAX);
    // One byte more than is kept, so that we see it when there is too much.
    let output = settings.output_bytes_max.saturating_add(1);
    ExecutionLimits {
        max_work_units: u64::MAX,
        max_aggregate_input_bytes: u64::MAX,
        max_live_intermediate_bytes: settings.memory_bytes_max as u64,
        max_commands: usize::MAX,
        max_loop_iterations: turns,
        max_total_loop_iterations: turns,
        timeout: settings.time_max,
        max_parser_operations: 50_000_000,
        max_stdout_bytes: output,
        max_stderr_bytes: output,
        max_word_split_fields: 10_000_000,
        max_word_split_bytes: settings.memory_bytes_max,
        ..ExecutionLimits::default()
    }
}

fn memory_limits(settings: &Settings) -> MemoryLimits {
    MemoryLimits {
        max_variable_count: 1_000_000,
        max_total_variable_bytes: settings.memory_bytes_max,
        max_array_entries: 5_000_000,
        max_function_count: 100_000,
        max_function_body_bytes: settings.memory_bytes_max,
    }
}
