//! What a new run finds inside: the flags that `run`, `try` and `guard` share.

use crate::bounds::{Bounds, base_kind, duration};
use crate::session::Session;
use crate::table::plain;
use fractal::Error;
use fractal::model::{BaseKind, World};
use std::collections::BTreeMap;

/// Environment and sandbox of a run.
#[derive(clap::Args)]
pub struct Inside {
    /// Set a variable inside; without a value, pass on the caller's (repeatable)
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Start in this directory instead of the current one
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,
    /// Make a new sandbox from this template
    #[arg(long, env = "FRACTAL_TEMPLATE", value_name = "NAME", hide_env_values = true)]
    pub template: Option<String>,
    /// Let a new sandbox expire when unused for so long, as in 7d
    #[arg(long, env = "FRACTAL_TTL", value_name = "DURATION", value_parser = duration, hide_env_values = true)]
    pub ttl: Option<u64>,
    /// What a new sandbox stands on: the host as it is at each moment (live), or
    /// the current directory as it is now (frozen)
    #[arg(long, env = "FRACTAL_BASE", value_name = "KIND", value_parser = base_kind, default_value = "live", hide_env_values = true)]
    pub base: BaseKind,
    /// Write down what comes of it in this experiment [default: the one that
    /// you stand in, if any]
    #[arg(long, env = "FRACTAL_EXPERIMENT", value_name = "NAME", hide_env_values = true)]
    pub experiment: Option<String>,
}

/// Which sandbox a run happens in.
#[derive(clap::Args)]
pub struct Target {
    /// Run in this sandbox
    #[arg(long = "in", value_name = "S", conflicts_with = "name")]
    sandbox: Option<String>,
    /// Keep the new sandbox under this name
    #[arg(long, value_name = "NAME", conflicts_with = "rm")]
    name: Option<String>,
    /// Drop the new sandbox afterwards, whatever changed; with `--in`, run in a
    /// throw-away child
    #[arg(long)]
    rm: bool,
}

impl Target {
    /// Refuses what would be ignored because the sandbox exists.
    pub fn check(&self, inside: &Inside) -> Result<(), Error> {
        if self.sandbox.is_none() {
            return Ok(());
        }
        let template = std::env::var("FRACTAL_TEMPLATE").ok();
        only_for_new("--template", "--in", inside.template.clone(), template)?;
        only_for_new("--ttl", "--in", inside.ttl, variable("FRACTAL_TTL", duration))?;
        let base = Some(inside.base).filter(|base| *base != BaseKind::default());
        only_for_new("--base", "--in", base, variable("FRACTAL_BASE", base_kind))
    }

    /// Whether a new one is made.
    pub fn is_new(&self) -> bool {
        self.sandbox.is_none()
    }

    /// The run, in this sandbox.
    pub fn of(self, run: fractal::Run) -> fractal::Run {
        fractal::Run { sandbox: self.sandbox, name: self.name, discard: self.rm, ..run }
    }
}

/// Refuses a flag that would be ignored because the sandbox exists. A variable
/// is a default for sandboxes to come and does not speak of this one.
pub fn only_for_new<T: PartialEq>(
    flag: &str,
    existing: &str,
    given: Option<T>,
    default: Option<T>,
) -> Result<(), Error> {
    if given.is_none() || given == default {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{flag} is for a new sandbox, and {existing} names one that exists"
    ))
    .hint(format!("leave out {flag}, or leave out {existing} to make a new one")))
}

/// A variable as its flag would be read.
fn variable<T, E>(name: &str, read: impl Fn(&str) -> Result<T, E>) -> Option<T> {
    std::env::var(name).ok().and_then(|text| read(&text).ok())
}

/// Which world a run happens in.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct Where {
    /// Run in the virtual world: a shell in memory that sees the project and
    /// nothing else of this machine
    #[arg(long = "virtual")]
    in_memory: bool,
    /// Run real programs, also in a sandbox that was made for the virtual world
    #[arg(long)]
    native: bool,
}

impl Where {
    /// What was asked for, if anything was.
    pub fn world(&self) -> Option<World> {
        match (self.in_memory, self.native) {
            (true, _) => Some(World::Virtual),
            (_, true) => Some(World::Native),
            _ => None,
        }
    }
}

/// The flags of a run in memory that is given code: `sh` and `py`.
#[derive(clap::Args)]
pub struct InMemory {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    inside: Inside,
    /// Say more: isolation and usage of the run
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    bounds: Bounds,
}

impl InMemory {
    /// Whether a new sandbox is made.
    pub fn is_new(&self) -> bool {
        self.target.is_new()
    }

    /// A run of this command in the virtual world.
    pub fn run(self, command: Vec<String>, session: &Session) -> Result<fractal::Run, Error> {
        self.target.check(&self.inside)?;
        let is_new = self.is_new();
        let mut run = self.target.of(fractal::Run {
            command,
            world: Some(World::Virtual),
            ..self.inside.run(&self.bounds, session)?
        });
        if is_new {
            run.template.get_or_insert_with(|| "virtual".to_owned());
        }
        Ok(run)
    }
}

impl Inside {
    /// A run like this, still without a command.
    pub fn run(self, bounds: &Bounds, session: &Session) -> Result<fractal::Run, Error> {
        Ok(fractal::Run {
            env: variables(&self.env)?,
            cwd: self.workdir.as_deref().map(|dir| session.absolute(dir)).transpose()?,
            ask: bounds.policy(session)?,
            network: bounds.net.clone(),
            template: self.template,
            ttl_ms: self.ttl,
            base: self.base,
            experiment: self.experiment,
            ..fractal::Run::default()
        })
    }
}

/// Reads `NAME=VALUE`, and takes the caller's value for a bare `NAME`.
fn variables(list: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let mut env = BTreeMap::new();
    for item in list {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (item.as_str(), inherited(item)?),
        };
        if name.is_empty() {
            return Err(Error::invalid(format!("--env: `{}` has no name", plain(item)))
                .hint("write `-e NAME=VALUE`"));
        }
        env.insert(name.to_owned(), value);
    }
    Ok(env)
}

fn inherited(name: &str) -> Result<String, Error> {
    let missing = |why: &str| {
        Error::invalid(format!("--env: `{}` {why}", plain(name))).hint("write `-e NAME=VALUE`")
    };
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(std::env::VarError::NotPresent) => Err(missing("is not set here")),
        Err(std::env::VarError::NotUnicode(_)) => Err(missing("is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_need_a_name() {
        let read = |item: &str| variables(&[item.to_owned()]);
        assert_eq!(read("A=b=c").expect("it is fine")["A"], "b=c");
        assert_eq!(read("A=").expect("it is fine")["A"], "");
        assert!(read("=x").is_err());
        assert!(read("FRACTAL_TEST_NOT_SET").is_err());
    }
}
