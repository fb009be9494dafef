use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::{plain, plural};
use fractal::model::{Vote, VoteReply};
use fractal::{Action, Reply};

/// Say that exactly this may come into a stage
///
/// An approval is bound to what would change in the stage, byte by byte: after
/// any edit it has to be given anew. Each name counts once, and those who made
/// the change do not count. Without arguments it is about the one change that
/// waits for an approval; `fractal stages` shows it.
///
/// Who you are is what `--who` or FRACTAL_WHO says: this command line takes
/// your word for it, since whoever can write the state directory could write
/// anything into it. It is a reminder among people who trust each other, not
/// a fence against one who does not.
#[derive(clap::Args)]
pub struct Approve {
    #[command(flatten)]
    ballot: Ballot,
}

impl Approve {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        self.ballot.cast(session, Action::Approve)
    }
}

/// What a vote is about.
#[derive(clap::Args)]
pub struct Ballot {
    /// The sandbox or the stage that it stands in now [default: what waits]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// The stage that it would come into [default: the next one]
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Why, for the journal
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
}

impl Ballot {
    pub fn cast(self, session: &Session, action: fn(Vote) -> Action) -> Result<u8, Failure> {
        let vote = Vote { sandbox: self.sandbox, stage: self.stage, message: self.message };
        let Reply::Vote(reply) = session.apply(action(vote))? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&reply);
        }
        session.note(&line(&reply));
        Ok(0)
    }
}

fn line(reply: &VoteReply) -> String {
    let paths = plural(usize::try_from(reply.paths).unwrap_or(usize::MAX), "path");
    let (from, stage) = (plain(&reply.from), plain(&reply.stage));
    if !reply.approved {
        return format!(
            "rejected {from} before {stage}: {paths}; it stays out until approved anew"
        );
    }
    let given = reply.approvals.len();
    let needed = match reply.needed {
        0 => format!("{stage} needs none"),
        needed => format!("{given} of {needed}"),
    };
    let next = match given >= reply.needed as usize {
        true => format!(" (fractal promote {from})"),
        false => String::new(),
    };
    format!("approved {from} for {stage}: {paths}; approvals: {needed}{next}")
}
