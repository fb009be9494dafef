//! What the engine asks of the jail: a command, a stack of layers, bounds.

use crate::living::{Living, living_file};
use crate::step::CPath;
use fractal_model::{Limits, Network, Tier};
use std::ffi::OsString;
use std::path::PathBuf;

/// One run, in the engine's words.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program and its arguments; the program is looked up in `PATH` of
    /// `env` inside the sandbox.
    pub command: Vec<OsString>,
    /// The whole environment of the program.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// The files it sees.
    pub stack: Stack,
    /// Hard bounds.
    pub limits: Limits,
    /// What it may reach.
    pub network: Network,
    /// Paths that appear empty.
    pub hidden: Vec<PathBuf>,
    /// Paths that cannot be written.
    pub read_only: Vec<PathBuf>,
    /// The tier to use; the caller has checked that the machine offers it.
    pub tier: Tier,
    /// Give it a terminal of its own.
    pub terminal: bool,
    /// Names the run's cgroup; letters, digits and dashes.
    pub label: String,
    /// A run that lives on the same top layer: share its files, network and
    /// shared memory instead of building anew.
    pub join: Option<Living>,
    /// Make a socket inside on which the caller answers; see [`door_path`].
    pub door: bool,
    /// What to leave behind should the caller die before the run is over.
    pub last_words: Option<LastWords>,
}

/// A file that appears, whole, when the caller is killed.
#[derive(Clone, Debug)]
pub struct LastWords {
    /// Where.
    pub path: PathBuf,
    /// Its content.
    pub text: Vec<u8>,
}

/// Where the top layer lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Top {
    /// `layers/<name>/tree`, kept after the run.
    Disk(String),
    /// Memory that is gone with the run.
    Memory {
        /// Bytes it may hold.
        size_bytes: u64,
    },
}

/// The files of a run: host at the bottom, sealed layers, one writable top.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The directory that holds all layers.
    pub layers_dir: PathBuf,
    /// Names of the sealed layers, nearest to the top first.
    pub sealed: Vec<String>,
    /// What is written.
    pub top: Top,
    /// The state directory: never visible inside.
    pub state_dir: PathBuf,
    /// The directory people work in; it gets the shortest way to its files.
    pub project: PathBuf,
    /// What is mounted over the clone.
    pub mounts: Vec<Placed>,
}

/// One mount of a template.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Where it appears.
    pub at: PathBuf,
    /// A directory of the host; `None` is scratch in the sandbox's layers.
    pub source: Option<PathBuf>,
    /// Whether it can be written.
    pub writable: bool,
}

/// Where the door of a run is inside. Runs that share a `/run` have one each.
pub fn door_path(label: &str) -> PathBuf {
    PathBuf::from(DOORS).join(format!("{label}.sock"))
}

pub(crate) const DOORS: &str = "/run/fractal";

impl Spec {
    /// Only a top on disk can be shared.
    pub(crate) fn living_file(&self) -> Option<PathBuf> {
        match &self.stack.top {
            Top::Disk(name) => Some(living_file(&self.stack.layers_dir, name, &self.label)),
            Top::Memory { .. } => None,
        }
    }
}

/// Turns a path into what system calls take.
pub(crate) fn c_path(path: &std::path::Path) -> Result<CPath, crate::JailError> {
    use std::os::unix::ffi::OsStrExt;
    CPath::new(path.as_os_str().as_bytes())
}
