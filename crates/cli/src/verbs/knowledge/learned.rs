use super::{line, moment};
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain, plural};
use fractal::model::LearnedReply;
use fractal::{Action, Reply};

/// Tell what was learned lately
///
/// Insights, decisions and patterns, newest first; failures by what they have
/// in common, with what fixed them.
#[derive(clap::Args)]
pub struct Learned {
    /// Not before: a time like 2026-11-15, or a duration ago like 7d
    #[arg(long, value_name = "TIME", value_parser = moment, default_value = "7d")]
    since: u64,
    /// Everything, however old
    #[arg(long, conflicts_with = "since")]
    all: bool,
}

impl Learned {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let since_ms = (!self.all).then_some(self.since);
        let Reply::Learned(reply) = session.apply(Action::Learned { since_ms })? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        if reply == LearnedReply::default() {
            session.note("nothing was written down (fractal note, fractal run --experiment NAME)");
            return Ok(0);
        }
        session.print(&told(&reply))
    }
}

fn told(reply: &LearnedReply) -> String {
    let mut text = String::new();
    let tried = reply.passed + reply.failed;
    if tried > 0 {
        let tried = plural(usize::try_from(tried).unwrap_or(usize::MAX), "experiment");
        text.push_str(&format!("{tried}: {} passed, {} failed\n", reply.passed, reply.failed));
    }
    if !reply.learned.is_empty() {
        text.push_str("\nLearned\n");
        let rows: Vec<Vec<String>> = reply.learned.iter().map(line).collect();
        text.push_str(&columns(&rows));
    }
    if !reply.failures.is_empty() {
        text.push_str("\nFailures\n");
    }
    for group in &reply.failures {
        let times = plural(usize::try_from(group.times).unwrap_or(usize::MAX), "time");
        text.push_str(&format!("{times}  {}\n", plain(&group.signature)));
        for fix in &group.fixed_by {
            text.push_str(&format!("    fixed by {}\n", plain(&fix.title)));
        }
    }
    text.trim_start_matches('\n').to_owned()
}
