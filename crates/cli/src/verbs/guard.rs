use super::run::{Style, io_for, remarks};
use crate::bounds::Bounds;
use crate::failure::Failure;
use crate::inside::Inside;
use crate::promotion::{self, Gate};
use crate::session::Session;
use fractal::model::{Guard as Asked, GuardReply, Outcome, Promote};
use std::io::Write;

/// Run a program unattended; promote what it did only if it passes
///
/// The program works in a fork of this machine. If it exits with 0, what it
/// changed below the current directory goes through the gate (the checks of
/// `fractal.toml` and those given here) and into reality, with an undo.
/// Otherwise reality stays as it was and the sandbox keeps the evidence. It
/// never asks.
///
/// Exit status: 0 promoted, or nothing to promote; the program's own when it
/// failed; 3 a check did not pass, 4 denied, 5 conflict.
#[derive(clap::Args)]
#[command(override_usage = "fractal guard [OPTIONS] -- CMD...")]
pub struct Guard {
    /// Keep the sandbox under this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    gate: Gate,
    #[command(flatten)]
    inside: Inside,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
    #[command(flatten)]
    bounds: Bounds,
}

impl Guard {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let asked = Asked {
            run: fractal::Run {
                command: self.command,
                name: self.name,
                ..self.inside.run(&self.bounds, session)?
            },
            promote: Promote {
                checks: self.gate.check,
                allow_autorun: self.gate.allow_autorun,
                ..Promote::default()
            },
        };
        let (engine, caller) = (session.engine()?, session.caller()?);
        let reply = engine.guard(&caller, asked, io_for(session, Style::default())?)?;
        if session.json {
            session.print_json(&reply)?;
        } else {
            tell(session, &reply)?;
        }
        Ok(status(&reply))
    }
}

fn tell(session: &Session, reply: &GuardReply) -> Result<(), Failure> {
    // Empty when it was streamed, but for a program that did not start.
    let _ = std::io::stderr().write_all(reply.run.stderr.as_bytes());
    remarks(session, &reply.run, true, false);
    match &reply.promotion {
        Some(promotion) => promotion::tell(session, promotion).map(|_| ()),
        None if reply.run.exit != 0 => {
            let name = &reply.run.sandbox;
            let kept = match reply.run.kept {
                true => format!("; its work is in {name} (fractal diff {name})"),
                false => String::new(),
            };
            session.note(&format!("not promoted: exit status {}{kept}", reply.run.exit));
            Ok(())
        }
        None => {
            session.note("nothing to promote: it changed nothing");
            Ok(())
        }
    }
}

fn status(reply: &GuardReply) -> u8 {
    match &reply.promotion {
        Some(promotion) => promotion::status(promotion),
        None if reply.run.outcome == Outcome::Exited && reply.run.exit == 0 => 0,
        // Exit statuses of programs have eight bits.
        None => (reply.run.exit & 0xff) as u8,
    }
}
