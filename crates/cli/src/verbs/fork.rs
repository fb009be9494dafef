use crate::bounds::{Bounds, duration};
use crate::failure::Failure;
use crate::inside::Where;
use crate::session::{Session, unexpected};
use fractal::{Action, Reply};

/// Make a child of a sandbox
///
/// The child sees exactly what its parent sees now and goes its own way from
/// there. It costs the same for ten files and for a million. Prints the name
/// of the child.
///
/// With one argument: if it names a sandbox, that one is forked; otherwise the
/// latest sandbox of this directory is forked under that name.
#[derive(clap::Args)]
pub struct Fork {
    /// The parent [default: the latest sandbox of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// The child's name
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Let the child expire when unused for so long, as in 7d
    #[arg(long, env = "FRACTAL_TTL", value_name = "DURATION", value_parser = duration, hide_env_values = true)]
    ttl: Option<u64>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    bounds: Bounds,
}

impl Fork {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let network = self.bounds.net.clone();
        let ask = self.bounds.policy(session)?;
        let worker = session.worker(false);
        let fork = |sandbox: Option<String>, name: Option<String>| {
            let (ask, network) = (ask.clone(), network.clone());
            let (ttl_ms, world) = (self.ttl, self.place.world());
            worker.apply(Action::Fork { sandbox, name, ask, network, ttl_ms, world })
        };
        let reply = super::sandbox_or_new_name(self.sandbox, self.name, fork);
        let Reply::Sandbox(info) = reply? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&info);
        }
        if let Some(parent) = &info.parent {
            session.note(&format!("forked {parent}"));
        }
        session.print(&format!("{}\n", info.name))
    }
}
