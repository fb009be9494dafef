//! A home, a project and a state directory of their own for one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The binary under test.
pub const FRACTAL: &str = env!("CARGO_BIN_EXE_fractal");

/// Gone with the test.
pub struct World {
    dir: TempDir,
}

/// What a call gave.
pub struct Answer {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("project")).expect("a project");
        World { dir }
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    /// The state directory, which the first call makes.
    pub fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    /// Any command in the project, with nothing inherited that could matter.
    pub fn command(&self, program: &str) -> Command {
        let bin =
            Path::new(FRACTAL).parent().expect("it lies in a directory").display().to_string();
        let mut command = Command::new(program);
        command
            .current_dir(self.project())
            .env_clear()
            .env("PATH", format!("{bin}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
            .env("HOME", self.root())
            .env("FRACTAL_HOME", self.state())
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::null());
        command
    }

    pub fn fractal(&self, args: &[&str]) -> Answer {
        Answer::of(self.command(FRACTAL).args(args))
    }

    /// A call that must succeed.
    pub fn ok(&self, args: &[&str]) -> Answer {
        let answer = self.fractal(args);
        assert_eq!(answer.status, 0, "fractal {args:?}: {}", answer.err);
        answer
    }

    /// A call with `--json`, and its object.
    pub fn json(&self, args: &[&str]) -> (i32, serde_json::Value) {
        let answer = self.fractal(args);
        let value = serde_json::from_str(&answer.out)
            .unwrap_or_else(|error| panic!("{args:?}: {error} in {:?} {}", answer.out, answer.err));
        (answer.status, value)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.project().join(name), text).expect("the project can be written");
    }
}

impl Answer {
    pub fn of(command: &mut Command) -> Answer {
        Answer::from(command.output().expect("it starts"))
    }

    /// Standard error without what weaker machines say after each run.
    pub fn notes(&self) -> Vec<&str> {
        self.err.lines().filter(|line| !line.starts_with("isolation: ")).collect()
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Answer {
        Answer {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Whether runs are possible here; says so visibly when they are not.
pub fn able() -> bool {
    static ABLE: OnceLock<bool> = OnceLock::new();
    let able = *ABLE.get_or_init(|| World::new().fractal(&["doctor"]).status == 0);
    if !able {
        eprintln!("skipped: no isolation works on this machine (see `fractal doctor`)");
    }
    able
}

/// Whether we are root, who is stopped by mounts and not by permissions.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
