//! Tools of a Python program: the verbs, what the project describes, and
//! callables, all called by the engine's one way.
//!
//! Inputs and answers cross as JSON; what a callable's arguments look like is
//! worked out in `python/fractal/tools.py`.

use crate::engine::{Engine, Environment, json, read};
use crate::errors::of_engine;
use crate::interrupt::interruptible;
use crate::provider::words;
use fractal::model::{Code, ToolCall, ToolInfo, ToolReply, Verb};
use fractal::tools::{Options, Tool, ToolRegistry};
use fractal::{Caller, Error};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use serde_json::Value;

/// Tools by name.
#[pyclass(frozen, module = "fractal")]
pub struct Tools(ToolRegistry);

impl Tools {
    /// Carries out calls; Ctrl-C calls them off.
    fn carry_out(
        &self,
        py: Python<'_>,
        engine: &Engine,
        environment: Environment,
        calls: &[ToolCall],
        options: &Options,
    ) -> PyResult<Vec<ToolReply>> {
        let caller = caller(py, engine, Verb::Tool, environment)?;
        let (registry, _) = self.0.with(&caller);
        let work = || registry.call_many(&engine.engine, &caller, calls, options);
        let done = interruptible(py, work, || options.cancel.cancel())?;
        done.map_err(|error| of_engine(py, error))
    }
}

#[pymethods]
impl Tools {
    /// The verbs of the engine.
    #[new]
    fn new() -> Tools {
        Tools(ToolRegistry::built_in())
    }

    /// Adds a callable. It gets its input as JSON and answers with JSON.
    fn register(&self, py: Python<'_>, info: &str, code: Py<PyAny>) -> PyResult<()> {
        let info: ToolInfo = read(info)?;
        if !code.bind(py).is_callable() {
            let why = format!("the tool {:?} cannot be called", info.name);
            return Err(PyTypeError::new_err(why));
        }
        let call = move |call: &ToolCall| answer(&code, call);
        let tool = Tool {
            output: info.output,
            idempotent: info.idempotent,
            read_only: info.read_only,
            destructive: info.destructive,
            time_ms: info.time_ms,
            ..Tool::function(info.name, info.description, info.input, call)
        };
        self.0.register(tool).map_err(|error| of_engine(py, error))
    }

    /// Takes a tool away; whether there was one.
    fn unregister(&self, name: &str) -> bool {
        self.0.unregister(name)
    }

    /// What may be used in a sandbox, or in a new one, and which descriptions
    /// cannot be read.
    fn list(&self, py: Python<'_>, engine: &Engine, sandbox: Option<&str>) -> PyResult<String> {
        let caller = caller(py, engine, Verb::List, Environment::new())?;
        let listed = py.detach(|| engine.engine.tools_of(&self.0, &caller, sandbox));
        json(py, &listed.map_err(|error| of_engine(py, error))?)
    }

    /// One call. What goes wrong is raised.
    fn call(
        &self,
        py: Python<'_>,
        engine: &Engine,
        call: &str,
        environment: Environment,
    ) -> PyResult<String> {
        let calls = [read(call)?];
        let options = Options::default();
        let mut replies = self.carry_out(py, engine, environment, &calls, &options)?;
        let reply = replies.pop().map_or_else(
            || Err(Error::internal("a call was left without an answer")),
            ToolReply::result,
        );
        json(py, &reply.map_err(|error| of_engine(py, error))?)
    }

    /// Several calls at once. The answers have their order, and what goes wrong
    /// stands in them.
    fn call_many(
        &self,
        py: Python<'_>,
        engine: &Engine,
        calls: &str,
        environment: Environment,
        jobs: Option<usize>,
        tries: Option<u32>,
    ) -> PyResult<String> {
        let calls: Vec<ToolCall> = read(calls)?;
        let usual = Options::default();
        let options = Options { jobs, tries: tries.unwrap_or(usual.tries), ..usual };
        json(py, &self.carry_out(py, engine, environment, &calls, &options)?)
    }
}

fn caller(
    py: Python<'_>,
    engine: &Engine,
    verb: Verb,
    environment: Environment,
) -> PyResult<Caller> {
    engine.caller(verb, environment).map_err(|error| of_engine(py, error))
}

/// What a callable says, in a thread that the engine made for it.
fn answer(code: &Py<PyAny>, call: &ToolCall) -> fractal::Result<Value> {
    let failed = |why: String| Error::new(Code::Failed, format!("`{}`: {why}", call.tool));
    let answered = Python::try_attach(|py| {
        let said = code.bind(py).call1((call.input.to_string(),));
        let said = said.and_then(|said| said.extract::<String>());
        said.map_err(|error| words(py, &error))
    });
    let text = answered.unwrap_or_else(|| Err("Python is ending".to_owned())).map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| failed(format!("it answered no JSON: {error}")))
}
