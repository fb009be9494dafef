use crate::args::Cli;
use crate::failure::Failure;
use crate::session::Session;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a completion script for a shell
///
/// For bash, put `source <(fractal completions bash)` into ~/.bashrc; for zsh
/// and fish, write it to a file in the shell's completion directory.
#[derive(clap::Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "fractal", &mut script);
        session.print(&String::from_utf8_lossy(&script))
    }
}
