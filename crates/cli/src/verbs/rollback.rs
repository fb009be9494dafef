use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::{Action, Reply};

/// Bring a sandbox back to one of its snapshots
///
/// What runs in it is ended first. What it held since is no longer seen, but
/// kept as a snapshot of its own; the other snapshots stay.
#[derive(clap::Args)]
pub struct Rollback {
    /// The sandbox
    #[arg(value_name = "S")]
    sandbox: String,
    /// The snapshot's name
    #[arg(value_name = "NAME")]
    to: String,
}

impl Rollback {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let to = self.to.clone();
        let action = Action::Rollback { sandbox: Some(self.sandbox), to: self.to };
        let Reply::Sandbox(info) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&info);
        }
        session.note(&format!("{} is back at {to}", info.name));
        Ok(0)
    }
}
