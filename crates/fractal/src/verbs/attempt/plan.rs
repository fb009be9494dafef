//! What a `try` asks for, completed from the settings and found to be in
//! order before anything runs.

use crate::{Caller, Engine};
use fractal_model::rank::Ranking;
use fractal_model::{Attempt, Check, Code, Criterion, Error, Name, Result, Run, Try};
use fractal_store::{Reads, new_id};
use std::collections::BTreeSet;

/// More than anybody compares.
const ATTEMPTS_MAX: usize = 1000;

/// A `try`, decided.
pub struct Plan {
    pub attempts: Vec<Planned>,
    pub judging: Judging,
    pub stop_first: bool,
    pub budget_ms: Option<u64>,
    /// Attempts at once.
    pub jobs: usize,
    /// A name for the fork on which the checks see the untouched base.
    pub base_name: String,
    /// Bounds and environment of every attempt.
    pub run: Run,
}

/// An attempt and the sandbox it will have.
pub struct Planned {
    pub name: String,
    pub command: Vec<String>,
    pub sandbox: String,
}

/// What attempts are judged by.
pub struct Judging {
    pub checks: Vec<Check>,
    pub repeat: u32,
    pub score: Option<String>,
    pub ranking: Ranking,
}

impl Judging {
    /// What was asked, and what the settings say where nothing was.
    pub fn new(caller: &Caller, asked: Judged<'_>) -> Result<Judging> {
        let settings = caller.config.try_settings();
        let checks = match asked.checks {
            [] => caller.config.checks(),
            given => given.to_vec(),
        };
        refuse_doubles("check", checks.iter().map(|check| check.name.as_str()))?;
        let criteria = match asked.criteria {
            [] => settings.criteria.unwrap_or_else(|| Criterion::ALL.to_vec()),
            given => given.to_vec(),
        };
        let mut weights = settings.weights.unwrap_or_default();
        weights.extend(asked.weights.clone());
        let by = asked.rank.cloned().or(settings.rank).unwrap_or_default();
        Ok(Judging {
            checks,
            repeat: asked.repeat.or(settings.repeat).unwrap_or(1).max(1),
            score: asked.score.map(str::to_owned).or(settings.score),
            ranking: Ranking { by, criteria, weights },
        })
    }
}

/// The judging that a request asks for; what is empty comes from settings.
pub struct Judged<'a> {
    pub checks: &'a [Check],
    pub repeat: Option<u32>,
    pub score: Option<&'a str>,
    pub rank: Option<&'a fractal_model::RankBy>,
    pub criteria: &'a [Criterion],
    pub weights: &'a std::collections::BTreeMap<Criterion, u32>,
}

impl Plan {
    pub fn new(engine: &Engine, caller: &Caller, asked: Try) -> Result<Plan> {
        let mut judging = Judging::new(
            caller,
            Judged {
                checks: &asked.checks,
                repeat: asked.repeat,
                score: asked.score.as_deref(),
                rank: asked.rank.as_ref(),
                criteria: &asked.criteria,
                weights: &asked.weights,
            },
        )?;
        // What bounds an attempt bounds its checks.
        for check in &mut judging.checks {
            check.time_ms = check.time_ms.or(asked.run.ask.limits.time_ms);
        }
        let settings = caller.config.try_settings();
        let attempts = match asked.attempts.is_empty() {
            true => caller.config.attempts(),
            false => asked.attempts,
        };
        validate(&attempts)?;
        let prefix = free_prefix(engine, caller.reach.home(), &attempts)?;
        let memory_bytes =
            asked.run.ask.limits.memory_bytes.or(caller.config.limits()?.memory_bytes);
        let jobs = asked.jobs.or(settings.jobs).map_or_else(cores, |jobs| jobs.max(1) as usize);
        Ok(Plan {
            judging,
            stop_first: asked.stop_first || settings.stop_first.unwrap_or(false),
            budget_ms: asked.budget_ms.or(settings.budget_ms),
            jobs: jobs.min(fitting(memory_bytes)).min(attempts.len() + 1),
            base_name: format!("{prefix}.base"),
            attempts: attempts
                .into_iter()
                .map(|Attempt { name, command }| Planned {
                    sandbox: sandbox_name(&prefix, &name),
                    name,
                    command,
                })
                .collect(),
            run: Run { base: asked.base, ..asked.run },
        })
    }
}

fn validate(attempts: &[Attempt]) -> Result<()> {
    if attempts.is_empty() {
        return Err(Error::invalid("there is nothing to try").hint(
            "write `fractal try --each 'CMD' --each 'CMD'`, `fractal try -n 3 -- CMD`, or \
             [[attempt]] in fractal.toml",
        ));
    }
    if attempts.len() > ATTEMPTS_MAX {
        let what = format!("{} attempts at once are too many", attempts.len());
        return Err(Error::new(Code::Limit, what).hint(format!("try at most {ATTEMPTS_MAX}")));
    }
    for attempt in attempts {
        Name::parse(&attempt.name)?;
        Name::parse(&sandbox_name("try-0000", &attempt.name))?;
        if attempt.command.is_empty() {
            return Err(Error::invalid(format!("attempt `{}` has no command", attempt.name))
                .hint("write `fractal try --each 'CMD'`"));
        }
    }
    refuse_doubles("attempt", attempts.iter().map(|attempt| attempt.name.as_str()))
}

fn refuse_doubles<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::invalid(format!("there are two {what}s `{name}`"))
                .hint(format!("give every {what} a name of its own")));
        }
    }
    Ok(())
}

fn sandbox_name(prefix: &str, attempt: &str) -> String {
    format!("{prefix}-{attempt}")
}

/// `try-7k2q`, such that no sandbox of these attempts has its name already.
fn free_prefix(engine: &Engine, home: &str, attempts: &[Attempt]) -> Result<String> {
    const TRIES: usize = 32;
    for _ in 0..TRIES {
        let prefix = format!("try-{}", new_id().as_str()[22..].to_lowercase());
        let mut free = true;
        for attempt in attempts {
            free &=
                engine.store.sandbox_named(home, &sandbox_name(&prefix, &attempt.name))?.is_none();
        }
        if free {
            return Ok(prefix);
        }
    }
    Err(Error::new(Code::Busy, "there are too many sandboxes of earlier attempts")
        .hint("`fractal list` shows them, `fractal drop` forgets them"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// How many runs of this much memory the machine has room for.
fn fitting(memory_bytes: Option<u64>) -> usize {
    let total = super::super::run::place::memory_total_bytes();
    let each = memory_bytes.filter(|bytes| *bytes > 0);
    each.map_or(usize::MAX, |each| usize::try_from(total / each).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_need_names_of_their_own_and_commands() {
        let attempt = |name: &str| Attempt { name: name.into(), command: vec!["true".into()] };
        let check = |list: &[Attempt], words: Option<&str>| match (validate(list), words) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert!(error.message.contains(words), "{error}"),
            (result, _) => panic!("{result:?}"),
        };
        check(&[attempt("a"), attempt("b")], None);
        check(&[], Some("nothing to try"));
        check(&[attempt("a"), attempt("a")], Some("two attempts `a`"));
        check(&[attempt("a b")], Some("not a name"));
        check(&[attempt(&"n".repeat(60))], Some("not a name"));
        check(&[Attempt { name: "a".into(), command: Vec::new() }], Some("no command"));
    }
}
