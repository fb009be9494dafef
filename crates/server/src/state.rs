//! What every request sees of the server.

use crate::admission::Admission;
use crate::asker::Doorkeeper;
use crate::e2b::Desk;
use crate::idempotent::Answers;
use crate::inputs::Inputs;
use crate::metrics::{Family, Metrics, Now};
use crate::otlp::Spans;
use crate::swerex;
use fractal::Engine;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// Handed to every handler; cheap to clone.
pub type Shared = Arc<State>;

/// The server while it lives.
pub struct State {
    pub engine: Arc<Engine>,
    pub project: Project,
    pub doorkeeper: Doorkeeper,
    pub admission: Admission,
    pub answers: Answers,
    /// What running programs read that are told as events.
    pub inputs: Inputs,
    pub metrics: Metrics,
    /// The description of the interface, written when somebody asks for it.
    pub openapi: LazyLock<String>,
    /// The run whose door this is, where it is one.
    pub inside: Option<fractal::Grant>,
    /// Where spans go, when somebody wants them.
    pub spans: Option<Spans>,
    /// What clients of E2B were promised.
    pub e2b: Desk,
    /// Where clients of SWE-ReX work.
    pub swerex: swerex::Desk,
    /// Whether agents see what the protocol's conformance suite looks for.
    pub mcp_fixtures: bool,
    ending: AtomicBool,
}

/// The directory whose clones are handed out, with its settings.
pub struct Project {
    pub directory: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    /// The user's own settings, read anew with those of the directory.
    pub user_file: Option<PathBuf>,
}

impl State {
    pub fn new(
        engine: Arc<Engine>,
        project: Project,
        doorkeeper: Doorkeeper,
        admission: Admission,
    ) -> State {
        State {
            e2b: Desk::new(engine.home()),
            engine,
            project,
            doorkeeper,
            admission,
            answers: Answers::default(),
            inputs: Inputs::default(),
            swerex: swerex::Desk::default(),
            metrics: Metrics::default(),
            openapi: LazyLock::new(|| crate::openapi().to_string()),
            inside: None,
            spans: None,
            mcp_fixtures: false,
            ending: AtomicBool::new(false),
        }
    }

    /// Everything that can be counted, as it is now. Reads the state directory.
    pub fn numbers(&self) -> fractal::Result<Vec<Family>> {
        let census = self.engine.census()?;
        let mut families = self.metrics.families(&Now {
            idle: census.sandboxes.saturating_sub(census.running),
            running: census.running,
            volumes: census.volumes,
            layer_bytes: self.admission.layer_bytes().unwrap_or(census.layer_bytes),
            records: census.records,
            active: self.admission.active() as u64,
            waiting: self.admission.waiting() as u64,
            starts: fractal::starts(),
        });
        if let Some(spans) = &self.spans {
            families.push(Family::counters(
                "fractal_otlp_spans_total",
                "Spans by what became of them on the way to the collector.",
                "end",
                spans.tally().numbers(),
            ));
        }
        Ok(families)
    }

    /// From now on no new work is taken.
    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }
}
