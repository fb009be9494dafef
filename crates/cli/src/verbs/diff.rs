use super::run::staleness;
use crate::failure::Failure;
use crate::remote::Door;
use crate::session::{Session, unexpected};
use crate::table::{plain, plural};
use crate::terminal;
use fractal::{Action, DiffFormat, DiffOutput, Reply};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;

/// Show what a sandbox changed, as a patch for `git apply`
///
/// The patch holds the changes below the sandbox's directory, with paths
/// relative to it; binary files are included. `--all` takes every path of the
/// machine. What a patch leaves out is counted on standard error. The short
/// forms list every path: relative below that directory, with a leading slash
/// elsewhere.
#[derive(clap::Args)]
pub struct Diff {
    /// The sandbox [default: the latest one of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// Compare with this snapshot of the sandbox instead of its base
    #[arg(long, value_name = "SNAPSHOT")]
    since: Option<String>,
    /// Print lines changed per file instead of the patch, for every path
    #[arg(long, group = "format")]
    stat: bool,
    /// Print a letter (A, M, D) and a path each, for every path
    #[arg(long, group = "format")]
    name_status: bool,
    /// Print a patch of every path, relative to /
    #[arg(long, group = "format")]
    all: bool,
}

impl Diff {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        if session.json {
            let action = Action::Diff { sandbox: self.sandbox, since: self.since };
            let Reply::Diff(reply) = session.apply(action)? else { return Err(unexpected()) };
            return session.print_json(&reply);
        }
        let format = self.format();
        if let Some(door) = session.door() {
            return self.through(session, door);
        }
        // Rust's own standard output writes line by line.
        let mut out = BufWriter::new(File::from(io::stdout().as_fd().try_clone_to_owned()?));
        let (engine, caller) = (session.late_engine()?, session.caller_without_settings());
        let (sandbox, since) = (self.sandbox.as_deref(), self.since.as_deref());
        let output = engine.write_diff(&caller, sandbox, since, format, &mut out)?;
        if output.broken_pipe {
            return Err(Failure::BrokenPipe);
        }
        remarks(session, &output, format);
        Ok(0)
    }

    /// The patch, or letters and paths, through the door we are behind.
    fn through(self, session: &Session, door: &Door) -> Result<u8, Failure> {
        if self.stat || self.all {
            session.refuse_inside()?;
        }
        let since = self.since;
        let shown = Action::Show { sandbox: self.sandbox };
        let Reply::Show(shown) = door.apply(&shown)? else { return Err(unexpected()) };
        let id = shown.info.id.to_string();
        if !self.name_status {
            io::Write::write_all(&mut io::stdout().lock(), &door.patch(&id, since.as_deref())?)?;
            return Ok(0);
        }
        let action = Action::Diff { sandbox: Some(id), since };
        let Reply::Diff(reply) = door.apply(&action)? else { return Err(unexpected()) };
        let below = format!("{}/", shown.info.directory.trim_end_matches('/'));
        let line = |change: &fractal::model::Change| {
            let letter = &format!("{:?}", change.kind)[..1];
            let path = change.path.to_string();
            format!("{letter}\t{}\n", plain(path.strip_prefix(&below).unwrap_or(&path)))
        };
        session.print(&reply.changes.iter().map(line).collect::<String>())
    }

    fn format(&self) -> DiffFormat {
        match (self.stat, self.name_status, self.all) {
            (true, ..) => DiffFormat::Stat { width: terminal::width() },
            (_, true, _) => DiffFormat::NameStatus,
            (_, _, true) => DiffFormat::PatchAll,
            _ => DiffFormat::Patch,
        }
    }
}

/// What the text above does not say.
fn remarks(session: &Session, output: &DiffOutput, format: DiffFormat) {
    let is_patch = matches!(format, DiffFormat::Patch | DiffFormat::PatchAll);
    if is_patch && output.outside > 0 {
        let changes = plural(output.outside as usize, "change");
        session.note(&format!("{changes} outside this directory (fractal diff --all)"));
    }
    if is_patch && output.unsayable > 0 {
        let changes = plural(output.unsayable as usize, "change");
        session.note(&format!("{changes} that a patch cannot hold (fractal diff --name-status)"));
    }
    if output.truncated {
        session.note("more changed than is listed: the rest is too much, or too deep down");
    }
    for path in &output.skipped {
        session.note(&format!("left out, too large or unreadable: {}", plain(path)));
    }
    if let Some(stale) = &output.stale {
        session.note(&staleness(stale));
    }
}
