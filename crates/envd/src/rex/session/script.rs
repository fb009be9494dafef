//! What a shell is told, and how.
//!
//! Nothing but one short line is ever typed: it makes the shell read the rest
//! from a file in our memory and evaluate it as if it had been typed. So commands
//! may be of any length and hold any character, a tab completes nothing and a
//! `!` is no history. The end of a command is the next prompt, which holds a
//! number that nobody can guess and the command's exit code.

use regex::bytes::Regex;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;

const SECRET_BYTES: usize = 16;

/// What one shell is told with.
pub struct Script {
    /// Tells this shell's prompts from all that programs write.
    secret: String,
    memory: File,
    rounds: std::sync::atomic::AtomicU32,
}

impl Script {
    pub fn new() -> io::Result<Script> {
        let mut dice = [0; SECRET_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut dice)?;
        let secret = dice.iter().map(|byte| format!("{byte:02x}")).collect();
        let memory = File::from(memfd_create("command", MemfdFlags::CLOEXEC)?);
        Ok(Script { secret, memory, rounds: Default::default() })
    }

    /// Puts a text where the shell reads it, and gives the line that makes it.
    pub fn load(&self, text: &str) -> io::Result<Vec<u8>> {
        let mut memory = &self.memory;
        memory.rewind()?;
        memory.set_len(0)?;
        memory.write_all(text.as_bytes())?;
        let (process, number) = (std::process::id(), self.memory.as_raw_fd());
        // A space first keeps it out of histories.
        Ok(format!(" eval \"$(</proc/{process}/fd/{number})\"\n").into_bytes())
    }

    /// The prompt with the exit code.
    pub fn prompt(&self) -> Regex {
        self.pattern("([0-9]+)")
    }

    /// What the first text of a shell shows before anything else.
    pub fn beginning(&self) -> Regex {
        self.pattern("begin")
    }

    fn pattern(&self, what: &str) -> Regex {
        let text = format!(r"\[fractal {} {what}\]", self.secret);
        Regex::new(&text).expect("hexadecimal digits are a pattern")
    }

    /// The first text: reads these files, and makes prompts ours. Each file is
    /// evaluated by itself, so that a bad name is no bad text.
    pub fn first(&self, sources: &[String]) -> String {
        let secret = &self.secret;
        let mut text = format!("builtin echo '[fractal '{secret}' begin]'\n");
        for source in sources {
            text.push_str(&format!("eval {}\n", quoted(&format!("source {source}"))));
        }
        // Environments that are entered write themselves into the prompt: it is
        // put right before each one, where `$?` is what it was before. Shells
        // that are started in this one do the same, unless a hook of this one's
        // files comes first, which they may not know.
        text.push_str(&format!(
            "unset HISTFILE\n\
             set +o history\n\
             history -c\n\
             export PS1='[fractal {secret} $?]' PS2= PS0=\n\
             [ -n \"${{PROMPT_COMMAND-}}\" ] || export PROMPT_COMMAND\n\
             PROMPT_COMMAND+=$'\\n'\"PS1='[fractal {secret} \\$?]'\"\n"
        ));
        text
    }

    /// A line after which no prompt is left over from before: what it shows is
    /// new each time, and not what is typed.
    pub fn round(&self) -> (Vec<u8>, Regex) {
        let round = self.rounds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let line = format!(" builtin echo '[fractal '{}' round {round}]'\n", self.secret);
        (line.into_bytes(), self.pattern(&format!("round {round}")))
    }
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_told_from_what_would_show_one() {
        let script = Script::new().expect("there is memory");
        let first = script.first(&["~/it's".to_owned()]);
        assert!(first.contains(r"eval 'source ~/it'\''s'"));
        let prompt = script.prompt();
        assert!(!prompt.is_match(first.as_bytes()), "the text itself shows none");
        let shown = format!("x[fractal {} 127]", script.secret);
        let found = prompt.captures(shown.as_bytes()).expect("it is one");
        assert_eq!(&found[1], b"127");
        let (line, round) = script.round();
        assert!(!round.is_match(&line));
        assert!(!script.beginning().is_match(first.as_bytes()));
    }
}
