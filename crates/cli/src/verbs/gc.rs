use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::plural;
use fractal::model::format_bytes;
use fractal::{Action, Reply};

/// Free space: drop expired sandboxes and layers nobody stands on
#[derive(clap::Args)]
pub struct Gc {
    /// Say what would be freed and free nothing
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let Reply::Gc(reply) = session.apply(Action::Gc { dry_run: self.dry_run })? else {
            return Err(unexpected());
        };
        if session.json {
            return session.print_json(&reply);
        }
        if !reply.expired.is_empty() {
            session.note(&format!("expired: {}", reply.expired.join(", ")));
        }
        let verb = if self.dry_run { "would free" } else { "freed" };
        let layers = plural(reply.layers as usize, "layer");
        session.note(&format!("{verb} {layers}, {}", format_bytes(reply.bytes)));
        Ok(0)
    }
}
