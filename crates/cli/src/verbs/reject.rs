use super::approve::Ballot;
use crate::failure::Failure;
use crate::session::Session;
use fractal::Action;

/// Say that exactly this may not come into a stage
///
/// It stays out until somebody who did not make it approves it anew, or until
/// it was changed. Anybody may reject, the author included.
#[derive(clap::Args)]
pub struct Reject {
    #[command(flatten)]
    ballot: Ballot,
}

impl Reject {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        self.ballot.cast(session, Action::Reject)
    }
}
