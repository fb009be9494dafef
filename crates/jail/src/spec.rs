//! What the engine asks of the jail: a command, a stack of layers, bounds.

use crate::step::CPath;
use fractal_model::{Limits, Network, Tier};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

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

/// The namespaces in [`NAMESPACES`] of a living run. Holding them keeps its
/// mounts alive, also when the run itself ends meanwhile.
#[derive(Clone, Debug)]
pub struct Living(pub(crate) Arc<[OwnedFd; 5]>);

/// Names and kinds of the namespaces that runs can share.
pub const NAMESPACES: [(&str, i32); 5] = [
    ("user", libc::CLONE_NEWUSER),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
    ("mnt", libc::CLONE_NEWNS),
];

impl From<[OwnedFd; 5]> for Living {
    fn from(fds: [OwnedFd; 5]) -> Living {
        Living(Arc::new(fds))
    }
}

impl Living {
    pub(crate) fn raw(&self) -> [RawFd; 5] {
        self.0.each_ref().map(AsRawFd::as_raw_fd)
    }

    /// Takes hold of what a living run announced; `None` when it is gone.
    pub fn open(layers_dir: &std::path::Path, layer: &str, label: &str) -> Option<Living> {
        let text = std::fs::read_to_string(living_file(layers_dir, layer, label)).ok()?;
        let mut numbers = text.split_whitespace().map_while(|word| word.parse::<i32>().ok());
        let monitor = numbers.next()?;
        // A pid from a file may belong to anybody by now.
        let name = std::fs::read_to_string(format!("/proc/{monitor}/comm")).ok()?;
        if name.trim() != "fractal-monitor" {
            return None;
        }
        let open = |fd| Some(std::fs::File::open(format!("/proc/{monitor}/fd/{fd}")).ok()?.into());
        let fds = numbers.map(open).collect::<Option<Vec<OwnedFd>>>()?;
        Some(Living(Arc::new(<[OwnedFd; 5]>::try_from(fds).ok()?)))
    }
}

/// Where a run announces itself while it lives.
fn living_file(layers_dir: &std::path::Path, layer: &str, label: &str) -> PathBuf {
    layers_dir.join(layer).join(format!("living-{label}"))
}

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
