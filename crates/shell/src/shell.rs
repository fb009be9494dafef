//! A shell session: what the rest of fractal sees.

use crate::adapter::Session;
use crate::command::Command;
use crate::name;
use crate::outcome::Outcome;
use crate::settings::Settings;
use fractal_fs::{Fault, FsError, Kind, Vfs};
use fractal_model::EntryKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The stack that a script runs on. bashkit goes down its own stack for every
/// level of functions, groups and substitutions, and commands for every level
/// of directories; the stack of whoever calls may be small, and running out
/// of it would end the process. Only what is touched takes memory.
const STACK_BYTES: usize = 256 << 20;

/// A shell over a view. It keeps directory, variables, functions, options
/// and aliases from one [`Shell::run`] to the next; files are the view's.
pub struct Shell {
    view: Vfs,
    session: Session,
}

/// Stops the script that a shell runs, from any thread.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<AtomicBool>);

impl Canceller {
    /// Stops the script that runs now, within some hundredths of a second.
    /// Does nothing if none runs; the next one is not affected.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Shell {
    /// A new session. Other handles of the view see what it writes.
    pub fn new(view: Vfs, settings: Settings) -> Shell {
        Shell { session: Session::new(view.clone(), settings), view }
    }

    /// Runs a script with some standard input until it ends, is stopped or
    /// hits a limit. Blocks this thread, which must not be one that drives
    /// async work.
    pub fn run(&mut self, script: &str, stdin: &[u8]) -> Outcome {
        self.on_large_stack(|session| session.run(script, stdin))
    }

    fn on_large_stack<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let session = &mut self.session;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("shell".into())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || work(session))
                .expect("a thread can be started");
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The directory that the next script starts in.
    pub fn cwd(&self) -> String {
        self.session.cwd()
    }

    /// Goes to a directory, which must be there.
    pub fn set_cwd(&mut self, path: &str) -> Result<(), FsError> {
        let place = name::bytes(path);
        if self.view.stat(&place)?.kind != EntryKind::Directory {
            return Err(Fault::new(Kind::NotADirectory).at(&place));
        }
        let quoted = path.replace('\'', "'\\''");
        self.run(&format!("builtin cd -- '{quoted}'"), b"");
        Ok(())
    }

    /// Sets and exports a variable.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.session.set_env(name, value);
    }

    /// A handle that stops what runs.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.session.cancel_flag())
    }

    /// Makes a command known by a name, in place of one of that name. Shell
    /// functions still come first.
    pub fn register(&self, name: &str, command: impl Command + 'static) {
        self.session.register(name, Arc::new(command));
    }

    /// The view it works on.
    pub fn view(&self) -> &Vfs {
        &self.view
    }
}
