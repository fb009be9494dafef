use crate::failure::Failure;
use crate::promotion::{self, Sides};
use crate::session::{Session, unexpected};
use fractal::{Action, Reply};

/// Move a sandbox onto today's reality, with its own changes
///
/// Files that the sandbox holds copies of follow the host, two edits of one
/// text are joined, and a frozen base is captured anew. Where both sides
/// changed the same place, the paths are listed and nothing is moved until
/// `--ours` or `--theirs` chooses. What it was before stays as a snapshot.
///
/// Exit status: 0 done, 5 conflict.
#[derive(clap::Args)]
pub struct Update {
    /// The sandbox [default: the latest one of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    #[command(flatten)]
    sides: Sides,
}

impl Update {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let action = Action::Update {
            sandbox: self.sandbox,
            ours: self.sides.ours(),
            theirs: self.sides.theirs(),
            dry_run: self.sides.dry_run,
        };
        let Reply::Promote(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            session.print_json(&reply)?;
        } else {
            promotion::tell_update(session, &reply)?;
        }
        Ok(promotion::status(&reply))
    }
}
