use crate::args::Cli;
use crate::describe;
use crate::failure::Failure;
use crate::session::Session;
use clap::CommandFactory;
use fractal::Error;

/// Explain a verb, or all of them
///
/// With `--json`, prints the whole command tree as one object: verbs, flags,
/// variables, defaults.
#[derive(clap::Args)]
pub struct Help {
    /// The verb
    #[arg(value_name = "VERB")]
    verb: Vec<String>,
    /// Print the whole reference as Markdown
    #[arg(long, hide = true)]
    markdown: bool,
}

impl Help {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let mut root = Cli::command();
        root.build();
        if self.markdown {
            return session.print(&describe::markdown(&mut root));
        }
        let mut command = &root;
        for word in &self.verb {
            command = command.find_subcommand(word).ok_or_else(|| {
                Error::not_found(format!("there is no verb `{}`", word.escape_debug()))
                    .hint("`fractal --help` lists them")
            })?;
        }
        if session.json {
            return session.print_json(&describe::json(command));
        }
        // Clap answers `VERB --help` with help in the form of an error.
        let words = ["fractal"].into_iter().chain(self.verb.iter().map(String::as_str));
        if let Err(help) = Cli::command().try_get_matches_from(words.chain(["--help"])) {
            help.print()?;
        }
        Ok(0)
    }
}
