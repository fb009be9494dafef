use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::{Action, Reply};

/// Seal what a sandbox holds now, under a name
///
/// `fractal rollback S NAME` brings it back. Prints the snapshot's name. What
/// runs in the sandbox stands still meanwhile and does not notice.
///
/// With one argument: if it names a sandbox, that one is sealed; otherwise it
/// is the snapshot's name, for the latest sandbox of this directory.
#[derive(clap::Args)]
pub struct Snapshot {
    /// The sandbox [default: the latest one of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// The snapshot's name
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl Snapshot {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let worker = session.worker(false);
        let seal = |sandbox: Option<String>, name: Option<String>| {
            worker.apply(Action::Snapshot { sandbox, name })
        };
        let reply = super::sandbox_or_new_name(self.sandbox, self.name, seal);
        let Reply::Snapshot(info) = reply? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&info);
        }
        session.print(&format!("{}\n", info.name))
    }
}
