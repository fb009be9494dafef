//! One shell, and what is done in it.
//!
//! Each line that is typed is answered by one prompt. As long as that holds, the
//! shell is in step and the next prompt belongs to the next command. Programs
//! that read for themselves, interrupts and lines that nobody counted break it;
//! then a line of ours finds out where it stands before a command is run.

use super::super::asked::{Bash as Asked, Check, Interrupt, seconds, until};
use super::super::{Thrown, text};
use super::screen::{Found, Missed, Patterns, Screen};
use super::script::Script;
use super::syntax;
use super::tty::Tty;
use regex::bytes::Regex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout, timeout_at};

/// What clients know the prompt as.
const PROMPT: &str = "SHELLPS1PREFIX";
/// How long a shell that waits for a line may take to answer one.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a command may go on that was seen to have shown what was expected.
const AFTER: Duration = Duration::from_secs(1);
/// How long is waited for what cannot be refused, at least.
const FORCE: Duration = Duration::from_secs(5);
/// Interrupts of one request.
const INTERRUPTS_MAX: u32 = 20;
const INTERRUPT: &[u8] = b"\x03";
const SUSPEND: &[u8] = b"\x1a";

/// A shell on a terminal.
pub struct Bash {
    pub(super) tty: Arc<Tty>,
    pub(super) screen: Arc<Screen>,
    pub(super) script: Script,
    pub(super) prompt: Regex,
    pub(super) pid: Option<u32>,
    pub(super) turn: Turn,
}

/// Whose command it is: one at a time.
pub struct Turn(Mutex<Step>);

/// Where the shell stands.
struct Step {
    /// It waits for a line.
    is_waiting: bool,
    /// As many prompts were seen as lines were typed.
    is_in_step: bool,
}

impl Turn {
    pub fn new() -> Turn {
        Turn(Mutex::new(Step { is_waiting: true, is_in_step: true }))
    }
}

/// What a client gets to see of an action.
pub struct Seen {
    output: String,
    exit: Option<i32>,
    expected: String,
}

impl Seen {
    pub fn json(&self) -> Value {
        json!({
            "output": self.output,
            "exit_code": self.exit,
            "failure_reason": "",
            "expect_string": self.expected,
            "session_type": "bash",
        })
    }
}

impl Bash {
    /// Does what a client asked for, in its turn.
    pub async fn run(&self, asked: &Asked) -> Result<Seen, Thrown> {
        let end = until(asked.timeout);
        let patterns = Patterns::new(&self.prompt, &asked.expect)?;
        if asked.is_interactive_command || asked.is_interactive_quit {
            let mut step = self.turn(asked, end).await?;
            return self.converse(&mut step, asked, &patterns, end).await;
        }
        syntax::check(&asked.command).await?;
        let mut step = self.turn(asked, end).await?;
        let seen = self.command(&mut step, asked, &patterns, end).await?;
        match (asked.check, seen.exit) {
            (Check::Raise, Some(exit)) if exit != 0 => Err(failed(asked, exit, &seen.output)),
            _ => Ok(seen),
        }
    }

    async fn turn(&self, asked: &Asked, end: Instant) -> Result<MutexGuard<'_, Step>, Thrown> {
        let turn = timeout_at(end, self.turn.0.lock()).await;
        turn.map_err(|_| late(asked, "another command was at work in this session"))
    }

    /// A command that ends.
    async fn command(
        &self,
        step: &mut Step,
        asked: &Asked,
        patterns: &Patterns,
        end: Instant,
    ) -> Result<Seen, Thrown> {
        let mut shown = self.ready(step, asked, end).await?;
        shown.extend(self.screen.take());
        self.tty.restore();
        let line = self.script.load(&asked.command).map_err(|error| gone(&error))?;
        step.is_waiting = false;
        self.write(&line, end, asked).await?;
        let found = self.screen.expect(patterns, end).await;
        let found = found.map_err(|missed| self.missed(asked, missed))?;
        shown.extend_from_slice(&found.before);
        let mut exit = self.passed(step, &found);
        if exit.is_none() && asked.check != Check::Ignore {
            let patience = end.min(Instant::now() + AFTER);
            match self.screen.expect(&Patterns::one(&self.prompt), patience).await {
                Ok(last) => {
                    shown.extend_from_slice(&last.before);
                    exit = self.passed(step, &last);
                }
                Err(_) if asked.check == Check::Raise => {
                    let why = "the command shows what was expected and has not ended, so it has \
                               no exit code: ask with check=\"ignore\"";
                    return Err(Thrown::new("NoExitCodeError", why));
                }
                Err(_) => {}
            }
        }
        let exit = exit.filter(|_| asked.check != Check::Ignore);
        let expected = expected(&found, &asked.expect);
        Ok(Seen { output: text::of_terminal(&shown), exit, expected })
    }

    /// Waits until the shell waits for a line, and gives what was shown
    /// meanwhile.
    async fn ready(&self, step: &mut Step, asked: &Asked, end: Instant) -> Result<Vec<u8>, Thrown> {
        let prompt = Patterns::one(&self.prompt);
        let mut shown = Vec::new();
        if !step.is_waiting {
            let last = self.screen.expect(&prompt, end).await.map_err(|missed| match missed {
                Missed::Late => late(asked, "what was begun before it is still at work"),
                Missed::Over => self.missed(asked, missed),
            })?;
            self.passed(step, &last);
            shown = last.before;
        }
        if !step.is_in_step {
            shown.extend(self.come_into_step(step, asked, end).await?);
        }
        Ok(shown)
    }

    /// Finds the prompt that is the last one. What stood before it was shown
    /// by somebody; prompts among it were not.
    async fn come_into_step(
        &self,
        step: &mut Step,
        asked: &Asked,
        end: Instant,
    ) -> Result<Vec<u8>, Thrown> {
        let end = end.min(Instant::now() + ANSWER);
        self.tty.restore();
        let (line, round) = self.script.round();
        step.is_waiting = false;
        self.write(&line, end, asked).await?;
        let found = self.screen.expect(&Patterns::one(&round), end).await;
        let mut shown = found.map_err(|missed| self.missed(asked, missed))?.before;
        let found = self.screen.expect(&Patterns::one(&self.prompt), end).await;
        let found = found.map_err(|missed| self.missed(asked, missed))?;
        self.passed(step, &found);
        step.is_in_step = true;
        // What the shell tells of its jobs stands before its prompt.
        shown.extend_from_slice(found.before.trim_ascii_start());
        Ok(self.prompt.replace_all(&shown, &b""[..]).into_owned())
    }

    /// What is typed for a program that reads for itself.
    async fn converse(
        &self,
        step: &mut Step,
        asked: &Asked,
        patterns: &Patterns,
        end: Instant,
    ) -> Result<Seen, Thrown> {
        (step.is_waiting, step.is_in_step) = (false, false);
        self.write(format!("{}\n", asked.command).as_bytes(), end, asked).await?;
        let found = self.screen.expect(patterns, end).await;
        let found = found.map_err(|missed| self.missed(asked, missed))?;
        self.passed(step, &found);
        let mut output = text::of_terminal(&found.before);
        if asked.is_interactive_quit {
            if !step.is_waiting {
                let patience = end.min(Instant::now() + ANSWER);
                let last = self.screen.expect(&Patterns::one(&self.prompt), patience).await;
                let last = last.map_err(|missed| self.missed(asked, missed))?;
                self.passed(step, &last);
            }
            self.tty.restore();
        } else {
            // Programs that edit lines show what was typed.
            let rest = output.trim_start();
            output = rest.strip_prefix(&asked.command).unwrap_or(rest).trim().to_owned();
        }
        Ok(Seen { output, exit: Some(0), expected: expected(&found, &asked.expect) })
    }

    /// Notes what a prompt means, if it is one, and gives its exit code.
    fn passed(&self, step: &mut Step, found: &Found) -> Option<i32> {
        if found.which != 0 {
            return None;
        }
        step.is_waiting = true;
        found.group.parse().ok()
    }

    async fn write(&self, line: &[u8], end: Instant, asked: &Asked) -> Result<(), Thrown> {
        match timeout_at(end, self.tty.write(line)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(gone(&error)),
            Err(_) => Err(late(asked, "nothing reads what is typed")),
        }
    }

    fn missed(&self, asked: &Asked, missed: Missed) -> Thrown {
        match missed {
            Missed::Late => late(asked, "it was still at work"),
            Missed::Over => {
                let last = text::of_terminal(&self.screen.take());
                let why = "the shell of this session has ended: close the session and create it \
                           again; the last it showed was";
                Thrown::of("pexpect.exceptions.EOF", format!("{why}: {last}"))
            }
        }
    }
}

/// Interrupting.
impl Bash {
    /// Ends what is at work in the foreground: by asking, then by force.
    pub async fn interrupt(&self, asked: &Interrupt) -> Result<Seen, Thrown> {
        let patterns = Patterns::new(&self.prompt, &asked.expect)?;
        let patience = seconds(asked.timeout);
        let tries = asked.n_retry.clamp(1, INTERRUPTS_MAX);
        // Whoever waits for the command has the turn, and loses it with it.
        let mut step = match self.turn.0.try_lock() {
            Ok(step) => step,
            Err(_) => self.take_turn(patience, tries).await?,
        };
        let mut shown = Vec::new();
        if step.is_waiting {
            shown = self.screen.take();
            return Ok(interrupted(&shown, PROMPT.to_owned()));
        }
        step.is_in_step = false;
        for _ in 0..tries {
            self.type_now(INTERRUPT).await;
            match self.screen.expect(&patterns, Instant::now() + patience).await {
                Ok(found) => {
                    self.passed(&mut step, &found);
                    return Ok(interrupted(&found.before, expected(&found, &asked.expect)));
                }
                Err(Missed::Over) => return Err(self.is_over()),
                Err(Missed::Late) => {}
            }
        }
        let prompt = Patterns::one(&self.prompt);
        let front = self.tty.foreground();
        self.type_now(SUSPEND).await;
        let mut found = self.screen.expect(&prompt, Instant::now() + patience).await;
        self.kill(front);
        if found.is_err() {
            found = self.screen.expect(&prompt, Instant::now() + patience.max(FORCE)).await;
        }
        match found {
            Ok(found) => {
                self.passed(&mut step, &found);
                shown.extend(found.before);
                Ok(interrupted(&shown, PROMPT.to_owned()))
            }
            Err(Missed::Over) => Err(self.is_over()),
            Err(Missed::Late) => Err(Thrown::of(
                "pexpect.exceptions.TIMEOUT",
                "the session cannot be interrupted: close it and create it again",
            )),
        }
    }

    /// Interrupts whoever is at work until it is our turn.
    async fn take_turn(
        &self,
        patience: Duration,
        tries: u32,
    ) -> Result<MutexGuard<'_, Step>, Thrown> {
        for _ in 0..tries {
            self.type_now(INTERRUPT).await;
            if let Ok(step) = timeout(patience, self.turn.0.lock()).await {
                return Ok(step);
            }
        }
        self.kill(self.tty.foreground());
        timeout(patience.max(FORCE), self.turn.0.lock()).await.map_err(|_| {
            let why = "the session cannot be interrupted: close it and create it again";
            Thrown::of("pexpect.exceptions.TIMEOUT", why)
        })
    }

    async fn type_now(&self, bytes: &[u8]) {
        // One that takes nothing is dealt with in the next step.
        let _ = timeout(Duration::from_secs(1), self.tty.write(bytes)).await;
    }

    /// Ends a group of processes; never the shell's own.
    fn kill(&self, group: Option<Pid>) {
        let own = self.pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(group) = group.filter(|group| Some(*group) != own) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn is_over(&self) -> Thrown {
        Thrown::of("pexpect.exceptions.EOF", "the shell of this session has ended")
    }
}

fn interrupted(shown: &[u8], expected: String) -> Seen {
    Seen { output: text::of_terminal(shown).trim().to_owned(), exit: Some(0), expected }
}

/// What a client calls that which ended its waiting.
fn expected(found: &Found, patterns: &[String]) -> String {
    match found.which.checked_sub(1) {
        None => PROMPT.to_owned(),
        Some(at) => patterns.get(at).cloned().unwrap_or_default(),
    }
}

fn gone(error: &io::Error) -> Thrown {
    let why = format!("the terminal of this session is gone ({error}): create it again");
    Thrown::of("pexpect.exceptions.EOF", why)
}

fn late(asked: &Asked, why: &str) -> Thrown {
    let limit = asked.timeout.unwrap_or_default();
    Thrown::timeout(format!("`{}` did not end within {limit} s: {why}", asked.command))
}

fn failed(asked: &Asked, exit: i32, output: &str) -> Thrown {
    let why = format!("`{}` ended with exit code {exit}. It showed:\n{output}", asked.command);
    let why = match asked.error_msg.as_str() {
        "" => why,
        said => format!("{said}: {why}"),
    };
    Thrown::new("NonZeroExitCodeError", why)
}
