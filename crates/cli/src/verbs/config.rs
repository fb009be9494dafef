use crate::failure::Failure;
use crate::session::Session;
use crate::table::{columns, plain};

/// Look at the settings that apply here
///
/// A project's fractal.toml (in this directory or above it) speaks before the
/// user's ~/.config/fractal/config.toml, which speaks before the defaults.
#[derive(clap::Args)]
pub struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Print every setting and its value
    Show {
        /// Print the file each value comes from too
        #[arg(long)]
        origin: bool,
    },
}

impl Config {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let Verb::Show { origin } = self.verb;
        let settings = session.sound_config().settings()?;
        if session.json {
            return session.print_json(&serde_json::json!({ "settings": settings }));
        }
        let rows: Vec<Vec<String>> = settings
            .iter()
            .map(|setting| {
                let mut row = vec![plain(&setting.name), plain(&setting.value)];
                row.extend(origin.then(|| plain(&setting.origin)));
                row
            })
            .collect();
        session.print(&columns(&rows))
    }
}
