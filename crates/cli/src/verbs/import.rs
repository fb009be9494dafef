use crate::failure::Failure;
use crate::session::{Session, unexpected};
use fractal::{Action, Reply};

/// Make a sandbox from an archive that `export` wrote, or from any tree
///
/// A directory, .tar, .tar.gz, .zip or .json is put over the project of this
/// directory, in the new sandbox alone: look at it with `fractal diff`, bring
/// it here with `fractal promote`. Prints the name of the new sandbox.
#[derive(clap::Args)]
pub struct Import {
    /// The archive or directory
    #[arg(value_name = "FILE")]
    from: String,
    /// The new sandbox's name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Import {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let from = session.absolute(&self.from)?;
        let action = Action::Import { from, name: self.name };
        let Reply::Sandbox(info) = session.apply(action)? else { return Err(unexpected()) };
        if session.json {
            return session.print_json(&info);
        }
        session.print(&format!("{}\n", info.name))
    }
}
