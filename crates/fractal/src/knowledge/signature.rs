//! What failures that are alike have in common, in words.
//!
//! The line that says most about a failure, with everything taken out that
//! differs from one time to the next: numbers, addresses, paths, times. Two
//! failures with one signature are counted together; nothing else follows from
//! it, so one that is too coarse or too fine costs no more than a glance.

use super::scrubbed;
use fractal_model::Outcome;
use regex::Regex;
use std::sync::LazyLock;

const CHARS_MAX: usize = 200;
/// The end of an output is where it says why.
const LINES: usize = 200;

/// Lines that tell why, the more telling first.
static TELLING: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let shapes = [
        // The last line of a traceback: `ModuleNotFoundError: No module named 'x'`.
        r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Failure)\b",
        r"^error(?:\[\w+\])?:",
        r"panicked at|^fatal:|^FAILED\b|^FAIL:|AssertionError|assertion .*failed|undefined reference",
        r"(?i)\b(?:error|exception|fatal|panic|cannot|can't|could not|not found|denied|refused|timed out|timeout|no such|unable)\b",
        r"(?i)\bfail(?:ed|ure|s)?\b",
    ];
    shapes.iter().map(|shape| Regex::new(shape).expect("the shapes are constants")).collect()
});

static PARTICULARS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let shapes = [
        (r"\x1b\[[0-9;]*[A-Za-z]", ""),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*Z?", "<time>"),
        (r"0x[0-9a-fA-F]+", "<hex>"),
        (r"\b[0-9a-fA-F]{7,}\b", "<hex>"),
        (r"(?:/[\w.+@%~-]+){2,}/?", "<path>"),
        (r"\d+", "<n>"),
    ];
    let compile = |(shape, with): (&str, &'static str)| {
        (Regex::new(shape).expect("the shapes are constants"), with)
    };
    shapes.into_iter().map(compile).collect()
});

/// The signature of a run that did not pass.
pub(crate) fn signature(outcome: Outcome, exit: i32, stdout: &str, stderr: &str) -> String {
    let how = match outcome {
        Outcome::Exited => format!("exit {exit}"),
        Outcome::Signalled => "signal".to_owned(),
        Outcome::Timeout => "time limit".to_owned(),
        Outcome::Memory => "memory limit".to_owned(),
        Outcome::Disk => "disk limit".to_owned(),
        Outcome::Output => "output limit".to_owned(),
    };
    match telling(stderr)
        .or_else(|| telling(stdout))
        .or_else(|| last(stderr))
        .or_else(|| last(stdout))
    {
        Some(line) => format!("{how}: {}", general(&line)),
        None => how,
    }
}

fn lines(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
    lines.into_iter().rev().map(str::trim).filter(|line| !line.is_empty())
}

/// The last line of the most telling kind.
fn telling(text: &str) -> Option<String> {
    TELLING
        .iter()
        .find_map(|shape| lines(text).rfind(|line| shape.is_match(line)).map(str::to_owned))
}

fn last(text: &str) -> Option<String> {
    lines(text).next_back().map(str::to_owned)
}

fn general(line: &str) -> String {
    let line = scrubbed(line);
    let line = PARTICULARS.iter().fold(line.into_owned(), |line, (shape, with)| {
        shape.replace_all(&line, *with).into_owned()
    });
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_each_time_is_no_part_of_it() {
        let check = |stderr: &str, expect: &str| {
            assert_eq!(signature(Outcome::Exited, 1, "", stderr), expect);
        };
        check(
            "Traceback (most recent call last):\n  File \"/tmp/x1/a.py\", line 3\nModuleNotFoundError: No module named 'yaml'\n",
            "exit 1: ModuleNotFoundError: No module named 'yaml'",
        );
        check(
            "error[E0382]: borrow of moved value: `x`\n --> src/a.rs:3:4\nerror: could not compile `y`\n",
            "exit 1: error: could not compile `y`",
        );
        check(
            "cat: /home/ann/app/x.txt: No such file or directory\n",
            "exit 1: cat: <path>: No such file or directory",
        );
        check(
            "thread 'main' panicked at src/main.rs:10:5:\nindex 7\n",
            "exit 1: thread 'main' panicked at src/main.rs:<n>:<n>:",
        );
        check("only this\n\n", "exit 1: only this");
        check("", "exit 1");
    }

    #[test]
    fn the_same_failure_twice_has_one_signature() {
        let one = signature(
            Outcome::Exited,
            1,
            "2026-11-19T10:00:00Z E pool 0x7f3a timed out after 30 s",
            "",
        );
        let two = signature(
            Outcome::Exited,
            1,
            "2026-11-20T11:30:12Z E pool 0x81bc timed out after 31 s",
            "",
        );
        assert_eq!(one, two);
        assert_eq!(signature(Outcome::Timeout, 124, "", ""), "time limit");
    }
}
