use super::run::{Style, carry_out};
use crate::bounds::Bounds;
use crate::failure::Failure;
use crate::inside::only_for_new;
use crate::session::Session;
use fractal::Error;
use std::sync::Arc;

/// Open a shell in a sandbox
///
/// Starts $SHELL in the sandbox, or in a new one if none is named. Leaving the
/// shell leaves the sandbox as it is.
#[derive(clap::Args)]
pub struct Enter {
    /// The sandbox [default: a new one]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// Keep the new sandbox under this name
    #[arg(long, value_name = "NAME", conflicts_with = "sandbox")]
    name: Option<String>,
    /// Make the new sandbox from this template
    #[arg(long, env = "FRACTAL_TEMPLATE", value_name = "NAME", hide_env_values = true)]
    template: Option<String>,
    /// Give the shell a door: `fractal` works inside, below this sandbox
    #[arg(long)]
    door: bool,
    #[command(flatten)]
    bounds: Bounds,
}

impl Enter {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        if session.json {
            return Err(Error::invalid("a shell has no JSON form")
                .hint("use `fractal run --json -- CMD`")
                .into());
        }
        if self.sandbox.is_some() {
            let default = std::env::var("FRACTAL_TEMPLATE").ok();
            only_for_new("--template", "S", self.template.clone(), default)?;
        }
        let shell = std::env::var("SHELL").ok().filter(|shell| !shell.is_empty());
        let run = fractal::Run {
            command: vec![shell.unwrap_or_else(|| "/bin/sh".to_owned())],
            ask: self.bounds.policy(session)?,
            network: self.bounds.net.clone(),
            sandbox: self.sandbox,
            name: self.name,
            template: self.template,
            door: self.door,
            ..fractal::Run::default()
        };
        carry_out(session, &Arc::new(session.engine()?), &session.caller()?, run, Style::default())
    }
}
