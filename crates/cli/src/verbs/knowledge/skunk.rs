use super::{day, line, place};
use crate::bounds::Bounds;
use crate::failure::Failure;
use crate::promotion;
use crate::session::{Session, unexpected};
use crate::table::{columns, plain};
use crate::verbs::run::{Style, carry_out};
use fractal::model::{Extract, Network, SkunkInfo, SkunkNew, SkunkReply, SkunkVerb};
use fractal::{Action, Error, Reply};
use std::sync::Arc;

/// Experiment in a directory of its own, and keep what comes of it
///
/// An experiment is `sandbox/NAME_skunkworks/` in the project: a problem, an
/// environment of its own, and records of everything that was tried. Runs with
/// `--experiment NAME`, or from within that directory, are written down there.
#[derive(clap::Args)]
pub struct Skunk {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Begin an experiment
    ///
    ///   fractal skunk new "parallel tool calling" --with uv --add httpx --net host
    #[command(verbatim_doc_comment)]
    New {
        /// The problem, in one line
        title: String,
        /// Make its environment with this tool, in a sandbox: uv, cargo, npm or empty
        #[arg(long, value_name = "TOOL")]
        with: Option<String>,
        /// A package to add to it (repeatable)
        #[arg(long, value_name = "PACKAGE")]
        add: Vec<String>,
        /// As a part of this experiment [default: the one that you stand in]
        #[arg(long = "in", value_name = "NAME")]
        within: Option<String>,
        /// The problem in more words
        #[arg(short, long, value_name = "TEXT", default_value = "")]
        body: String,
        /// A word to find it by (repeatable)
        #[arg(short, long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        /// What the tool may reach while it makes the environment: none, host, or allow:HOST,…
        #[arg(long, value_name = "NET", value_parser = Network::parse)]
        net: Option<Network>,
    },
    /// List experiments
    #[command(visible_alias = "ls")]
    List {
        /// Archived ones, too
        #[arg(short, long)]
        all: bool,
    },
    /// Show an experiment and everything that was written down
    Show {
        /// The experiment
        name: String,
    },
    /// Run a program in its directory, in a sandbox, and write down what came of it
    #[command(override_usage = "fractal skunk run [OPTIONS] NAME -- CMD...")]
    Run {
        /// The experiment
        name: String,
        #[command(flatten)]
        bounds: Bounds,
        /// Keep the sandbox under this name
        #[arg(long = "name", value_name = "S")]
        sandbox: Option<String>,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Take out what works: as a pattern, and as a template for new sandboxes
    ///
    ///   fractal skunk extract pool-timeouts --files src/pool.py --template pooled
    ///   fractal run --template pooled -- ls /pattern/pooled
    #[command(verbatim_doc_comment)]
    Extract {
        /// The experiment
        name: String,
        /// A file or directory of it that belongs to the pattern (repeatable)
        #[arg(long, value_name = "PATH", num_args = 1..)]
        files: Vec<String>,
        /// Make a template of this name in fractal.toml
        #[arg(long, value_name = "TEMPLATE")]
        template: Option<String>,
        /// Promote the files into this directory of the project, behind its
        /// checks and with an undo
        #[arg(long, value_name = "DIR", requires = "files")]
        into: Option<String>,
        /// What the pattern is called [default: the problem]
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,
        /// What was understood, in Markdown
        #[arg(long, value_name = "TEXT")]
        insight: Option<String>,
    },
    /// Say that no more is tried; everything stays and is found
    Archive {
        /// The experiment
        name: String,
        /// Go on with it after all
        #[arg(long)]
        undo: bool,
    },
    /// Make an experiment of a directory that exists
    ///
    /// One that lies in `sandbox/` and ends with `_skunkworks` is adopted where
    /// it is; any other is copied there.
    Import {
        /// The directory
        #[arg(value_name = "DIR")]
        from: String,
        /// The problem, in one line [default: after the directory]
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,
    },
}

impl Skunk {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let verb = match self.verb {
            Verb::Run { name, bounds, sandbox, command } => {
                return run(session, name, &bounds, sandbox, command);
            }
            Verb::New { title, with, add, within, body, tags, net } => {
                SkunkVerb::New(SkunkNew { title, with, add, within, body, network: net, tags })
            }
            Verb::List { all } => SkunkVerb::List { all },
            Verb::Show { name } => SkunkVerb::Show { name },
            Verb::Extract { name, files, template, into, title, insight } => {
                SkunkVerb::Extract(Extract { name, title, files, template, insight, into })
            }
            Verb::Archive { name, undo } => SkunkVerb::Archive { name, undo },
            Verb::Import { from, title } => {
                SkunkVerb::Import { from: session.absolute(&from)?, title }
            }
        };
        let is_show = matches!(verb, SkunkVerb::Show { .. });
        let reply = session.apply(Action::Skunk(Box::new(verb)))?;
        if session.json {
            return session.print_json(&reply);
        }
        match reply {
            Reply::Skunks { skunks } => list(session, &skunks),
            Reply::Skunk(reply) if is_show => show(session, &reply),
            Reply::Skunk(reply) => {
                reply.notes.iter().for_each(|note| session.note(&plain(note)));
                session.note(&format!(
                    "{}: {}",
                    plain(&reply.skunk.name),
                    plain(&reply.skunk.status)
                ));
                session.print(&format!("{}\n", plain(&reply.skunk.path)))
            }
            Reply::Extract(reply) => {
                if let Some(template) = &reply.template {
                    session.note(&format!(
                        "a new sandbox has it with `fractal run --template {} -- CMD`",
                        plain(template)
                    ));
                }
                let it = &reply.pattern;
                let status = reply.promotion.as_ref().map(|done| {
                    promotion::remarks(session, done);
                    promotion::status(done)
                });
                let file = place(session, it.file.as_deref(), &it.root, &it.path);
                session.print(&format!("{file}\n"))?;
                Ok(status.unwrap_or(0))
            }
            _ => Err(unexpected()),
        }
    }
}

/// A run in the experiment's directory.
fn run(
    session: &Session,
    name: String,
    bounds: &Bounds,
    sandbox: Option<String>,
    command: Vec<String>,
) -> Result<u8, Failure> {
    let show = Action::Skunk(Box::new(SkunkVerb::Show { name: name.clone() }));
    let Reply::Skunk(reply) = session.apply(show)? else { return Err(unexpected()) };
    let directory = reply.directory.ok_or_else(|| {
        Error::denied("only the local user runs experiments").hint("run it without a key")
    })?;
    let run = fractal::Run {
        command,
        name: sandbox,
        cwd: Some(directory),
        ask: bounds.policy(session)?,
        network: bounds.net.clone(),
        experiment: Some(reply.skunk.name),
        ..fractal::Run::default()
    };
    let (engine, caller) = (Arc::new(session.engine()?), session.caller()?);
    carry_out(session, &engine, &caller, run, Style::default())
}

fn list(session: &Session, skunks: &[SkunkInfo]) -> Result<u8, Failure> {
    if skunks.is_empty() {
        session.note("there are no experiments (fractal skunk new \"TITLE\" begins one)");
        return Ok(0);
    }
    let head = ["NAME", "STATUS", "LAST", "RECORDS", "PROBLEM"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(skunks.iter().map(|one| {
        vec![
            plain(&one.name),
            plain(&one.status),
            day(one.last_ms),
            one.records.values().sum::<u64>().to_string(),
            plain(&one.title),
        ]
    }));
    session.print(&columns(&rows))
}

fn show(session: &Session, reply: &SkunkReply) -> Result<u8, Failure> {
    let one = &reply.skunk;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let records: Vec<String> =
        one.records.iter().map(|(kind, count)| format!("{count} {}", plain(kind))).collect();
    let mut rows = vec![
        row("problem", plain(&one.title)),
        row("name", plain(&one.name)),
        row("path", plain(&one.path)),
        row("status", plain(&one.status)),
    ];
    rows.extend(one.with.as_deref().map(|with| row("environment", plain(with))));
    rows.push(row("records", records.join(", ")));
    let parts = reply.parts.iter().map(|part| plain(&part.name)).collect::<Vec<_>>();
    if !parts.is_empty() {
        rows.push(row("parts", parts.join(", ")));
    }
    session.print(&columns(&rows))?;
    if !reply.journey.is_empty() {
        let rows: Vec<Vec<String>> = reply.journey.iter().map(line).collect();
        session.print(&format!("\n{}", columns(&rows)))?;
    }
    Ok(0)
}
