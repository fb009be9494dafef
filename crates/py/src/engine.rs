//! The engine's one door: actions and replies as JSON.
//!
//! What a sandbox can do stands in `python/fractal/sandbox.py`, in the words
//! of `fractal::Action`; here is only who asks, from where, and how to wait.

use crate::data::Data;
use crate::errors::of_engine;
use crate::interrupt::interruptible;
use crate::path::Place;
use crate::running::Running;
use crate::vfs::Vfs;
use fractal::model::{Action, Verb};
use fractal::{Caller, Config, DiffFormat, Error, Input, Run, RunIo};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A state directory, and who asks from where.
#[pyclass(frozen, module = "fractal")]
pub struct Engine {
    pub(crate) engine: Arc<fractal::Engine>,
    directory: PathBuf,
    who: String,
    settings: Option<PathBuf>,
}

/// Variables of the caller, as Python gives them.
pub type Environment = Vec<(Vec<u8>, Vec<u8>)>;

impl Engine {
    /// The caller, with the settings that the verb may not go on without.
    pub(crate) fn caller(&self, verb: Verb, environment: Environment) -> Result<Caller, Error> {
        let user = self.settings.as_deref();
        let config = match verb.needs_settings() {
            true => Config::load(&self.directory, user)?,
            false => Config::load_sound(&self.directory, user).0,
        };
        let own = |(name, value)| (OsString::from_vec(name), OsString::from_vec(value));
        Ok(Caller {
            who: self.who.clone(),
            environment: environment.into_iter().map(own).collect(),
            config,
            ..Caller::owner(&self.directory)
        })
    }

    /// Runs, and ends what runs when a signal's handler raises.
    fn run_with(
        &self,
        py: Python<'_>,
        run: Run,
        environment: Environment,
        io: impl FnOnce() -> RunIo + Send,
    ) -> PyResult<String> {
        let sandbox = run.sandbox.clone();
        let caller = self.caller(Verb::Run, environment).map_err(|error| of_engine(py, error))?;
        let work = || self.engine.run(&caller, run, io());
        let call_off = || {
            if let Some(sandbox) = &sandbox {
                // One that is over already needs no end.
                let _ = self.engine.stop(&caller, sandbox);
            }
        };
        let reply = interruptible(py, work, call_off)?.map_err(|error| of_engine(py, error))?;
        json(py, &reply)
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (home, directory, *, who = "owner", settings = None))]
    fn new(
        py: Python<'_>,
        home: Place,
        directory: Place,
        who: &str,
        settings: Option<Place>,
    ) -> PyResult<Engine> {
        let engine = py.detach(|| fractal::Engine::open(home.host()));
        Ok(Engine {
            engine: Arc::new(engine.map_err(|error| of_engine(py, error))?),
            directory: directory.host().to_owned(),
            who: who.to_owned(),
            settings: settings.map(|file| file.host().to_owned()),
        })
    }

    /// Carries out an action, and returns its reply.
    fn apply(&self, py: Python<'_>, action: &str, environment: Environment) -> PyResult<String> {
        let action: Action = read(action)?;
        let reply = py.detach(|| {
            let caller = self.caller(action.verb(), environment)?;
            self.engine.apply(&caller, action)
        });
        json(py, &reply.map_err(|error| of_engine(py, error))?)
    }

    /// Carries out a run with some standard input.
    fn run(
        &self,
        py: Python<'_>,
        run: &str,
        environment: Environment,
        stdin: Option<Data>,
    ) -> PyResult<String> {
        let input = stdin.map_or(Input::Null, |data| Input::Bytes(data.0.to_vec()));
        self.run_with(py, read(run)?, environment, || RunIo::capturing(input))
    }

    /// Begins a run whose input and output are pipes.
    fn begin(&self, py: Python<'_>, run: &str, environment: Environment) -> PyResult<Running> {
        let run: Run = read(run)?;
        let caller = self.caller(Verb::Run, environment).map_err(|error| of_engine(py, error))?;
        let engine = self.engine.clone();
        Ok(Running::begin(move |io| engine.run(&caller, run, io))?)
    }

    /// Makes a sandbox, as a run would, and runs nothing.
    fn make(&self, py: Python<'_>, run: &str, environment: Environment) -> PyResult<String> {
        let run: Run = read(run)?;
        let made = py.detach(|| {
            let caller = self.caller(Verb::Run, environment)?;
            self.engine.make(&caller, &run)
        });
        json(py, &made.map_err(|error| of_engine(py, error))?)
    }

    /// Opens a file of a sandbox, read without a program; the descriptor is
    /// the caller's.
    fn open_file(&self, py: Python<'_>, sandbox: &str, path: Place) -> PyResult<RawFd> {
        let opened = py.detach(|| {
            let caller = self.caller(Verb::Diff, Environment::new())?;
            self.engine.open_file(&caller, sandbox, path.host())
        });
        Ok(opened.map_err(|error| of_engine(py, error))?.file.into_raw_fd())
    }

    /// Puts what a file of the host holds into a sandbox.
    fn put_file(
        &self,
        py: Python<'_>,
        sandbox: &str,
        path: Place,
        content: Place,
        executable: bool,
    ) -> PyResult<String> {
        let content = File::open(content.host())?;
        let put = py.detach(|| {
            let caller = self.caller(Verb::Copy, Environment::new())?;
            self.engine.put_file(&caller, sandbox, path.host(), content, executable)
        });
        json(py, &put.map_err(|error| of_engine(py, error))?)
    }

    /// Deletes a file of a sandbox, and a directory if that is meant.
    fn delete_file(
        &self,
        py: Python<'_>,
        sandbox: &str,
        path: Place,
        recursive: bool,
    ) -> PyResult<String> {
        let deleted = py.detach(|| {
            let caller = self.caller(Verb::Copy, Environment::new())?;
            self.engine.delete_file(&caller, sandbox, path.host(), recursive)
        });
        json(py, &deleted.map_err(|error| of_engine(py, error))?)
    }

    /// Lists a directory of a sandbox, from behind ``after`` on.
    fn list_files(
        &self,
        py: Python<'_>,
        sandbox: &str,
        path: Place,
        after: Option<&str>,
        limit: usize,
    ) -> PyResult<String> {
        let listed = py.detach(|| {
            let caller = self.caller(Verb::Diff, Environment::new())?;
            self.engine.list_files(&caller, sandbox, path.host(), after, limit)
        });
        json(py, &listed.map_err(|error| of_engine(py, error))?)
    }

    /// Every setting that applies in the directory, and where it comes from.
    fn settings(&self, py: Python<'_>) -> PyResult<String> {
        let settings = Config::load(&self.directory, self.settings.as_deref())
            .and_then(|config| config.settings());
        json(py, &settings.map_err(|error| of_engine(py, error))?)
    }

    /// Carries out a run whose work is a callable that is given the sandbox's
    /// files. What it raises is raised again, after what it did was kept.
    fn edit(
        &self,
        py: Python<'_>,
        run: &str,
        environment: Environment,
        work: Py<PyAny>,
    ) -> PyResult<String> {
        let (told, outcome) = std::sync::mpsc::channel();
        let code = move |view: &fractal_fs::Vfs| {
            let done = Python::try_attach(|py| {
                let view = Py::new(py, Vfs::of(view.clone()))?;
                work.bind(py).call1((view,)).map(drop)
            });
            // Whoever asked is waiting on the other side.
            let _ = told.send(done.unwrap_or(Ok(())));
        };
        let reply =
            self.run_with(py, read(run)?, environment, || RunIo::working(Box::new(code)))?;
        outcome.try_recv().unwrap_or(Ok(()))?;
        Ok(reply)
    }

    /// What a sandbox shows now. What is written into the view stays there.
    fn view(&self, py: Python<'_>, sandbox: &str) -> PyResult<Vfs> {
        let view = py.detach(|| {
            let caller = self.caller(Verb::Copy, Environment::new())?;
            self.engine.view(&caller, sandbox)
        });
        view.map(Vfs::of).map_err(|error| of_engine(py, error))
    }

    /// What a sandbox changed, as a patch; ``everything`` also outside of its
    /// directory.
    fn patch<'py>(
        &self,
        py: Python<'py>,
        sandbox: &str,
        since: Option<&str>,
        everything: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let format = if everything { DiffFormat::PatchAll } else { DiffFormat::Patch };
        let written = py.detach(|| {
            let caller = self.caller(Verb::Diff, Environment::new())?;
            let mut out = Vec::new();
            self.engine.write_diff(&caller, Some(sandbox), since, format, &mut out)?;
            Ok(out)
        });
        let written = written.map_err(|error| of_engine(py, error))?;
        Ok(PyBytes::new(py, &written))
    }

    /// Ends what has begun to run in a sandbox, without waiting for it.
    fn stop(&self, py: Python<'_>, sandbox: &str) -> PyResult<()> {
        let stopped = py.detach(|| {
            let caller = self.caller(Verb::Drop, Environment::new())?;
            self.engine.stop(&caller, sandbox)
        });
        stopped.map_err(|error| of_engine(py, error))
    }

    /// Waits until finished runs are cleaned up to the last mount.
    fn settle(&self, py: Python<'_>) {
        py.detach(|| self.engine.settle());
    }
}

pub fn read<T: serde::de::DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub fn json(py: Python<'_>, reply: &impl serde::Serialize) -> PyResult<String> {
    let text = serde_json::to_string(reply);
    text.map_err(|error| of_engine(py, Error::internal(format!("cannot write JSON: {error}"))))
}
