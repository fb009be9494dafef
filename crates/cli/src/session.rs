//! One call of the program: who asks, from where, and how to answer.

use crate::args::Global;
use crate::failure::Failure;
use crate::remote::{Door, Facts, Runs, Server};
use crate::worker::Worker;
use fractal::model::Name;
use fractal::{Action, Caller, Code, Config, Engine, Error, Reply};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The environment of this call, read once.
#[derive(Clone)]
pub struct Session {
    pub json: bool,
    quiet: bool,
    home: Option<PathBuf>,
    directory: PathBuf,
    who: String,
    /// Whether a server that runs may be asked.
    asks_server: bool,
    /// The door of the sandbox that we are in.
    door: Option<Door>,
}

impl Session {
    /// Enters the directory asked for.
    pub fn new(global: Global) -> Result<Session, Failure> {
        if let Some(directory) = &global.directory {
            std::env::set_current_dir(directory).map_err(|error| {
                Error::not_found(format!("cannot enter {}: {error}", directory.display()))
                    .hint("name an existing directory with `-C DIR`")
            })?;
        }
        // `current_dir` is canonical: it comes from the kernel.
        let directory = std::env::current_dir().map_err(|error| {
            Error::not_found(format!("the current directory is gone: {error}")).hint("`cd` to one")
        })?;
        // It stands in tables and in the journal, as names of sandboxes do.
        let who = Name::parse(&global.who)
            .map_err(|error| Error { message: format!("--who: {}", error.message), ..error })?;
        let who = who.to_string();
        let is_off = std::env::var_os("FRACTAL_SERVER").is_some_and(|value| value == "off");
        // Who names a state directory means that one.
        let door = Door::find().filter(|_| global.home.is_none());
        Ok(Session {
            json: global.json,
            quiet: global.quiet,
            home: global.home,
            directory,
            who,
            asks_server: !global.no_server && !is_off,
            door,
        })
    }

    /// Whether notes are left out.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Where this call comes from.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The state directory: the one asked for, or the user's.
    pub fn home(&self) -> Result<PathBuf, Error> {
        let own = || Some(user_directory("XDG_DATA_HOME", ".local/share")?.join("fractal"));
        let home = self.home.clone().filter(|home| !home.as_os_str().is_empty()).or_else(own);
        home.map(|home| self.directory.join(home)).ok_or_else(|| {
            Error::invalid("there is no home directory to keep sandboxes in")
                .hint("name one with `--home DIR` or set FRACTAL_HOME")
        })
    }

    /// The door of the sandbox that this call comes from, if it has one.
    pub fn door(&self) -> Option<&Door> {
        self.door.as_ref()
    }

    /// Refuses what needs the state directory, of which there is none inside.
    pub fn refuse_inside(&self) -> Result<(), Error> {
        match self.door {
            None => Ok(()),
            Some(_) => Err(Error::new(Code::Unsupported, "this does not go through a door").hint(
                "these do: run, fork, snapshot, rollback, diff, list, show, log, promote, drop",
            )),
        }
    }

    /// Opens the state directory.
    pub fn engine(&self) -> Result<Engine, Error> {
        self.refuse_inside()?;
        Engine::open(&self.home()?)
    }

    /// The same, for a verb that opens it when it needs it.
    pub fn late_engine(&self) -> Result<Engine, Error> {
        self.refuse_inside()?;
        Engine::at(&self.home()?)
    }

    /// The settings that apply here, as far as their files can be read; says
    /// which cannot.
    pub fn sound_config(&self) -> Config {
        let (config, broken) = Config::load_sound(&self.directory, user_file().as_deref());
        if let Some(error) = broken {
            self.note(&format!("warning: not used: {}", error.message));
        }
        config
    }

    /// The local user in this directory, under the name that was given.
    pub fn caller(&self) -> Result<Caller, Error> {
        Ok(self.caller_with(Config::load(&self.directory, user_file().as_deref())?))
    }

    /// The same for a verb that acts on no setting: a broken file must not
    /// stand in the way of looking and cleaning up.
    pub fn caller_without_settings(&self) -> Caller {
        self.caller_with(self.sound_config())
    }

    fn caller_with(&self, config: Config) -> Caller {
        Caller {
            who: self.who.clone(),
            environment: std::env::vars_os().collect(),
            config,
            ..Caller::owner(&self.directory)
        }
    }

    /// Carries out one action.
    pub fn apply(&self, action: Action) -> Result<Reply, Error> {
        self.worker(action.needs_settings()).apply(action)
    }

    /// Whoever carries out actions for this call.
    pub fn worker(&self, needs_settings: bool) -> Worker<'_> {
        Worker::new(self, needs_settings)
    }

    /// The server of the state directory, or why there is none for us.
    pub fn server(&self) -> Result<Server, String> {
        let (home, facts) = self.facts()?;
        Server::find(&home, facts)
    }

    /// The same, for a run with our own input and output.
    pub fn runs(&self) -> Result<Runs, String> {
        let (home, facts) = self.facts()?;
        Runs::find(&home, facts)
    }

    fn facts(&self) -> Result<(PathBuf, Facts), String> {
        if !self.asks_server {
            return Err("it is switched off (--no-server or FRACTAL_SERVER=off)".to_owned());
        }
        let home = self.home().map_err(|error| error.message)?;
        let variables = std::env::vars_os();
        let facts = Facts::new(&self.directory, &self.who, variables, user_file().as_deref());
        let facts = facts.ok_or("directory or environment cannot be told in headers")?;
        Ok((home, facts))
    }

    /// An absolute path for a path of the caller.
    pub fn absolute(&self, path: &str) -> Result<String, Error> {
        let path = self.directory.join(path);
        path.into_os_string().into_string().map_err(|path| {
            Error::invalid(format!("{} is not UTF-8", path.to_string_lossy().escape_debug()))
        })
    }

    /// Prints one JSON object on a line of its own.
    pub fn print_json(&self, value: &impl Serialize) -> Result<u8, Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Error::new(Code::Internal, format!("cannot write JSON: {error}")))?;
        self.print(&format!("{text}\n"))
    }

    /// Prints data.
    pub fn print(&self, text: &str) -> Result<u8, Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(0)
    }

    /// Says why something was not done, however quiet we are to be.
    pub fn complain(&self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Tells a person something on standard error.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // Nobody is left to tell when standard error is gone.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// The user's own settings.
pub fn user_file() -> Option<PathBuf> {
    Some(user_directory("XDG_CONFIG_HOME", ".config")?.join("fractal/config.toml"))
}

/// A directory of the XDG specification, which ignores relative values.
fn user_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute =
        |value: std::ffi::OsString| Some(PathBuf::from(value)).filter(|p| p.is_absolute());
    let named = std::env::var_os(variable).and_then(absolute);
    named.or_else(|| Some(std::env::var_os("HOME").and_then(absolute)?.join(below_home)))
}

/// A verb answered with another verb's reply: a defect of the engine.
pub fn unexpected() -> Failure {
    Error::internal("the engine gave an answer of another verb").into()
}
