use crate::failure::Failure;
use crate::promotion;
use crate::session::{Session, unexpected};
use crate::table::{plain, plural};
use fractal::model::{PromoteReply, Verdict};
use fractal::{Action, Reply};
use std::ffi::OsString;

/// Take a promotion back
///
/// Puts back what stood in the directory before the promotion, byte for byte.
/// A file that was edited since is a conflict: then every such file is named
/// and nothing is written; `--only` takes the others back. Without an id it
/// takes back the latest promotion of this directory that still stands. An
/// undo can itself be undone by its id.
#[derive(clap::Args)]
pub struct Undo {
    /// The promotion's id, or the beginning of it (`fractal log` shows them)
    #[arg(value_name = "ID")]
    promotion: Option<String>,
    /// Put back only what lies at or below this path (repeatable)
    #[arg(long, value_name = "PATH", num_args = 1..)]
    only: Vec<OsString>,
    /// Say what would be put back and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
}

impl Undo {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let action = Action::Undo {
            promotion: self.promotion,
            only: promotion::typed(&self.only),
            dry_run: self.dry_run,
        };
        let Reply::Promote(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            session.print_json(&reply)?;
        } else {
            session.print(&promotion::list(&reply, session.directory()))?;
            let refused = promotion::status(&reply) != 0;
            let conflicts = promotion::conflicts(&reply, session.directory());
            conflicts.for_each(|line| session.complain(&line));
            let line = closing(&reply);
            if refused { session.complain(&line) } else { session.note(&line) }
        }
        Ok(promotion::status(&reply))
    }
}

fn closing(reply: &PromoteReply) -> String {
    let of = reply.sandbox.as_deref().map_or(String::new(), |name| format!(" of {}", plain(name)));
    let paths = plural(reply.applied.len(), "path");
    let id = reply.undo.map(|id| id.to_string()).unwrap_or_default();
    match reply.verdict {
        Verdict::Conflict => format!(
            "error: {} changed since the promotion{of}; nothing was written\n\
             hint: take back the rest with `--only PATH`, or put these as they were promoted",
            plural(reply.conflicts.len(), "path")
        ),
        Verdict::Planned => format!("would put back {paths}{of}"),
        Verdict::Nothing => format!("everything{of} was back already"),
        _ => format!("took back {paths}{of} (fractal undo {id} brings them again)"),
    }
}
