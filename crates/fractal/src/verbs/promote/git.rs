//! The caller's own repository: commits made in it without touching its
//! working tree or its index.
//!
//! Everything is asked of the host's git as the caller. Without git, or
//! outside of a repository, no commit can be made.

use super::rehearse::Rehearsal;
use crate::config::branch::refuse_no_branch;
use crate::view::path_of;
use crate::{Caller, Engine};
use fractal_jail::layer::View;
use fractal_jail::trusted::{self, Answer};
use fractal_model::{Change, ChangeKind, Code, EntryKind, Error, Form, Id, Result, SandboxPath};
use fractal_store::SandboxRow;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files larger than this are not committed.
const BLOB_BYTES_MAX: u64 = 256 << 20;

/// Calls git without its hooks and watchers; `None` where there is none.
pub(super) fn git(
    caller: &Caller,
    directory: &Path,
    args: &[&str],
    input: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send,
) -> Result<Option<Answer>> {
    // Who owns the repository was settled when the caller worked in it.
    let quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];
    let all = quiet.iter().chain(&["-c", "safe.directory=*", "--no-optional-locks"]).chain(args);
    let args: Vec<&OsStr> = all.map(OsStr::new).collect();
    let keep = |(name, _): &&(OsString, OsString)| {
        !name.as_bytes().starts_with(b"GIT_")
            || name.as_bytes().ends_with(b"_NAME")
            || name.as_bytes().ends_with(b"_EMAIL")
    };
    let environment: Vec<_> = caller.environment.iter().filter(keep).cloned().collect();
    Ok(trusted::call("git", &args, &environment, directory, input)?)
}

/// A path from the project's root, without the slash.
pub(super) fn below<'a>(path: &'a SandboxPath, project: &SandboxPath) -> &'a [u8] {
    let rest = &path.relative()[project.relative().len().min(path.relative().len())..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}

/// What a reference pointed at, and what it points at now.
#[derive(Clone, Debug)]
pub struct Committed {
    pub reference: String,
    pub old: Option<String>,
    pub new: String,
}

/// Writes what was rehearsed as a commit. Branch and `refs/fractal/…` move,
/// nothing else does.
pub fn commit(
    engine: &Engine,
    caller: &Caller,
    row: &SandboxRow,
    rehearsal: &Rehearsal,
    form: &Form,
    id: Id,
) -> Result<Committed> {
    let repository = Repository::open(caller, &row.directory)?;
    let reference = match form {
        Form::Branch(name) => repository.branch(name)?,
        _ => format!("refs/fractal/{}", id.as_str().to_lowercase()),
    };
    let old = repository.resolve(&reference)?;
    let parent = match &old {
        Some(tip) => Some(tip.clone()),
        None => repository.resolve("HEAD")?,
    };
    let ident = repository.ident()?;
    let (views, changes) = crate::verbs::diff::changes(engine, &rehearsal.row, None)?;
    let (top, project) = (views.top(), path_of(&row.directory)?);
    repository.refuse_submodules(&changes, &project)?;
    let head = format!(
        "commit {reference}\ncommitter {}\n{}{}",
        ident.trim(),
        data(format!("Promote {}\n\nFractal-Promotion: {id}\n", row.name).as_bytes()),
        parent.map(|parent| format!("from {parent}\n")).unwrap_or_default(),
    );
    let stream = |to: &mut dyn Write| -> io::Result<()> {
        to.write_all(head.as_bytes())?;
        for change in changes.iter().filter(|change| change.path.is_within(&project)) {
            let name = [repository.prefix.as_bytes(), below(&change.path, &project)].concat();
            one(to, &top, change, &quoted(&name))?;
        }
        to.write_all(b"\ndone\n")
    };
    let args = ["fast-import", "--quiet", "--done", "--date-format=raw-permissive"];
    let answer = git(caller, &row.directory, &args, stream)?.ok_or_else(no_git)?;
    if answer.status != 0 {
        return Err(Error::internal(format!(
            "git did not take the commit: {}",
            String::from_utf8_lossy(&answer.errors).trim()
        )));
    }
    let new = repository.ask(&["rev-parse", "--verify", &reference])?.trim().to_owned();
    Ok(Committed { reference, old, new })
}

/// Moves a reference back, unless somebody else moved it meanwhile.
pub fn take_back(caller: &Caller, directory: &Path, commit: &Committed) -> Result<()> {
    let repository = Repository::open(caller, directory)?;
    let Committed { reference, old, new } = commit;
    match old {
        Some(old) => repository.ask(&["update-ref", reference, old, new]).map(drop),
        None => repository.ask(&["update-ref", "-d", reference, new]).map(drop),
    }
}

/// Whether a branch still has a commit.
pub fn contains(caller: &Caller, directory: &Path, branch: &str, commit: &str) -> Result<bool> {
    let repository = Repository::open(caller, directory)?;
    let tip = format!("refs/heads/{branch}");
    Ok(repository.try_ask(&["merge-base", "--is-ancestor", commit, &tip])?.is_some())
}

/// Paths of a branch, among those asked for, that others changed since the
/// commit that promote left there, or since the current one if it left none.
pub fn changed_by_others(
    caller: &Caller,
    directory: &Path,
    branch: &str,
    known: Option<&str>,
    paths: &[&SandboxPath],
) -> Result<Vec<SandboxPath>> {
    let repository = Repository::open(caller, directory)?;
    let Some(tip) = repository.resolve(&repository.branch(branch)?)? else {
        return Ok(Vec::new());
    };
    let known = known.map_or_else(|| repository.resolve("HEAD"), |id| repository.resolve(id))?;
    let Some(known) = known else { return Ok(Vec::new()) };
    let names = repository.ask(&["diff", "--name-only", "--no-renames", "-z", &known, &tip])?;
    let names: HashSet<&[u8]> = names.as_bytes().split(|byte| *byte == 0).collect();
    let project = path_of(directory)?;
    let touched = |path: &&&SandboxPath| {
        let name = [repository.prefix.as_bytes(), below(path, &project)].concat();
        names.contains(name.as_slice())
    };
    Ok(paths.iter().filter(touched).map(|path| (*path).clone()).collect())
}

/// Refuses to commit over what others have on an existing branch.
pub fn refuse_others(
    caller: &Caller,
    directory: &Path,
    branch: &str,
    paths: &[&SandboxPath],
) -> Result<()> {
    let repository = Repository::open(caller, directory)?;
    let tip = repository.resolve(&repository.branch(branch)?)?;
    let own = match &tip {
        Some(tip) if repository.is_promotion(tip)? => Some(tip.as_str()),
        _ => None,
    };
    match changed_by_others(caller, directory, branch, own, paths)?.first() {
        None => Ok(()),
        Some(path) => {
            Err(Error::new(Code::Conflict, format!("the branch `{branch}` has another {path}"))
                .hint("choose a new branch, and merge the two"))
        }
    }
}

/// One change as `git fast-import` reads it.
fn one(to: &mut dyn Write, top: &View, change: &Change, name: &[u8]) -> io::Result<()> {
    let missing = |error: fractal_jail::layer::LayerError| io::Error::other(error.to_string());
    let entry = top.lookup(&change.path).map_err(missing)?;
    let Some(entry) = entry.filter(|_| change.kind != ChangeKind::Deleted) else {
        if change.entry == EntryKind::Directory {
            return Ok(());
        }
        to.write_all(b"D ")?;
        to.write_all(name)?;
        return to.write_all(b"\n");
    };
    let (mode, content) = match entry.kind {
        EntryKind::Symlink => ("120000", entry.target.clone().unwrap_or_default()),
        EntryKind::File => {
            let file = top.open_file(&change.path).map_err(missing)?;
            let mut bytes = Vec::new();
            file.take(BLOB_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > BLOB_BYTES_MAX {
                return Err(io::Error::other(format!("{} is too large for a commit", change.path)));
            }
            (if entry.mode & 0o100 != 0 { "100755" } else { "100644" }, bytes)
        }
        EntryKind::Directory | EntryKind::Special => return Ok(()),
    };
    to.write_all(format!("M {mode} inline ").as_bytes())?;
    to.write_all(name)?;
    to.write_all(format!("\ndata {}\n", content.len()).as_bytes())?;
    to.write_all(&content)?;
    to.write_all(b"\n")
}

fn data(bytes: &[u8]) -> String {
    format!("data {}\n{}\n", bytes.len(), String::from_utf8_lossy(bytes))
}

/// A name in quotes, with what git wants escaped.
fn quoted(name: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in name {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            other => out.push(*other),
        }
    }
    out.push(b'"');
    out
}

struct Repository<'a> {
    caller: &'a Caller,
    directory: &'a Path,
    /// The project's place below the repository's root.
    prefix: String,
}

impl<'a> Repository<'a> {
    fn open(caller: &'a Caller, directory: &'a Path) -> Result<Repository<'a>> {
        let mut repository = Repository { caller, directory, prefix: String::new() };
        let prefix = repository.try_ask(&["rev-parse", "--show-prefix"])?.ok_or_else(|| {
            Error::invalid(format!("{} is in no git repository", directory.display()))
                .hint("promote with `--as files` or `--as patch`")
        })?;
        repository.prefix = prefix.trim_end_matches('\n').to_owned();
        Ok(repository)
    }

    /// The full name of a branch that is checked out nowhere.
    fn branch(&self, name: &str) -> Result<String> {
        let reference = format!("refs/heads/{name}");
        refuse_no_branch(name)?;
        let worktrees = self.ask(&["worktree", "list", "--porcelain"])?;
        if worktrees.lines().any(|line| line == format!("branch {reference}")) {
            return Err(Error::new(Code::Conflict, format!("the branch `{name}` is checked out"))
                .hint("choose another name, or promote with `--as files`"));
        }
        Ok(reference)
    }

    /// A commit holds a submodule as one entry, which files cannot replace.
    fn refuse_submodules(&self, changes: &[Change], project: &SandboxPath) -> Result<()> {
        let listed = self.ask(&["ls-files", "-s", "-z"])?;
        let entries = listed.split('\0').filter(|entry| entry.starts_with("160000 "));
        for name in entries.filter_map(|entry| entry.split_once('\t')).map(|(_, name)| name) {
            let at = SandboxPath::parse([project.relative(), b"/", name.as_bytes()].concat())?;
            if let Some(change) = changes.iter().find(|change| change.path.is_within(&at)) {
                let message = format!("{} lies in the submodule `{name}`", change.path);
                return Err(Error::new(Code::Unsupported, message)
                    .hint("promote it with `--as files`, or leave it out with `--only`"));
            }
        }
        Ok(())
    }

    /// Whether a commit was made by a promotion.
    fn is_promotion(&self, commit: &str) -> Result<bool> {
        let message = self.ask(&["log", "-1", "--format=%B", commit])?;
        Ok(message.lines().any(|line| line.starts_with("Fractal-Promotion: ")))
    }

    /// Who commits and when; a promotion need not wait for a name.
    fn ident(&self) -> Result<String> {
        let own = self.try_ask(&["var", "GIT_COMMITTER_IDENT"])?;
        let seconds = fractal_store::now_ms() / 1000;
        Ok(own.unwrap_or_else(|| format!("fractal <fractal@localhost> {seconds} +0000")))
    }

    fn resolve(&self, reference: &str) -> Result<Option<String>> {
        let commit = format!("{reference}^{{commit}}");
        let answer = self.try_ask(&["rev-parse", "--verify", "--quiet", &commit])?;
        Ok(answer.map(|text| text.trim().to_owned()))
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let answer = git(self.caller, self.directory, args, |_| Ok(()))?.ok_or_else(no_git)?;
        match answer.status {
            0 => Ok(String::from_utf8_lossy(&answer.output).into_owned()),
            _ => Err(Error::invalid(format!(
                "git {} said: {}",
                args.join(" "),
                String::from_utf8_lossy(&answer.errors).trim()
            ))),
        }
    }

    fn try_ask(&self, args: &[&str]) -> Result<Option<String>> {
        let answer = git(self.caller, self.directory, args, |_| Ok(()))?.ok_or_else(no_git)?;
        Ok((answer.status == 0).then(|| String::from_utf8_lossy(&answer.output).into_owned()))
    }
}

fn no_git() -> Error {
    Error::new(Code::Unsupported, "there is no git on this machine")
        .hint("install git, or promote with `--as files`")
}
