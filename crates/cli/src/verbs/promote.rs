use crate::failure::Failure;
use crate::promotion::{self, Gate, Sides, typed};
use crate::session::{Session, unexpected};
use fractal::model::{Form, Promote as Asked};
use fractal::{Action, Error, Reply};
use std::ffi::OsString;

/// Bring a sandbox's changes into reality, behind checks and with an undo
///
/// What the sandbox changed below its directory is weighed against what is
/// there now. If nobody else touched the same files, the checks of
/// `fractal.toml` run on the result in a rehearsal, and then all of it is
/// written, or nothing: a crash in the middle leaves the old or the new state.
/// `fractal undo` takes it back. Two edits of one text in different places are
/// joined. A child of a sandbox goes into its parent.
///
/// Where `fractal.toml` has stages, a sandbox goes into the first of them, and
/// `fractal promote STAGE` moves what stands there one stage on. `--to STAGE`
/// walks through every stage up to that one and stops at the first that does
/// not let it pass. `--to reality` needs the project's directory to be a stage.
///
/// What git ignores, `.git` itself, and changes outside the directory stay
/// behind unless asked for. Files that run by themselves (git hooks, .envrc,
/// editor tasks) need `--allow-autorun`.
///
/// Exit status: 0 done, 3 a check did not pass, 4 denied or not approved, 5
/// conflict; nothing is written into a stage unless it is 0.
#[derive(clap::Args)]
pub struct Promote {
    /// The sandbox or stage [default: the latest sandbox of this directory]
    #[arg(value_name = "S")]
    sandbox: Option<String>,
    /// Where to: a stage, `reality`, or the parent's name [default: the first
    /// stage, or the parent where there are none]
    #[arg(long, value_name = "STAGE")]
    to: Option<String>,
    /// Bring only what lies at or below this path (repeatable)
    #[arg(long, value_name = "PATH", num_args = 1..)]
    only: Vec<OsString>,
    #[command(flatten)]
    sides: Sides,
    /// As `files`, a `patch` on standard output, a `branch NAME`, or a
    /// `commit` that no branch points at; git's working tree and index stay
    #[arg(long = "as", value_names = ["FORM", "NAME"], num_args = 1..=2)]
    form: Vec<String>,
    #[command(flatten)]
    gate: Gate,
    /// Bring what git ignores and what was copied in, too
    #[arg(long)]
    ignored: bool,
    /// Bring what changed inside .git, too
    #[arg(long)]
    git: bool,
    /// Bring what changed outside the sandbox's directory, too
    #[arg(long)]
    outside: bool,
    /// Write down what comes of it in this experiment [default: that of the
    /// sandbox's runs]
    #[arg(long, env = "FRACTAL_EXPERIMENT", value_name = "NAME", hide_env_values = true)]
    experiment: Option<String>,
}

impl Promote {
    pub fn call(self, session: &Session) -> Result<u8, Failure> {
        let (form, stray) = form(&self.form)?;
        if let (Some(word), Some(_)) = (&stray, &self.sandbox) {
            return Err(Error::invalid(format!("--as: `{word}` is one word too many")).into());
        }
        let is_patch = form == Form::Patch;
        let asked = Asked {
            sandbox: self.sandbox.or(stray),
            to: self.to,
            only: typed(&self.only),
            ours: self.sides.ours(),
            theirs: self.sides.theirs(),
            dry_run: self.sides.dry_run,
            form,
            checks: self.gate.check,
            allow_autorun: self.gate.allow_autorun,
            ignored: self.ignored,
            git: self.git,
            outside: self.outside,
            experiment: self.experiment,
        };
        let Reply::Promote(reply) = session.apply(Action::Promote(Box::new(asked)))? else {
            return Err(unexpected());
        };
        if session.json {
            session.print_json(&reply)?;
        } else if let Some(patch) = reply.made.as_ref().filter(|_| is_patch) {
            session.print(patch)?;
            promotion::remarks(session, &reply);
        } else {
            promotion::tell(session, &reply)?;
        }
        Ok(promotion::status(&reply))
    }
}

/// The form, and a second word that was not meant for it.
fn form(words: &[String]) -> Result<(Form, Option<String>), Error> {
    let second = words.get(1).cloned();
    match words.first().map(String::as_str) {
        None => Ok((Form::Files, None)),
        Some("files") => Ok((Form::Files, second)),
        Some("patch") => Ok((Form::Patch, second)),
        Some("commit") => Ok((Form::Commit, second)),
        Some("branch") => match second {
            Some(name) => Ok((Form::Branch(name), None)),
            None => Err(Error::invalid("--as branch: which one?").hint("--as branch NAME")),
        },
        Some(other) => Err(Error::invalid(format!(
            "--as: `{}` is none of files, patch, branch NAME, commit",
            crate::table::plain(other)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read_and_stray_words_given_back() {
        let read =
            |words: &[&str]| form(&words.iter().map(ToString::to_string).collect::<Vec<_>>()).ok();
        assert_eq!(read(&[]), Some((Form::Files, None)));
        assert_eq!(read(&["patch", "box"]), Some((Form::Patch, Some("box".into()))));
        assert_eq!(read(&["branch", "fix"]), Some((Form::Branch("fix".into()), None)));
        assert_eq!(read(&["branch"]), None);
        assert_eq!(read(&["tarball"]), None);
    }
}
