//! A temporary state directory, a project, and short words for verbs.

use fractal::model::{ChangeKind, DiffReply, RunReply, SandboxInfo};
use fractal::{Action, Caller, Code, Engine, Policy, Reply, Run};
use std::path::PathBuf;

pub struct World {
    pub dir: tempfile::TempDir,
    pub engine: Engine,
    pub caller: Caller,
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let engine = Engine::open(&dir.path().join("home")).unwrap();
        let mut caller = Caller::owner(&project);
        let environment = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            // Whom git names in commits, wherever these tests run.
            ("GIT_COMMITTER_NAME", "t"),
            ("GIT_COMMITTER_EMAIL", "t@example.org"),
        ];
        caller.environment = environment.map(|(name, value)| (name.into(), value.into())).into();
        World { dir, engine, caller }
    }

    pub fn project(&self) -> PathBuf {
        self.caller.directory.clone()
    }

    pub fn apply(&self, action: Action) -> Result<Reply, Code> {
        self.engine.apply(&self.caller, action).map_err(|error| error.code)
    }

    pub fn run(&self, run: Run) -> Result<RunReply, Code> {
        match self.apply(Action::Run(run))? {
            Reply::Run(reply) => Ok(*reply),
            other => panic!("run answered {other:?}"),
        }
    }

    /// Runs a shell script in a sandbox.
    pub fn sh(&self, sandbox: &str, script: &str) -> Result<RunReply, Code> {
        self.run(Run { command: shell(script), sandbox: Some(sandbox.into()), ..Run::default() })
    }

    /// Makes a named sandbox by running a script in it.
    pub fn make(&self, name: &str, script: &str) -> Result<RunReply, Code> {
        self.run(Run { command: shell(script), name: Some(name.into()), ..Run::default() })
    }

    pub fn fork(&self, parent: &str, name: &str, ask: &Policy) -> Result<SandboxInfo, Code> {
        let action = Action::Fork {
            sandbox: Some(parent.into()),
            name: Some(name.into()),
            ask: ask.clone(),
            network: None,
            ttl_ms: None,
            world: None,
        };
        match self.apply(action)? {
            Reply::Sandbox(info) => Ok(info),
            other => panic!("fork answered {other:?}"),
        }
    }

    pub fn snapshot(&self, sandbox: &str, name: &str) -> Result<(), Code> {
        self.apply(Action::Snapshot { sandbox: Some(sandbox.into()), name: Some(name.into()) })
            .map(|_| ())
    }

    pub fn rollback(&self, sandbox: &str, to: &str) -> Result<(), Code> {
        self.apply(Action::Rollback { sandbox: Some(sandbox.into()), to: to.into() }).map(|_| ())
    }

    pub fn drop(&self, sandbox: &str) -> Result<(), Code> {
        self.apply(Action::Drop { sandboxes: vec![sandbox.into()], force: false }).map(|_| ())
    }

    pub fn list(&self) -> Vec<SandboxInfo> {
        match self.apply(Action::List).unwrap() {
            Reply::List(list) => list.sandboxes,
            other => panic!("list answered {other:?}"),
        }
    }

    pub fn diff(&self, sandbox: &str) -> Result<DiffReply, Code> {
        match self.apply(Action::Diff { sandbox: Some(sandbox.into()), since: None })? {
            Reply::Diff(diff) => Ok(diff),
            other => panic!("diff answered {other:?}"),
        }
    }

    /// Letters and names of changed files below the project.
    pub fn changed(&self, sandbox: &str) -> Result<Vec<(char, String)>, Code> {
        let root = format!("{}/", self.project().display());
        let diff = self.diff(sandbox)?;
        Ok(diff
            .changes
            .iter()
            .filter_map(|change| {
                let name = change.path.to_string().strip_prefix(&root)?.to_owned();
                Some((change.kind.letter(), name))
            })
            .collect())
    }

    /// Every file of the project as a sandbox sees it.
    pub fn files(&self, sandbox: &str) -> fractal::model::reference::Files {
        let script =
            r#"for f in *; do [ -f "$f" ] && printf '%s=%s\n' "$f" "$(cat "$f")"; done; true"#;
        let reply = self.sh(sandbox, script).unwrap();
        assert_eq!(reply.exit, 0, "{}", reply.stderr);
        let pair = |line: &str| {
            line.split_once('=').map(|(name, text)| (name.to_owned(), text.to_owned()))
        };
        reply.stdout.lines().filter_map(pair).collect()
    }
}

/// Nothing may stand in the way of deleting a state directory.
impl Drop for World {
    fn drop(&mut self) {
        self.engine.settle();
        unlock(self.dir.path());
        let removed = std::fs::remove_dir_all(self.dir.path());
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

pub fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).into()
}

pub fn kinds(diff: &DiffReply) -> Vec<(ChangeKind, String)> {
    diff.changes.iter().map(|change| (change.kind, change.path.to_string())).collect()
}

/// Lets an ordinary user delete what nobody may enter: directories of a
/// kernel's overlay, and of programs that were killed.
fn unlock(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}
