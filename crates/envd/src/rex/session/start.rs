//! The beginning and the end of a shell.

use super::super::asked::seconds;
use super::super::{Thrown, text};
use super::bash::{Bash, Turn};
use super::screen::{Missed, Patterns, Screen};
use super::script::Script;
use super::tty::Tty;
use crate::process::terminal::{SAME, TAKE_TERMINAL};
use crate::users::missing_variables;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

/// How long a shell may take until it reads a line: its own files come first.
const START: Duration = Duration::from_secs(30);
/// How long one that is hung up may take to end what it has started.
const GOODBYE: Duration = Duration::from_millis(300);
/// How long the last words of one that has ended may be on their way.
const LAST: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 64 << 10;

impl Bash {
    /// A shell that waits for its first command, and what the files wrote that
    /// it was told to read.
    pub async fn start(sources: &[String], patience: f64) -> Result<(Bash, String), Thrown> {
        let cannot = |error: io::Error| Thrown::system(&error, "bash");
        let script = Script::new().map_err(cannot)?;
        let (tty, stdio) = Tty::open().map_err(cannot)?;
        let child = spawn(stdio).map_err(cannot)?;
        let shell = Bash {
            tty: Arc::new(tty),
            screen: Arc::default(),
            prompt: script.prompt(),
            script,
            pid: child.id(),
            turn: Turn::new(),
        };
        tokio::spawn(follow(shell.tty.clone(), shell.screen.clone(), child));
        let begun = shell.begin(sources, patience).await;
        if begun.is_err() {
            shell.end().await;
        }
        begun.map(|output| (shell, output))
    }

    async fn begin(&self, sources: &[String], patience: f64) -> Result<String, Thrown> {
        let cannot = |error: io::Error| Thrown::system(&error, "bash");
        let line = self.script.load(&self.script.first(sources)).map_err(cannot)?;
        self.tty.write(&line).await.map_err(cannot)?;
        let beginning = Patterns::one(&self.script.beginning());
        let begun = self.screen.expect(&beginning, Instant::now() + START).await;
        begun.map_err(|missed| self.not_begun(missed, "bash", START))?;
        let time = seconds(patience);
        let prompt = Patterns::one(&self.prompt);
        let ready = self.screen.expect(&prompt, Instant::now() + time).await;
        let what = "reading the files of `startup_source`";
        let ready = ready.map_err(|missed| self.not_begun(missed, what, time))?;
        Ok(text::of_terminal(&ready.before).trim_start_matches('\n').to_owned())
    }

    fn not_begun(&self, missed: Missed, what: &str, time: Duration) -> Thrown {
        let shown = text::of_terminal(&self.screen.take());
        match missed {
            Missed::Late => Thrown::of(
                "pexpect.exceptions.TIMEOUT",
                format!("{what} took longer than {} s; it showed: {shown}", time.as_secs_f64()),
            ),
            Missed::Over => Thrown::of(
                "pexpect.exceptions.EOF",
                format!("the shell ended before it had begun; it showed: {shown}"),
            ),
        }
    }

    /// Hangs up. What was started with `nohup` or `setsid` goes on.
    pub async fn end(&self) {
        let Some(pid) = self.pid.and_then(|pid| Pid::from_raw(pid.cast_signed())) else { return };
        if self.screen.is_over() {
            return;
        }
        let front = self.tty.foreground().filter(|front| *front != pid);
        for signal in [Signal::HUP, Signal::CONT] {
            let _ = kill_process(pid, signal);
            front.map(|front| kill_process_group(front, signal));
        }
        let over = async {
            while !self.screen.is_over() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(GOODBYE, over).await.is_err() {
            front.map(|front| kill_process_group(front, Signal::KILL));
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn spawn(stdio: [std::process::Stdio; 3]) -> io::Result<Child> {
    let [stdin, stdout, stderr] = stdio;
    let mut command = Command::new("/proc/self/exe");
    // Without an editor of lines: nobody edits, and it would draw.
    command.args([TAKE_TERMINAL, SAME, SAME, "bash", "--noediting"]);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    command.envs(missing_variables()).env("TERM", "dumb");
    for name in ["PS0", "PS1", "PS2", "PROMPT_COMMAND"] {
        command.env_remove(name);
    }
    command.spawn()
}

/// Takes what is shown, also when nobody waits for it, until the shell has
/// ended.
async fn follow(tty: Arc<Tty>, screen: Arc<Screen>, mut child: Child) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut ended = false;
    loop {
        let count = tokio::select! {
            biased;
            count = tty.read(&mut chunk) => count,
            // What it has written is there already, and others write on.
            _ = child.wait(), if !ended => {
                ended = true;
                timeout(LAST, tty.read(&mut chunk)).await.unwrap_or_default()
            }
        };
        if count == 0 || ended {
            screen.show(&chunk[..count]);
            break;
        }
        screen.show(&chunk[..count]);
    }
    screen.end();
    if !ended {
        let _ = child.wait().await;
    }
}
