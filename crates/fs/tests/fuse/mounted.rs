//! A view at a directory, which is unmounted whatever happens.

use fractal_fs::Vfs;
use fractal_fs::fuse::{MountError, Mounted, Options, mount};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The fields are dropped in this order: first the mount, then its place.
pub struct View {
    pub mounted: Option<Mounted>,
    pub view: Vfs,
    dir: tempfile::TempDir,
}

impl View {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }
}

/// Mounts a view, or says why not.
pub fn show(view: &Vfs) -> Option<View> {
    let dir = tempfile::tempdir().unwrap();
    match mount(view, dir.path(), Options::default()) {
        Ok(mounted) => Some(View { mounted: Some(mounted), view: view.clone(), dir }),
        Err(MountError::NoDevice(_) | MountError::NoHelper(_)) => {
            println!("skipped: no /dev/fuse");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn empty() -> Option<View> {
    show(&Vfs::default())
}

/// Whether a program is there; says so if not.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: no {program}");
    }
    found
}

/// A shell script in a directory that must succeed.
pub fn sh(dir: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    said(&output, script)
}

pub fn said(output: &Output, what: &str) -> String {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}\n{out}\n{err}");
    out
}
