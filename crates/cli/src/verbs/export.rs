use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::plural;
use fractal::model::format_bytes;
use fractal::{Action, Reply};

/// Write a sandbox's changes, or its whole project, into a file
///
/// The ending says which: DIR/, .tar, .zip and .json hold the project as the
/// sandbox shows it, for other tools; any other file is an archive of the
/// changes (a tar.zst with a manifest), which `fractal import` reads on another
/// machine.
#[derive(clap::Args)]
pub struct Export {
    /// The sandbox [default: the latest one of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// The file to write; a directory, which must not be there yet, with a slash
    /// at its end
    #[arg(short, long = "output", value_name = "FILE")]
    output: String,
    /// With all snapshots, so that they can be returned to after `fractal import`
    #[arg(long)]
    history: bool,
}

impl Export {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let to = session.absolute(&self.output)?;
        let action = Action::Export { sandbox: self.sandbox, to, history: self.history };
        let Reply::Archive(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&reply);
        }
        let (name, bytes) = (&reply.sandbox, format_bytes(reply.bytes));
        let with = match reply.snapshots {
            0 => String::new(),
            count => format!(", {}", plural(count as usize, "snapshot")),
        };
        session.note(&format!("exported {name}: {} entries, {bytes}{with}", reply.entries));
        if reply.left_out > 0 {
            session.note(&format!("left out, sockets and devices: {}", reply.left_out));
        }
        Ok(0)
    }
}
