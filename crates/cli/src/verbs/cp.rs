use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::model::format_bytes;
use fractal::{Action, Reply};

/// Copy files into or out of a sandbox
///
/// One side is `SANDBOX:/path`, the other a path of this machine. A path with
/// a colon in it is written with `./` in front.
#[derive(clap::Args)]
pub struct Cp {
    /// What to copy
    #[arg(value_name = "SRC")]
    from: String,
    /// Where to
    #[arg(value_name = "DST")]
    to: String,
}

impl Cp {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let action = Action::Copy { from: self.from, to: self.to };
        let Reply::Archive(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&reply);
        }
        let count = reply.entries as usize;
        let entries = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
        session.note(&format!("copied {entries}, {}", format_bytes(reply.bytes)));
        if reply.left_out > 0 {
            session.note(&format!("left out, fifos, sockets and devices: {}", reply.left_out));
        }
        Ok(0)
    }
}
