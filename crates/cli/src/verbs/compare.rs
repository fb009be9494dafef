use super::attempt::{Judging, status};
use crate::board;
use crate::failure::Failure;
use crate::promotion::shown;
use crate::session::{Session, unexpected};
use crate::side_by_side;
use crate::table::plain;
use crate::terminal;
use fractal::model::TryReply;
use fractal::{Action, Caller, Engine, Reply};
use serde::Serialize;

/// Compare sandboxes: the table of `try`, and where their changes clash
///
/// Checks and score are those given here, or those in fractal.toml; the row
/// (base) is what they say without any change. Exit status, time and memory
/// are those of the latest run in each; who was not checked and whose latest
/// run failed is ruled out. Files that several of them changed are listed as
/// `same` (they made the same of it) or `clash` (they did not: promoting both
/// joins edits of different places and reports the others).
///
/// Exit status: 0 when one is best, 3 when none passes.
#[derive(clap::Args)]
pub struct Compare {
    /// The sandboxes, two or more
    #[arg(value_name = "S", required = true, num_args = 2..)]
    sandboxes: Vec<String>,
    #[command(flatten)]
    judging: Judging,
    /// Print what differs between each pair too, in these paths or in all
    #[arg(long, value_name = "PATH", num_args = 0..)]
    diff: Option<Vec<String>>,
    /// Print it in two columns, as wide as the terminal
    #[arg(short = 'y', long)]
    side_by_side: bool,
}

/// What stands between two sandboxes.
#[derive(Serialize)]
struct Between {
    from: String,
    to: String,
    patch: String,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    reply: &'a TryReply,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diffs: Vec<Between>,
}

impl Compare {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let (engine, caller) = (session.engine()?, session.caller()?);
        let action = Action::Compare {
            sandboxes: self.sandboxes.clone(),
            checks: self.judging.check,
            score: self.judging.score,
            rank: self.judging.rank,
            repeat: self.judging.repeat,
        };
        let Reply::Try(reply) = engine.apply(&caller, action)? else { return Err(unexpected()) };
        let diffs = match (&self.diff, self.side_by_side) {
            (Some(paths), _) => between(&engine, &caller, &self.sandboxes, paths)?,
            (None, true) => between(&engine, &caller, &self.sandboxes, &[])?,
            (None, false) => Vec::new(),
        };
        if session.json {
            session.print_json(&Answer { reply: &reply, diffs })?;
            return Ok(status(&reply));
        }
        session.print(&board::text(&reply))?;
        session.print(&board::overlap(&reply, |path| shown(path, session.directory())))?;
        let width = terminal::width();
        for one in &diffs {
            session.print(&match self.side_by_side {
                true => one.in_columns(width),
                false => one.unified(),
            })?;
        }
        board::remarks(&reply).iter().for_each(|line| session.note(line));
        board::next(&reply).iter().for_each(|line| session.note(line));
        Ok(status(&reply))
    }
}

impl Between {
    fn unified(&self) -> String {
        let (from, to) = (plain(&self.from), plain(&self.to));
        format!("\n{from} (-) and {to} (+)\n{}", safe(&self.patch))
    }

    fn in_columns(&self, width: usize) -> String {
        format!("\n{}", side_by_side::text(&self.patch, (&self.from, &self.to), width))
    }
}

/// The diffs of all pairs, in the order of the names.
fn between(
    engine: &Engine,
    caller: &Caller,
    names: &[String],
    paths: &[String],
) -> Result<Vec<Between>, Failure> {
    let mut list = Vec::new();
    for (index, from) in names.iter().enumerate() {
        for to in &names[index + 1..] {
            let mut patch = Vec::new();
            engine.write_between(caller, (from, to), paths, &mut patch)?;
            let patch = String::from_utf8_lossy(&patch).into_owned();
            list.push(Between { from: from.clone(), to: to.clone(), patch });
        }
    }
    Ok(list)
}

/// Contents of files must not drive the terminal; tabs and lines are fine.
fn safe(patch: &str) -> String {
    let line = |line: &str| line.split('\t').map(plain).collect::<Vec<_>>().join("\t");
    patch.lines().map(|text| format!("{}\n", line(text))).collect()
}
