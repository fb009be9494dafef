//! Layers made by hand: everything an overlay writes can be made without one.

use fractal_jail::layer::{Bounds, Changes, Layer, View, changes};
use fractal_model::SandboxPath;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A base directory and a layer over it.
pub struct Scene {
    pub dir: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["base", "layer", "out"] {
            fs::create_dir(dir.path().join(name)).expect("mkdir");
        }
        Scene { dir }
    }

    pub fn base(&self, path: &str) -> PathBuf {
        self.dir.path().join("base").join(path)
    }

    pub fn layer(&self, path: &str) -> PathBuf {
        self.dir.path().join("layer").join(path)
    }

    pub fn out(&self, path: &str) -> PathBuf {
        self.dir.path().join("out").join(path)
    }

    pub fn own(&self) -> Layer {
        Layer::open(&self.layer("")).expect("layer")
    }

    pub fn base_view(&self) -> View {
        let host = Layer::open(&self.base("")).expect("base");
        View { host: Some(host), ..View::default() }
    }

    pub fn top_view(&self) -> View {
        self.base_view().with_layers_on_top(&[self.own()])
    }

    pub fn changes(&self) -> Changes {
        changes(&[self.own()], &self.base_view(), &Bounds::default()).expect("changes")
    }

    /// The changes as `A /path` lines.
    pub fn lines(&self) -> Vec<String> {
        lines(&self.changes())
    }
}

pub fn lines(changes: &Changes) -> Vec<String> {
    changes.list.iter().map(|change| format!("{} {}", change.kind.letter(), change.path)).collect()
}

pub fn path(text: impl AsRef<[u8]>) -> SandboxPath {
    SandboxPath::parse(text).expect("a valid path")
}

/// Writes a file with a mode that does not depend on the umask.
pub fn write(at: PathBuf, content: impl AsRef<[u8]>) {
    make_dir(at.parent().expect("a parent"));
    fs::write(&at, content).expect("write");
    chmod(&at, 0o644);
}

pub fn make_dir(at: &Path) {
    fs::create_dir_all(at).expect("mkdir");
}

pub fn chmod(at: &Path, mode: u32) {
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("chmod");
}

pub fn whiteout(at: &Path) {
    make_dir(at.parent().expect("a parent"));
    rustix::fs::mknodat(CWD, at, FileType::CharacterDevice, Mode::empty(), 0).expect("mknod c 0 0");
}

pub fn fifo(at: &Path) {
    rustix::fs::mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("mkfifo");
}

pub fn opaque(at: &Path) {
    make_dir(at);
    let set = rustix::fs::setxattr(at, "user.overlay.opaque", b"y", XattrFlags::empty());
    set.expect("a filesystem with user xattrs");
}
