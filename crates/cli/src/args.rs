//! The root of the command tree: what every verb takes.

use crate::verbs::{Run, Verb};
use clap::Parser;
use clap::builder::FalseyValueParser;
use std::ffi::OsString;
use std::path::PathBuf;

/// Run programs in instant, isolated copies of this machine
///
/// `fractal run -- CMD` runs a real program in a copy-on-write clone of the
/// current environment, under hard limits, and shows afterwards exactly what
/// it changed. Reality stays as it was.
#[derive(Parser)]
#[command(
    name = "fractal",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    propagate_version = false,
    after_help = "Exit status: the program's own for `run` and `enter`; 124 time limit, 125 our \
                  failure, 137 memory, disk or output limit, 2 usage, 3 gate, 4 denied, 5 \
                  conflict, 6 not found."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Reads the command line. Describing all verbs to clap takes a good part
    /// of a millisecond, so `run`, whose start people measure, is tried by
    /// itself first; whatever does not parse there goes to the whole tree,
    /// which knows the words for it.
    pub fn read() -> Result<Cli, clap::Error> {
        let args: Vec<OsString> = std::env::args_os().collect();
        if args.get(1).is_some_and(|word| word == "run")
            && let Ok(RunOnly { global, verb: OnlyRun::Run(run) }) = RunOnly::try_parse_from(&args)
        {
            return Ok(Cli { global, verb: Verb::Run(run) });
        }
        Cli::try_parse_from(args)
    }
}

#[derive(Parser)]
#[command(name = "fractal", disable_help_subcommand = true)]
struct RunOnly {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: OnlyRun,
}

#[derive(clap::Subcommand)]
enum OnlyRun {
    Run(Run),
}

/// What every verb takes.
#[derive(clap::Args)]
pub struct Global {
    /// State directory [default: $XDG_DATA_HOME/fractal or ~/.local/share/fractal]
    #[arg(
        long,
        global = true,
        env = "FRACTAL_HOME",
        value_name = "DIR",
        help_heading = "Global options",
        hide_env_values = true
    )]
    pub home: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(
        long,
        global = true,
        env = "FRACTAL_JSON",
        value_parser = FalseyValueParser::new(),
        help_heading = "Global options",
        hide_env_values = true
    )]
    pub json: bool,
    /// The name under which this is written down; taken on your word
    #[arg(
        long,
        global = true,
        env = "FRACTAL_WHO",
        value_name = "NAME",
        default_value = "owner",
        help_heading = "Global options",
        hide_env_values = true
    )]
    pub who: String,
    /// Work as if started in DIR
    #[arg(short = 'C', global = true, value_name = "DIR", help_heading = "Global options")]
    pub directory: Option<PathBuf>,
    /// Ask no server that runs on the state directory; FRACTAL_SERVER=off does
    /// the same
    #[arg(long, global = true, help_heading = "Global options")]
    pub no_server: bool,
    /// Leave out notes on standard error; errors stay
    #[arg(
        long,
        short,
        global = true,
        env = "FRACTAL_QUIET",
        value_parser = FalseyValueParser::new(),
        help_heading = "Global options",
        hide_env_values = true
    )]
    pub quiet: bool,
}
