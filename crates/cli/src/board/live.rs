//! Attempts while they run: a table redrawn in place on a terminal, a line
//! per event elsewhere.

use super::duration;
use crate::table::plain;
use crate::terminal::{WIDTH, columns_of, cut, padded};
use fractal::Progress;
use fractal::model::AttemptReport;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often the times move on.
const TICK: Duration = Duration::from_millis(120);

/// Rows that are redrawn; moving up further than the terminal is high would
/// spoil it.
const ROWS_MAX: usize = 18;

/// How events are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Not at all.
    Silent,
    /// One line each.
    Lines,
    /// In place.
    InPlace,
}

impl Manner {
    /// What suits this process's standard error.
    pub fn fitting(quiet: bool) -> Manner {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match (quiet, io::stderr().is_terminal() && !dumb) {
            (true, _) => Manner::Silent,
            (false, true) => Manner::InPlace,
            (false, false) => Manner::Lines,
        }
    }
}

/// The attempts that were seen so far.
pub struct Board {
    manner: Manner,
    state: Mutex<State>,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    rows: Vec<Row>,
    /// Lines on the screen that are ours.
    drawn: usize,
}

struct Row {
    name: String,
    doing: String,
    since: Instant,
    over: bool,
}

impl Board {
    pub fn new(manner: Manner) -> Board {
        Board { manner, state: Mutex::default(), over: AtomicBool::new(false) }
    }

    /// Lets times move on while `job` runs, and cleans up after it.
    pub fn during<T>(&self, job: impl FnOnce() -> T) -> T {
        if self.manner != Manner::InPlace {
            return job();
        }
        std::thread::scope(|scope| {
            let ticker = scope.spawn(|| {
                while !self.over.load(Ordering::Relaxed) {
                    self.state().draw();
                    std::thread::park_timeout(TICK);
                }
            });
            let result = job();
            self.over.store(true, Ordering::Relaxed);
            ticker.thread().unpark();
            let _ = ticker.join();
            self.state().erase();
            result
        })
    }

    /// Takes one event; called from several threads.
    pub fn tell(&self, progress: Progress<'_>) {
        let (name, doing, over) = match progress {
            Progress::Running { name } => (name, "running".to_owned(), false),
            Progress::Checking { name, check } => (name, format!("check {}", plain(check)), false),
            Progress::Finished(report) => (report.name.as_str(), finished(report), true),
            Progress::Base => ("(base)", "checks on the untouched base".to_owned(), false),
        };
        let mut state = self.state();
        match self.manner {
            Manner::Silent => {}
            // In a log, every check of every attempt would be too much.
            Manner::Lines if matches!(progress, Progress::Checking { .. }) => {}
            Manner::Lines => {
                let _ = writeln!(io::stderr(), "{}: {doing}", plain(name));
            }
            Manner::InPlace => {
                state.put(name, doing, over);
                state.draw();
            }
        }
    }

    /// A thread that died while drawing must not take the answer with it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    fn put(&mut self, name: &str, doing: String, over: bool) {
        let row = match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row,
            None => {
                let (name, since) = (name.to_owned(), Instant::now());
                self.rows.push(Row { name, doing: String::new(), since, over: false });
                self.rows.last_mut().expect("it was just put there")
            }
        };
        (row.doing, row.over) = (doing, over);
    }

    fn draw(&mut self) {
        let lines = self.lines();
        // Long lines are cut by the terminal, or moving up would miss some.
        let text = format!("{}\x1b[?7l{}\x1b[?7h", self.erasing(), lines.join(""));
        let _ = io::stderr().write_all(text.as_bytes());
        self.drawn = lines.len();
    }

    fn erase(&mut self) {
        let _ = io::stderr().write_all(self.erasing().as_bytes());
        self.drawn = 0;
    }

    fn erasing(&self) -> String {
        match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    /// The unfinished ones are shown first where not all fit.
    fn lines(&self) -> Vec<String> {
        let all = self.rows.len();
        let mut shown: Vec<&Row> = self.rows.iter().collect();
        if all > ROWS_MAX {
            shown.sort_by_key(|row| row.over);
            shown.truncate(ROWS_MAX);
        }
        let width = shown.iter().map(|row| columns_of(&row.name)).max().unwrap_or(0).min(24);
        let mut lines: Vec<String> = shown.iter().map(|row| row.line(width)).collect();
        if all > ROWS_MAX {
            lines.push(format!("… and {} more\n", all - ROWS_MAX));
        }
        lines
    }
}

impl Row {
    fn line(&self, width: usize) -> String {
        let name = cut(&plain(&self.name), width);
        let spent = match self.over {
            true => String::new(),
            false => duration(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)),
        };
        let line = format!("{}  {}  {spent}", padded(&name, width), self.doing);
        format!("{}\n", cut(line.trim_end(), WIDTH))
    }
}

fn finished(report: &AttemptReport) -> String {
    match fractal::model::rank::ruled_out(report) {
        Some(why) => plain(&why),
        None => format!("passes, {}", duration(report.usage.wall_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_in_the_order_in_which_they_came() {
        let mut state = State::default();
        state.put("b", "running".into(), false);
        state.put("a", "running".into(), false);
        state.put("b", "passes, 3 ms".into(), true);
        let lines = state.lines();
        assert_eq!(lines[0], "b  passes, 3 ms\n");
        assert!(lines[1].starts_with("a  running  "));
        for number in 0..40 {
            state.put(&format!("n{number}"), "running".into(), false);
        }
        let lines = state.lines();
        assert_eq!(lines.len(), ROWS_MAX + 1);
        assert!(!lines.iter().any(|line| line.starts_with("b ")));
        assert_eq!(lines.last().map(String::as_str), Some("… and 24 more\n"));
    }
}
