use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::{Action, Reply};

/// Forget sandboxes and what they hold
///
/// What still runs in them is stopped. The records of what happened in them
/// stay in the journal. Dropping a sandbox twice is no error.
#[derive(clap::Args)]
pub struct Drop {
    /// The sandboxes
    #[arg(value_name = "S", required_unless_present = "all", conflicts_with = "all")]
    sandboxes: Vec<String>,
    /// Pass over names that never existed
    #[arg(long, short)]
    force: bool,
    /// Drop every sandbox there is
    #[arg(long)]
    all: bool,
}

impl Drop {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let worker = session.worker(false);
        let mut sandboxes = self.sandboxes;
        if self.all {
            let Reply::List(list) = worker.apply(Action::List)? else {
                return Err(unexpected());
            };
            // Newest first: children before their parents.
            sandboxes = list.sandboxes.into_iter().rev().map(|info| info.name).collect();
        }
        let dropped = match sandboxes.is_empty() {
            true => Vec::new(),
            false => {
                let action = Action::Drop { sandboxes, force: self.force };
                let Reply::Done { dropped } = worker.apply(action)? else {
                    return Err(unexpected());
                };
                dropped
            }
        };
        if session.json {
            return session.print_json(&serde_json::json!({ "dropped": dropped }));
        }
        session.note(&match dropped.is_empty() {
            true => "nothing to drop".to_owned(),
            false => format!("dropped {}", dropped.join(", ")),
        });
        Ok(0)
    }
}
