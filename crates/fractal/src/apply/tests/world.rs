//! A tree to write into, and short words for jobs and what a tree holds.

use crate::apply::{Content, Done, Job, New, Seen, Step, What, apply};
use crate::view::path_of;
use crate::{Action, Caller, Engine, Reply};
use fractal_jail::layer::View;
use fractal_model::{PromoteReply, RecordBody, Result, SandboxPath};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub struct World {
    pub dir: Place,
    pub engine: Engine,
    pub root: PathBuf,
}

/// A directory of this test, or one that another process takes care of.
pub enum Place {
    Own(tempfile::TempDir),
    Theirs(PathBuf),
}

impl Place {
    pub fn path(&self) -> &Path {
        match self {
            Place::Own(dir) => dir.path(),
            Place::Theirs(path) => path,
        }
    }
}

/// What a path shall become.
#[derive(Clone, Debug)]
pub enum Want {
    File(&'static str),
    Dir,
    Link(&'static str),
    Gone,
    Mode(u32),
}

pub const TIME_NS: i64 = 1_600_000_000_123_456_789;

impl World {
    pub fn new() -> World {
        World::below(&std::env::temp_dir())
    }

    /// On memory where there is some: thousands of rounds in little time.
    pub fn fast() -> World {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { World::below(memory) } else { World::new() }
    }

    pub fn below(place: &Path) -> World {
        let dir = tempfile::tempdir_in(place).expect("a temporary directory");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("it is new");
        let engine = Engine::open(&dir.path().join("home")).expect("an empty home opens");
        World { dir: Place::Own(dir), engine, root }
    }

    /// The state directory on a disk, the tree in memory; the directory that
    /// is returned goes with the test.
    pub fn split() -> Option<(World, tempfile::TempDir)> {
        let memory = Path::new("/dev/shm");
        let other = tempfile::tempdir().expect("a temporary directory");
        let dev = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
        if dev(memory).is_none() || dev(memory) == dev(other.path()) {
            eprintln!("skipped: no second filesystem");
            return None;
        }
        Some((World::with_home(memory, other.path()), other))
    }

    /// With its state directory elsewhere.
    fn with_home(place: &Path, home: &Path) -> World {
        let dir = tempfile::tempdir_in(place).expect("a temporary directory");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("it is new");
        std::os::unix::fs::symlink(home.join("home"), dir.path().join("home")).expect("a link");
        let engine = Engine::open(&home.join("home")).expect("an empty home opens");
        World { dir: Place::Own(dir), engine, root }
    }

    /// One that exists already, its state directory not opened yet.
    pub fn at(dir: &Path) -> World {
        let engine = Engine::at(&dir.join("home")).expect("the home exists");
        World { dir: Place::Theirs(dir.to_owned()), engine, root: dir.join("root") }
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// As a new process would open it.
    pub fn reopen(&mut self) {
        self.engine = Engine::open(&self.home()).expect("it opens again");
    }

    pub fn path(&self, name: &str) -> SandboxPath {
        path_of(&self.root.join(name)).expect("a path")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("directories are made");
        fs::write(path, text).expect("it is written");
    }

    pub fn see(&self, name: &str) -> Option<Seen> {
        use rustix::io::Errno;
        // Without the fences of the real one: a thousand of these in each of
        // thousands of rounds are most of a test's time.
        match rustix::fs::lstat(self.root.join(name)) {
            Ok(stat) => Some(Seen::of(&stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(errno) => panic!("{name}: {errno}"),
        }
    }

    pub fn step(&self, name: &str, want: &Want) -> Step {
        let old = self.see(name);
        let new =
            |mode, what| Some(New { mode, owner: None, mtime_ns: TIME_NS, noted: None, what });
        let same = |old: &Option<Seen>| match old {
            Some(old) if old.kind == fractal_model::EntryKind::Directory => What::Directory,
            _ => What::File(Content::Same),
        };
        let new = match want {
            Want::File(text) => new(0o644, What::File(Content::Bytes(text.as_bytes().to_vec()))),
            Want::Dir => new(0o755, What::Directory),
            Want::Link(target) => new(0o777, What::Symlink(target.as_bytes().to_vec())),
            Want::Mode(mode) => new(*mode, same(&old)),
            Want::Gone => None,
        };
        Step { path: self.path(name), old, new }
    }

    pub fn job(&self, steps: Vec<Step>) -> Job<'static> {
        Job { root: self.root.clone(), steps, view: None, record: body(), facts: None }
    }

    pub fn wants(&self, list: &[(&str, Want)]) -> Job<'static> {
        self.job(list.iter().map(|(name, want)| self.step(name, want)).collect())
    }

    pub fn apply(&self, list: &[(&str, Want)]) -> Result<Done> {
        apply(&self.engine, self.wants(list))
    }

    pub fn apply_view(&self, steps: Vec<Step>, view: &View) -> Result<Done> {
        let job =
            Job { root: self.root.clone(), steps, view: Some(view), record: body(), facts: None };
        apply(&self.engine, job)
    }

    pub fn undo(&self, id: Option<&str>) -> Result<PromoteReply> {
        let action =
            Action::Undo { promotion: id.map(str::to_owned), only: Vec::new(), dry_run: false };
        match self.engine.apply(&Caller::owner(&self.root), action)? {
            Reply::Promote(reply) => Ok(*reply),
            other => panic!("undo answered {other:?}"),
        }
    }

    /// The whole tree: kind, mode, content and time of everything in it.
    pub fn tree(&self) -> BTreeMap<Vec<u8>, String> {
        tree(&self.root)
    }
}

pub fn body() -> RecordBody {
    RecordBody {
        time_ms: 1,
        who: "owner".to_owned(),
        key: None,
        tenant: None,
        action: "promote".to_owned(),
        place: None,
        sandbox: None,
        name: Some("x".to_owned()),
        before: None,
        after: None,
        error: None,
        detail: serde_json::Value::Null,
    }
}

/// Times of directories follow their entries and are left out.
pub fn tree(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("it can be listed") {
            let path = entry.expect("it can be read").path();
            let meta = fs::symlink_metadata(&path).expect("it is there");
            let mode = meta.permissions().mode() & 0o7777;
            let text = if meta.is_dir() {
                todo.push(path.clone());
                format!("dir {mode:o}")
            } else if meta.is_symlink() {
                format!("link {:?}", fs::read_link(&path).expect("a link"))
            } else {
                let content = fs::read(&path).expect("it can be read");
                let time = (meta.mtime(), meta.mtime_nsec());
                format!("file {mode:o} {time:?} {}", String::from_utf8_lossy(&content))
            };
            let below = path.strip_prefix(root).expect("below the root");
            found.insert(below.as_os_str().as_bytes().to_vec(), text);
        }
    }
    found
}
