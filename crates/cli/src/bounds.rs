//! The flags that bound a run: what people write, and the policy it means.

use crate::session::Session;
use fractal::model::{BaseKind, Check, Limits, Network, Tier, parse_bytes, parse_duration_ms};
use fractal::{Error, Policy};
use std::collections::BTreeSet;

/// Bounds of a run or of a new sandbox. Asking only ever narrows.
#[derive(clap::Args)]
#[command(next_help_heading = "Bounds")]
pub struct Bounds {
    /// Memory of all processes together, as in 512m
    #[arg(long, env = "FRACTAL_MEMORY", value_name = "SIZE", value_parser = size, hide_env_values = true)]
    memory: Option<u64>,
    /// Processors' worth of time, as in 1.5
    #[arg(long, env = "FRACTAL_CPUS", value_name = "COUNT", value_parser = cpu_milli, hide_env_values = true)]
    cpus: Option<u64>,
    /// Processes and threads alive at once
    #[arg(long, env = "FRACTAL_PIDS", value_name = "COUNT", value_parser = count, hide_env_values = true)]
    pids: Option<u64>,
    /// Bytes written to the sandbox's files, as in 256m
    #[arg(long, env = "FRACTAL_DISK", value_name = "SIZE", value_parser = size, hide_env_values = true)]
    disk: Option<u64>,
    /// Time from start to end of a run, as in 30s
    #[arg(long, env = "FRACTAL_TIME", value_name = "DURATION", value_parser = duration, hide_env_values = true)]
    time: Option<u64>,
    /// Bytes of output before the run is stopped, as in 10m
    #[arg(long, env = "FRACTAL_OUTPUT", value_name = "SIZE", value_parser = size, hide_env_values = true)]
    output: Option<u64>,
    /// Network: none, host, or allow:HOST,HOST
    #[arg(long, env = "FRACTAL_NET", value_name = "RULE", value_parser = Network::parse, hide_env_values = true)]
    pub net: Option<Network>,
    /// A path that cannot be written inside (repeatable)
    #[arg(long, value_name = "PATH")]
    ro: Vec<String>,
    /// A path that appears empty inside (repeatable)
    #[arg(long, value_name = "PATH")]
    hide: Vec<String>,
    /// The weakest isolation to accept: clone, masked, rootless or copied
    #[arg(long, env = "FRACTAL_ISOLATION", value_name = "TIER", value_parser = tier, hide_env_values = true)]
    isolation: Option<Tier>,
}

impl Bounds {
    /// What is asked, apart from the network.
    pub fn policy(&self, session: &Session) -> Result<Policy, Error> {
        let absolute = |paths: &[String]| -> Result<BTreeSet<String>, Error> {
            paths.iter().map(|path| session.absolute(path)).collect()
        };
        Ok(Policy {
            limits: Limits {
                cpu_milli: self.cpus,
                memory_bytes: self.memory,
                pids: self.pids,
                disk_bytes: self.disk,
                time_ms: self.time,
                output_bytes: self.output,
            },
            hidden: absolute(&self.hide)?,
            read_only: absolute(&self.ro)?,
            isolation: self.isolation,
            ..Policy::default()
        })
    }
}

/// A bound of nothing would be read as no bound by some of the mechanisms
/// below, so it is refused here.
fn above_zero(number: u64, text: &str, hint: &str) -> Result<u64, Error> {
    if number > 0 {
        return Ok(number);
    }
    Err(Error::invalid(format!("`{}` is not above zero", text.escape_debug())).hint(hint))
}

fn size(text: &str) -> Result<u64, Error> {
    above_zero(parse_bytes(text)?, text, "write a number with k, m, g or t, as in `512m`")
}

/// Reads a duration above zero.
pub fn duration(text: &str) -> Result<u64, Error> {
    above_zero(parse_duration_ms(text)?, text, "write a number with ms, s, m, h or d, as in `30s`")
}

/// Reads a whole number above zero.
pub fn count(text: &str) -> Result<u64, Error> {
    let hint = "write a whole number, as in `256`";
    let number = text.trim().parse().map_err(|_| {
        Error::invalid(format!("`{}` is not a count", text.escape_debug())).hint(hint)
    })?;
    above_zero(number, text, hint)
}

/// The same where nobody means billions: more is as many as there can be.
pub fn small_count(text: &str) -> Result<u32, Error> {
    Ok(u32::try_from(count(text)?).unwrap_or(u32::MAX))
}

/// The kernel counts in microseconds of a 100 ms period; a thousandth of a
/// processor is the finest share it keeps.
fn cpu_milli(text: &str) -> Result<u64, Error> {
    let hint = "write a number of processors of at least 0.001, as in `1.5`";
    let bad = || Error::invalid(format!("`{}` is not a number of processors", text.escape_debug()));
    let cpus: f64 = text.trim().parse().map_err(|_| bad().hint(hint))?;
    let milli = (cpus * 1000.0).round();
    if !(1.0..=1e9).contains(&milli) {
        return Err(bad().hint(hint));
    }
    Ok(milli as u64)
}

fn tier(text: &str) -> Result<Tier, Error> {
    Tier::parse(text).ok_or_else(|| {
        Error::invalid(format!("`{}` is not a tier", text.escape_debug()))
            .hint("use clone, masked, rootless or copied; `fractal doctor` shows what works here")
    })
}

/// Reads what a new sandbox stands on.
pub fn base_kind(text: &str) -> Result<BaseKind, String> {
    match text {
        "live" => Ok(BaseKind::Live),
        "frozen" => Ok(BaseKind::Frozen),
        _ => Err("use live or frozen".to_owned()),
    }
}

/// Reads `NAME=CMD`: a check that must pass.
pub fn check(text: &str) -> Result<Check, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.trim().is_empty() && !command.trim().is_empty() => {
            Ok(Check {
                name: name.trim().to_owned(),
                command: command.to_owned(),
                required: true,
                ..Check::default()
            })
        }
        _ => Err("write it as NAME=CMD, as in test='make test'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_in_thousandths() {
        let check =
            |text: &str, expect: Option<u64>| assert_eq!(cpu_milli(text).ok(), expect, "{text}");
        check("1.5", Some(1500));
        check("0.25", Some(250));
        check("64", Some(64_000));
        for bad in ["0", "-1", "inf", "NaN", "1x", "", "0.0001", "1e12"] {
            check(bad, None);
        }
    }

    #[test]
    fn bounds_of_nothing_are_refused() {
        assert!(size("0").is_err());
        assert!(duration("0s").is_err());
        assert!(count("0").is_err());
        assert_eq!(count("256"), Ok(256));
    }
}
