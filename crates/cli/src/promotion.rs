//! How promotions read, for `promote` and for `try --promote`.

use crate::board::sign;
use crate::bounds::check;
use crate::failure::Failure;
use crate::session::Session;
use crate::table::{plain, plural};
use crate::verbs::knowledge;
use fractal::model::{
    Check, CheckReport, CheckResult, Conflict, LeftOut, PromoteReply, TypedPath, Verdict,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What to do where both sides changed something: the flags that `promote` and
/// `update` share.
#[derive(clap::Args)]
pub struct Sides {
    /// Where both sides changed the same place, take the sandbox's (repeatable)
    #[arg(long, value_name = "PATH", num_args = 1..)]
    ours: Vec<OsString>,
    /// Where both sides changed the same place, leave what is outside (repeatable)
    #[arg(long, value_name = "PATH", num_args = 1..)]
    theirs: Vec<OsString>,
    /// Say what would happen and do nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

impl Sides {
    pub fn ours(&self) -> Vec<TypedPath> {
        typed(&self.ours)
    }

    pub fn theirs(&self) -> Vec<TypedPath> {
        typed(&self.theirs)
    }
}

/// What a promotion has to pass, beside the project's own checks: the flags that
/// `promote` and `guard` share.
#[derive(clap::Args)]
pub struct Gate {
    /// One more check that must pass (repeatable)
    #[arg(long, value_name = "NAME=CMD", value_parser = check)]
    pub check: Vec<Check>,
    /// Bring files that run by themselves
    #[arg(long)]
    pub allow_autorun: bool,
}

/// Paths as they were typed; the system lets them be any bytes.
pub fn typed(paths: &[OsString]) -> Vec<TypedPath> {
    paths.iter().map(|path| TypedPath::from(path.as_bytes())).collect()
}

/// Paths that are listed one by one.
const LISTED_MAX: usize = 50;

/// The exit status that tells a script how it went.
pub fn status(reply: &PromoteReply) -> u8 {
    use fractal::Code;
    match reply.verdict {
        Verdict::Applied | Verdict::Made | Verdict::Nothing | Verdict::Planned => 0,
        Verdict::Gate => Code::Gate.exit_status(),
        Verdict::Denied => Code::Denied.exit_status(),
        Verdict::Conflict => Code::Conflict.exit_status(),
    }
}

/// One line per path on standard output, the rest beside it.
pub fn tell(session: &Session, reply: &PromoteReply) -> Result<u8, Failure> {
    session.print(&list(reply, session.directory()))?;
    remarks(session, reply);
    Ok(0)
}

/// Letters and paths, as git would list them.
pub fn list(reply: &PromoteReply, here: &Path) -> String {
    let mut text = String::new();
    for applied in reply.applied.iter().take(LISTED_MAX) {
        let merged = if applied.merged { " (joined with an edit outside)" } else { "" };
        let path = shown(&applied.path, here);
        text.push_str(&format!("{}\t{path}{merged}\n", applied.kind.letter()));
    }
    if reply.applied.len() > LISTED_MAX {
        text.push_str(&format!("… and {} more\n", reply.applied.len() - LISTED_MAX));
    }
    text
}

/// What stands in the way, one line each.
pub fn conflicts(reply: &PromoteReply, here: &Path) -> impl Iterator<Item = String> {
    let line = move |conflict: &Conflict| {
        format!("conflict: {}: {}", shown(&conflict.path, here), plain(&conflict.why))
    };
    reply.conflicts.iter().take(LISTED_MAX).map(line)
}

/// The same for a sandbox that was moved onto today's reality.
pub fn tell_update(session: &Session, reply: &PromoteReply) -> Result<u8, Failure> {
    let name = reply.sandbox.as_deref().unwrap_or_default();
    session.print(&list(reply, session.directory()))?;
    reply.notes.iter().for_each(|note| session.note(note));
    let paths = plural(reply.applied.len(), "path");
    match reply.verdict {
        Verdict::Applied => {
            session.note(&format!("{name} stands on today's reality: {paths} moved"))
        }
        Verdict::Nothing => session.note(&format!("{name} stands on today's reality already")),
        Verdict::Planned => session.note(&format!("would move {paths}; nothing was done")),
        _ => {
            conflicts(reply, session.directory()).for_each(|line| session.complain(&line));
            let count = plural(reply.conflicts.len(), "conflict");
            session.complain(&format!("error: {count} with reality; nothing was moved"));
            session.complain("hint: choose with `--ours PATH` or `--theirs PATH`");
        }
    }
    Ok(0)
}

/// What a person should know, and what to type next.
pub fn remarks(session: &Session, reply: &PromoteReply) {
    for check in &reply.checks {
        session.note(&checked(check));
    }
    for left in &reply.left_out {
        session.note(&left_out(left));
    }
    for note in reply.notes.iter().filter(|_| !is_kept_out(reply)) {
        session.note(note);
    }
    knowledge::recorded(session, &reply.recorded);
    let name = reply.sandbox.as_deref().unwrap_or_default();
    let is_refusal = status(reply) != 0;
    for line in closing(session, reply, name) {
        if is_refusal { session.complain(&line) } else { session.note(&line) }
    }
}

/// Denied by a stage, whose reasons are the notes.
fn is_kept_out(reply: &PromoteReply) -> bool {
    reply.verdict == Verdict::Denied && reply.autorun.is_empty()
}

/// Why a stage did not take it, what helps, and how far it came.
fn kept_out(reply: &PromoteReply) -> Vec<String> {
    let (why, rest) = reply.notes.split_first().map_or(("", &[][..]), |(why, rest)| (why, rest));
    let (hints, told): (Vec<&String>, Vec<&String>) =
        rest.iter().partition(|note| note.starts_with("hint: "));
    let error = format!("error: {}; nothing was written into {}", plain(why), reply.stage);
    let plain = |note: &String| plain(note);
    told.into_iter().map(plain).chain([error]).chain(hints.into_iter().map(plain)).collect()
}

fn closing(session: &Session, reply: &PromoteReply, name: &str) -> Vec<String> {
    let here = session.directory();
    match reply.verdict {
        Verdict::Applied => vec![applied(reply, name)],
        Verdict::Made => vec![made(reply, name)],
        Verdict::Nothing => {
            // What stays behind is told of, and is a difference.
            let is_equal = reply.left_out.iter().all(|left| left.why == "only");
            let why = if is_equal { ": already equal" } else { "" };
            vec![format!("nothing to promote into {}{why}", reply.stage)]
        }
        Verdict::Planned => {
            let paths = plural(reply.applied.len(), "path");
            vec![format!("would promote {paths} into {}; nothing was written", reply.stage)]
        }
        Verdict::Conflict => {
            let mut lines: Vec<String> = conflicts(reply, here).collect();
            let count = plural(reply.conflicts.len(), "conflict");
            lines.push(format!("error: {count} with {}; nothing was written", reply.stage));
            lines.push("hint: choose with `--ours PATH` or `--theirs PATH`, or bring the rest with `--only PATH`".to_owned());
            lines
        }
        Verdict::Gate if reply.checks.iter().any(|check| check.name == "publish") => {
            vec![format!("error: {} could not be published", reply.stage)]
        }
        Verdict::Gate => vec![
            format!(
                "error: the gate did not let it pass; nothing was written into {}",
                reply.stage
            ),
            format!("hint: look inside with `fractal enter {name}`, mend it and promote again"),
        ],
        Verdict::Denied if is_kept_out(reply) => kept_out(reply),
        Verdict::Denied => {
            let line = |path: &String| format!("runs by itself: {}", shown(path, here));
            let mut lines: Vec<String> = reply.autorun.iter().take(LISTED_MAX).map(line).collect();
            lines.push(
                "error: files that run by themselves were not asked for; nothing was written"
                    .to_owned(),
            );
            lines.push(format!(
                "hint: read them with `fractal diff {name}`, then add `--allow-autorun`"
            ));
            lines
        }
    }
}

fn applied(reply: &PromoteReply, name: &str) -> String {
    let paths = plural(reply.applied.len(), "path");
    match (&reply.made, reply.undo) {
        (Some(commit), _) => {
            format!("made commit {} of {name} in {}: {paths}", plain(commit), reply.stage)
        }
        (None, Some(undo)) => {
            format!("promoted {name} into {}: {paths} (fractal undo {undo})", reply.stage)
        }
        (None, None) => format!("promoted {name} into {}: {paths}", reply.stage),
    }
}

/// Something that is not in anybody's files yet.
fn made(reply: &PromoteReply, name: &str) -> String {
    let paths = plural(reply.applied.len(), "path");
    let commit = reply.made.as_deref().map(plain).unwrap_or_default();
    match reply.stage.strip_prefix("git:") {
        Some(branch) => {
            format!("made commit {commit} of {name} on branch {}: {paths}", plain(branch))
        }
        None if reply.stage == "commit" => format!("made commit {commit} of {name}: {paths}"),
        None => format!("made a patch of {name}: {paths}"),
    }
}

/// `✗ test: failed with exit status 1`, and the end of what it printed.
fn checked(check: &CheckReport) -> String {
    let (name, sign) = (plain(&check.name), sign(check.result));
    if check.result == CheckResult::Pass {
        return format!("{sign} {name}");
    }
    let why = check.why.as_deref().map_or_else(|| check.result.name().to_owned(), plain);
    let output = check.output.trim_end();
    let lines: Vec<String> = output.lines().map(|line| format!("    {}", plain(line))).collect();
    let tail = if lines.is_empty() { String::new() } else { format!("\n{}", lines.join("\n")) };
    let optional = if check.required { "" } else { " (not required)" };
    format!("{sign} {name}: {why}{optional}{tail}")
}

fn left_out(left: &LeftOut) -> String {
    let count = plural(left.count as usize, "path");
    match left.why.as_str() {
        "ignored" => format!("left out: {count} that git ignores (--ignored)"),
        "injected" => format!("left out: {count}, copied in (--ignored)"),
        "git" => format!("left out: {count} inside .git (--git)"),
        "outside" => format!("left out: {count} outside the project (--outside)"),
        "special" => format!("left out: {count}: fifos, sockets, devices"),
        "only" => format!("left out: {count}, not named"),
        "theirs" => format!("left as they are: {count}"),
        other => format!("left out: {count} ({other})"),
    }
}

/// A path as the caller would type it.
pub fn shown(path: &str, here: &Path) -> String {
    match Path::new(path).strip_prefix(here) {
        Ok(below) if !below.as_os_str().is_empty() => plain(&below.to_string_lossy()),
        _ => plain(path),
    }
}
