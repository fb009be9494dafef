//! `skunk new`: a directory for a problem, with an environment of its own.
//!
//! The environment is made by the real tool in a throw-away sandbox, at the
//! path where it will lie; only what stands in that directory is brought out,
//! beside its place, and takes it with one rename. So a tool that fails, or
//! writes elsewhere, leaves nothing behind.

use super::{boxed_away, checked_title, discard, draft, show, tools, write_down};
use crate::knowledge::experiment::{self, Experiment};
use crate::knowledge::{failed, project_of};
use crate::{Caller, Engine, RunIo};
use fractal_index::bundle::{Bundle, HOME, PROBLEM, SUFFIX, slug};
use fractal_model::{Code, Error, Result, Run, RunReply, SkunkNew, SkunkReply};
use std::fs;
use std::path::{Path, PathBuf};

const PACKAGES_MAX: usize = 100;

pub fn new(engine: &Engine, caller: &Caller, asked: &SkunkNew) -> Result<SkunkReply> {
    let title = checked_title(&asked.title)?;
    let tool = tools::find(asked.with.as_deref())?;
    if asked.add.len() > PACKAGES_MAX {
        return Err(Error::invalid(format!("at most {PACKAGES_MAX} packages")));
    }
    asked.add.iter().try_for_each(|name| tools::check_package(name))?;
    if tool.is_none() && !asked.add.is_empty() {
        return Err(Error::invalid("packages need a tool that adds them")
            .hint("say which: `--with uv`, `--with cargo` or `--with npm`"));
    }
    let above = experiment::wanted(caller, asked.within.as_deref())?;
    let within = match &above {
        Some(above) => above.bundle.dir().to_owned(),
        None => project_of(&caller.directory).join(HOME),
    };
    let dir = within.join(format!("{}{SUFFIX}", slug(title)));
    refuse_taken(&dir)?;
    let mut notes = Vec::new();
    if let Some(tool) = tool {
        notes = make(engine, caller, tool, &dir, asked)?;
    }
    let with = tool.map_or(tools::EMPTY, |tool| tool.name);
    let problem = draft(caller, title, &asked.tags, with, &asked.body);
    let bundle = Bundle::create(&within, &problem).map_err(|error| {
        if tool.is_some() && !dir.join(PROBLEM).exists() {
            discard(&dir);
        }
        failed(error)
    })?;
    let _ = bundle.refresh();
    if let Some(above) = &above {
        let _ = above.bundle.refresh();
    }
    let experiment = Experiment::at(caller, bundle);
    write_down(engine, caller, "new", &experiment)?;
    let mut reply = show(engine, caller, &experiment)?;
    reply.notes = notes;
    Ok(reply)
}

fn refuse_taken(dir: &Path) -> Result<()> {
    if dir.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::new(Code::Exists, format!("there is already {}", dir.display()))
        .hint("choose another title, or `fractal skunk import` what is there"))
}

/// Has the tool make the environment, and brings it to its place.
fn make(
    engine: &Engine,
    caller: &Caller,
    tool: &tools::Tool,
    dir: &Path,
    asked: &SkunkNew,
) -> Result<Vec<String>> {
    let (within, name) = (parent(dir), slug(&asked.title));
    let project = project_of(&caller.directory);
    // As seen from the project: a copy of it may lie elsewhere.
    let shown = dir.strip_prefix(&project).ok().and_then(Path::to_str);
    let shown = shown.ok_or_else(|| Error::invalid(format!("{} is not UTF-8", dir.display())))?;
    let caller = &Caller { directory: project.clone(), ..caller.clone() };
    let made_before = !within.exists();
    let script = tool.script(!asked.add.is_empty());
    let words = ["sh", "-c", &script, "sh", shown, &name];
    let run = Run {
        command: words.iter().map(|word| (*word).to_owned()).chain(asked.add.clone()).collect(),
        name: Some(format!("skunk-{}", super::super::note::suffix())),
        network: asked.network.clone(),
        template: Some("clone".to_owned()),
        ..Run::default()
    };
    let reply = crate::verbs::run::run(engine, caller, run, RunIo::captured())?;
    let brought = check(tool, &reply).and_then(|()| bring(engine, caller, &reply, &within, dir));
    let dropped =
        crate::verbs::drop::drop(engine, caller, std::slice::from_ref(&reply.sandbox), true);
    if brought.is_err() && made_before {
        // Only what is empty goes: whatever is there by now is somebody's.
        let _ = fs::remove_dir(&within);
    }
    brought?;
    dropped?;
    let said = reply.stdout.lines().chain(reply.stderr.lines());
    Ok(said.map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).take(50).collect())
}

fn parent(dir: &Path) -> PathBuf {
    dir.parent().unwrap_or(Path::new("/")).to_owned()
}

fn check(tool: &tools::Tool, reply: &RunReply) -> Result<()> {
    if reply.exit == 0 {
        return Ok(());
    }
    if reply.exit == 127 {
        return Err(Error::new(
            Code::Unsupported,
            format!("there is no `{}` on this machine", tool.name),
        )
        .hint(format!("install it ({}), or leave out `--with`", tool.from)));
    }
    let last: Vec<&str> =
        reply.stderr.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
    let last = last.into_iter().rev().collect::<Vec<_>>().join("; ");
    Err(Error::new(
        Code::Failed,
        format!("{} made no environment (exit {}): {last}", tool.name, reply.exit),
    )
    .hint("packages need a network: `--net host`, or `--net allow:HOST`"))
}

/// Copies the directory out of the sandbox and gives it its place.
fn bring(
    engine: &Engine,
    caller: &Caller,
    reply: &RunReply,
    within: &Path,
    dir: &Path,
) -> Result<()> {
    fs::create_dir_all(within).map_err(|error| cannot("make", within, &error))?;
    let beside = boxed_away(within);
    let from = format!("{}:{}", reply.sandbox, dir.display());
    let copied = crate::verbs::copy::copy(engine, caller, &from, &beside.to_string_lossy());
    let placed = copied.and_then(|_| place(&beside, dir));
    if placed.is_err() {
        discard(&beside);
    }
    placed
}

/// Gives what lies beside its place to it, unless somebody took it meanwhile.
pub(super) fn place(beside: &Path, dir: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, beside, CWD, dir, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => refuse_taken(dir),
        // A filesystem without that promise has the other rename.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            refuse_taken(dir)?;
            fs::rename(beside, dir).map_err(|error| cannot("make", dir, &error))
        }
        Err(error) => Err(cannot("make", dir, &error.into())),
    }
}

pub(super) fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Error {
    let text = format!("cannot {verb} {}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::new(Code::Limit, text).hint("make room first"),
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            Error::denied(text).hint("the project must be yours to write")
        }
        std::io::ErrorKind::NotFound => Error::not_found(text),
        _ => Error::internal(text),
    }
}
