//! What a file says about checks and attempts: `[[check]]`, `[[attempt]]` and
//! `[try]`.
//!
//! All of it is read when the file is, with the place of each value at hand:
//! a mistake is reported with file, line and what may stand there, before
//! anything runs. The strongest file that declares any checks (or attempts)
//! declares all of them; settings of `[try]` are taken one by one.

use super::{Config, FILE_NAME, Setting, Source, line_of};
use fractal_model::{
    Attempt, Check, Criterion, Error, Name, RankBy, Result, format_duration_ms, parse_duration_ms,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// More repeats than anybody waits for.
const REPEAT_MAX: u32 = 1000;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckFile {
    name: Spanned<String>,
    command: Spanned<String>,
    required: Option<bool>,
    time: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttemptFile {
    name: Spanned<String>,
    command: Spanned<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TryFile {
    score: Option<String>,
    rank: Option<Spanned<String>>,
    criteria: Option<Vec<Spanned<String>>>,
    weights: Option<BTreeMap<Spanned<String>, u32>>,
    repeat: Option<Spanned<u32>>,
    jobs: Option<Spanned<u32>>,
    budget: Option<Spanned<String>>,
    stop_first: Option<bool>,
}

/// What one file declares, found to be in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Declared {
    checks: Vec<Check>,
    attempts: Vec<Attempt>,
    tries: TrySettings,
}

impl Declared {
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }
}

/// What `[try]` settles for attempts that do not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrySettings {
    /// A command that prints a number; higher is better.
    pub score: Option<String>,
    /// How the order is found.
    pub rank: Option<RankBy>,
    /// The criteria, the weightiest first.
    pub criteria: Option<Vec<Criterion>>,
    /// Weights of criteria, where they are not the usual ones.
    pub weights: Option<BTreeMap<Criterion, u32>>,
    /// How often each check is repeated.
    pub repeat: Option<u32>,
    /// Attempts at once.
    pub jobs: Option<u32>,
    /// Time for everything together.
    pub budget_ms: Option<u64>,
    /// Cancel the rest when one passes.
    pub stop_first: Option<bool>,
}

/// A file while it is read: where it is, and its text for line numbers.
pub(super) struct Reading<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Reading<'_> {
    pub fn declared(
        &self,
        checks: Vec<CheckFile>,
        attempts: Vec<AttemptFile>,
        tries: TryFile,
    ) -> Result<Declared> {
        self.refuse_doubles("check", checks.iter().map(|check| &check.name))?;
        self.refuse_doubles("attempt", attempts.iter().map(|attempt| &attempt.name))?;
        Ok(Declared {
            checks: checks.into_iter().map(|check| self.check(check)).collect::<Result<_>>()?,
            attempts: attempts
                .into_iter()
                .map(|attempt| self.attempt(attempt))
                .collect::<Result<_>>()?,
            tries: self.tries(tries)?,
        })
    }

    fn check(&self, file: CheckFile) -> Result<Check> {
        self.not_empty("check.command", &file.command)?;
        Ok(Check {
            name: self.name("check.name", &file.name)?,
            command: file.command.into_inner(),
            required: file.required.unwrap_or(true),
            time_ms: self.duration("check.time", file.time)?,
            directory: None,
        })
    }

    fn attempt(&self, file: AttemptFile) -> Result<Attempt> {
        self.not_empty("attempt.command", &file.command)?;
        let command = ["sh", "-c", file.command.get_ref()].map(str::to_owned).into();
        Ok(Attempt { name: self.name("attempt.name", &file.name)?, command })
    }

    fn tries(&self, file: TryFile) -> Result<TrySettings> {
        let criterion = |text: &Spanned<String>| {
            Criterion::parse(text.get_ref()).map_err(|error| self.at(text.span(), "try", &error))
        };
        let criteria = file.criteria.map(|list| list.iter().map(criterion).collect());
        let weight = |(name, weight): (&Spanned<String>, &u32)| {
            criterion(name).map(|criterion| (criterion, *weight))
        };
        let weights = file.weights.map(|map| map.iter().map(weight).collect());
        let rank = file.rank.map(|text| {
            RankBy::parse(text.get_ref()).map_err(|error| self.at(text.span(), "try.rank", &error))
        });
        Ok(TrySettings {
            score: file.score,
            rank: rank.transpose()?,
            criteria: criteria.transpose()?,
            weights: weights.transpose()?,
            repeat: self.count("try.repeat", file.repeat, REPEAT_MAX)?,
            jobs: self.count("try.jobs", file.jobs, u32::MAX)?,
            budget_ms: self.duration("try.budget", file.budget)?,
            stop_first: file.stop_first,
        })
    }

    /// Names go into names of sandboxes and stand in tables.
    pub(super) fn name(&self, what: &str, name: &Spanned<String>) -> Result<String> {
        Name::parse(name.get_ref())
            .map(|name| name.to_string())
            .map_err(|error| self.at(name.span(), what, &error))
    }

    pub(super) fn not_empty(&self, what: &str, text: &Spanned<String>) -> Result<()> {
        match text.get_ref().trim().is_empty() {
            true => Err(self.at(text.span(), what, &Error::invalid("there is no command"))),
            false => Ok(()),
        }
    }

    pub(super) fn duration(
        &self,
        what: &str,
        text: Option<Spanned<String>>,
    ) -> Result<Option<u64>> {
        let Some(text) = text else { return Ok(None) };
        let hint = "write a number above zero with ms, s, m, h or d, as in `30s`";
        let zero = || Error::invalid(format!("`{}` is not above zero", text.get_ref())).hint(hint);
        parse_duration_ms(text.get_ref())
            .and_then(|ms| if ms > 0 { Ok(Some(ms)) } else { Err(zero()) })
            .map_err(|error| self.at(text.span(), what, &error))
    }

    pub(super) fn count(
        &self,
        what: &str,
        count: Option<Spanned<u32>>,
        max: u32,
    ) -> Result<Option<u32>> {
        let Some(count) = count else { return Ok(None) };
        if (1..=max).contains(count.get_ref()) {
            return Ok(Some(*count.get_ref()));
        }
        let why = Error::invalid(format!("{} is not between 1 and {max}", count.get_ref()));
        Err(self.at(count.span(), what, &why))
    }

    fn refuse_doubles<'n>(
        &self,
        what: &str,
        names: impl Iterator<Item = &'n Spanned<String>>,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.get_ref()) {
                let why = Error::invalid(format!("there is another {what} `{}`", name.get_ref()))
                    .hint(format!("give every {what} a name of its own"));
                return Err(self.at(name.span(), &format!("{what}.name"), &why));
            }
        }
        Ok(())
    }

    /// An error with its place in the file.
    pub(super) fn at(&self, span: Range<usize>, what: &str, error: &Error) -> Error {
        let line = line_of(self.text, span.start);
        let hint = error.hint.clone();
        let mut error = Error::invalid(format!("{}:{line}: {what}: {error}", self.path.display()));
        error.hint = hint;
        error
    }
}

impl Config {
    /// The checks that a project declares, in their order. They run beside the
    /// file that they are written in, from wherever one works in the project;
    /// those of the user's own file run where commands do.
    pub fn checks(&self) -> Vec<Check> {
        let has_some = |source: &&Source| !source.declared.checks.is_empty();
        let Some(source) = self.sources.iter().find(has_some) else { return Vec::new() };
        let directory = self.way_to(source);
        let here = |check: &Check| Check { directory: directory.clone(), ..check.clone() };
        source.declared.checks.iter().map(here).collect()
    }

    /// The way from the directory that is configured up to a project's file.
    fn way_to(&self, source: &Source) -> Option<String> {
        let root = source.path.parent().filter(|_| source.path.ends_with(FILE_NAME))?;
        let below = self.directory.strip_prefix(root).ok()?.components().count();
        let up = vec![".."; below].join("/");
        Some(if up.is_empty() { ".".to_owned() } else { up })
    }

    /// The attempts that a project declares, in their order.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.declaring(|declared| &declared.attempts)
    }

    fn declaring<T: Clone>(&self, get: impl Fn(&Declared) -> &Vec<T>) -> Vec<T> {
        let lists = self.sources.iter().map(|source| get(&source.declared));
        lists.filter(|list| !list.is_empty()).map(Clone::clone).next().unwrap_or_default()
    }

    /// The settings of `[try]`, each from the strongest file that has it.
    pub fn try_settings(&self) -> TrySettings {
        self.sources.iter().map(|source| source.declared.tries.clone()).fold(
            TrySettings::default(),
            |strong, weak| TrySettings {
                score: strong.score.or(weak.score),
                rank: strong.rank.or(weak.rank),
                criteria: strong.criteria.or(weak.criteria),
                weights: strong.weights.or(weak.weights),
                repeat: strong.repeat.or(weak.repeat),
                jobs: strong.jobs.or(weak.jobs),
                budget_ms: strong.budget_ms.or(weak.budget_ms),
                stop_first: strong.stop_first.or(weak.stop_first),
            },
        )
    }

    /// Those of them that are set, and each check and attempt, for `fractal
    /// config show`.
    pub(super) fn attempt_settings(&self) -> Vec<Setting> {
        let mut list = Vec::new();
        let mut add = |name: &str, value: Option<String>, is_set: &dyn Fn(&Declared) -> bool| {
            let source = self.sources.iter().find(|source| is_set(&source.declared));
            if let (Some(value), Some(source)) = (value, source) {
                let origin = source.path.display().to_string();
                list.push(Setting { name: name.to_owned(), value, origin });
            }
        };
        for check in self.checks() {
            add("check", Some(check_text(&check)), &|declared| !declared.checks.is_empty());
        }
        for attempt in self.attempts() {
            let value = format!("{}: {}", attempt.name, attempt.command.last().map_or("", |s| s));
            add("attempt", Some(value), &|declared| !declared.attempts.is_empty());
        }
        let tries = self.try_settings();
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        add("try.score", tries.score, &|d| d.tries.score.is_some());
        add("try.rank", tries.rank.map(|rank| rank.to_string()), &|d| d.tries.rank.is_some());
        add("try.criteria", tries.criteria.map(names), &|d| d.tries.criteria.is_some());
        add("try.weights", tries.weights.map(weights_text), &|d| d.tries.weights.is_some());
        add("try.repeat", number(tries.repeat), &|d| d.tries.repeat.is_some());
        add("try.jobs", number(tries.jobs), &|d| d.tries.jobs.is_some());
        let budget = tries.budget_ms.map(format_duration_ms);
        add("try.budget", budget, &|d| d.tries.budget_ms.is_some());
        let stop = tries.stop_first.map(|stop| stop.to_string());
        add("try.stop-first", stop, &|d| d.tries.stop_first.is_some());
        list
    }
}

fn check_text(check: &Check) -> String {
    let optional = if check.required { "" } else { " (not required)" };
    format!("{}: {}{optional}", check.name, check.command)
}

fn names(criteria: Vec<Criterion>) -> String {
    criteria.into_iter().map(Criterion::name).collect::<Vec<_>>().join(" ")
}

fn weights_text(weights: BTreeMap<Criterion, u32>) -> String {
    let text = |(criterion, weight): (Criterion, u32)| format!("{}={weight}", criterion.name());
    weights.into_iter().map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    #[test]
    fn checks_attempts_and_settings_are_read() {
        let config = read(
            "[[check]]\nname = \"test\"\ncommand = \"make test\"\ntime = \"2m\"\n\
             [[check]]\nname = \"lint\"\ncommand = \"make lint\"\nrequired = false\n\
             [[attempt]]\nname = \"a\"\ncommand = \"./fix a\"\n\
             [try]\nrank = \"lexicographic\"\ncriteria = [\"score\", \"lines\"]\nstop-first = true\n\
             budget = \"10m\"\nweights = { score = 3 }\nrepeat = 2\njobs = 4\nscore = \"./score\"\n",
        )
        .expect("it is valid");
        let checks = config.checks();
        assert_eq!((checks[0].name.as_str(), checks[0].time_ms), ("test", Some(120_000)));
        assert_eq!((checks[0].required, checks[1].required), (true, false));
        assert_eq!(checks[0].directory.as_deref(), Some("../.."), "beside the file");
        assert_eq!(config.attempts()[0].command, ["sh", "-c", "./fix a"]);
        let tries = config.try_settings();
        assert_eq!(tries.rank, Some(RankBy::Lexicographic));
        assert_eq!(tries.criteria, Some(vec![Criterion::Score, Criterion::Lines]));
        assert_eq!((tries.budget_ms, tries.stop_first), (Some(600_000), Some(true)));
        let shown = config.settings().expect("it is valid");
        let has =
            |name: &str, value: &str| shown.iter().any(|s| s.name == name && s.value == value);
        assert!(has("check", "lint: make lint (not required)"));
        assert!(has("attempt", "a: ./fix a") && has("try.weights", "score=3"));
    }

    #[test]
    fn mistakes_name_file_line_and_what_is_allowed() {
        let check = |text: &str, place: &str, words: &str| {
            let error = read(text).expect_err(text);
            let all = format!("{error} {}", error.hint.clone().unwrap_or_default());
            assert!(error.message.starts_with(&format!("/p/fractal.toml:{place}: ")), "{error}");
            assert!(all.contains(words), "{all}");
        };
        let test = "[[check]]\nname = \"t\"\ncommand = \"true\"\n";
        check("[[check]]\ncommand = \"x\"\n", "1", "missing field `name`");
        check(&format!("{test}tim = \"1s\"\n"), "4", "expected one of `name`, `command`");
        check(&format!("{test}time = \"5 apples\"\n"), "4", "ms, s, m, h or d");
        check(&format!("{test}time = \"0s\"\n"), "4", "above zero");
        check(&format!("{test}{test}"), "5", "another check `t`");
        check("[[attempt]]\nname = \"a b\"\ncommand = \"x\"\n", "2", "letters, digits");
        check("[[attempt]]\nname = \"a\"\ncommand = \" \"\n", "3", "no command");
        check("[try]\nrank = \"\"\n", "2", "copeland, weighted, lexicographic");
        check("[try]\ncriteria = [\"lines\",\n\"beauty\"]\n", "3", "checks, score, lines");
        check("[try]\nweights = { beauty = 1 }\n", "2", "checks, score, lines");
        check("[try]\nrepeat = 0\n", "2", "between 1 and 1000");
        check("[try]\nstop_first = true\n", "2", "`stop-first`");
    }
}
