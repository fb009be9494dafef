use crate::bounds::duration;
use crate::failure::Failure;
use crate::session::{Session, unexpected};
use crate::table::plural;
use fractal::model::format_bytes;
use fractal::{Action, Reply};

/// Free space: drop expired sandboxes and layers nobody stands on
///
/// What stood in a directory before a promotion is kept for `fractal undo`,
/// for as long as you like. `--undo 30d` gives up what promotions older than
/// that would need; what they wrote stays in the journal.
#[derive(clap::Args)]
pub struct Gc {
    /// Say what would be freed and free nothing
    #[arg(long)]
    dry_run: bool,
    /// Give up undoing promotions older than this, as in 30d
    #[arg(long, value_name = "AGE", value_parser = duration)]
    undo: Option<u64>,
}

impl Gc {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let action = Action::Gc { dry_run: self.dry_run, undo_ms: self.undo };
        let Reply::Gc(reply) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&reply);
        }
        if !reply.expired.is_empty() {
            session.note(&format!("expired: {}", reply.expired.join(", ")));
        }
        let verb = if self.dry_run { "would free" } else { "freed" };
        let layers = plural(reply.layers as usize, "layer");
        session.note(&format!("{verb} {layers}, {}", format_bytes(reply.bytes)));
        if reply.undos > 0 {
            let undos = plural(reply.undos as usize, "promotion");
            session.note(&format!("{undos} can no longer be taken back"));
        }
        if reply.undo_bytes > 0 {
            let kept = format_bytes(reply.undo_bytes);
            session.note(&format!("{kept} are kept for undo (fractal gc --undo AGE frees more)"));
        }
        Ok(0)
    }
}
