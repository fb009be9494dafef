//! What clients ask for, as they write it. What they leave out is what the
//! client's own models would fill in.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

fn usual_session() -> String {
    "default".to_owned()
}

const fn usual_startup() -> f64 {
    1.0
}

const fn usual_interrupt() -> f64 {
    0.2
}

const fn usual_retries() -> u32 {
    3
}

#[derive(Debug, Deserialize)]
pub struct NewSession {
    /// Files that the shell reads first, as words of its own language.
    #[serde(default)]
    pub startup_source: Vec<String>,
    #[serde(default = "usual_session")]
    pub session: String,
    #[serde(default = "usual_startup")]
    pub startup_timeout: f64,
}

#[derive(Debug, Deserialize)]
pub struct OldSession {
    #[serde(default = "usual_session")]
    pub session: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "action_type", rename_all = "snake_case")]
pub enum Action {
    Bash(Bash),
    BashInterrupt(Interrupt),
}

impl Action {
    pub fn session(&self) -> &str {
        match self {
            Action::Bash(asked) => &asked.session,
            Action::BashInterrupt(asked) => &asked.session,
        }
    }
}

/// What is done with how a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    Silent,
    #[default]
    Raise,
    Ignore,
}

#[derive(Debug, Deserialize)]
pub struct Bash {
    pub command: String,
    #[serde(default = "usual_session")]
    pub session: String,
    #[serde(default)]
    pub timeout: Option<f64>,
    #[serde(default)]
    pub is_interactive_command: bool,
    #[serde(default)]
    pub is_interactive_quit: bool,
    #[serde(default)]
    pub check: Check,
    #[serde(default)]
    pub error_msg: String,
    #[serde(default)]
    pub expect: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Interrupt {
    #[serde(default = "usual_session")]
    pub session: String,
    #[serde(default = "usual_interrupt")]
    pub timeout: f64,
    #[serde(default = "usual_retries")]
    pub n_retry: u32,
    #[serde(default)]
    pub expect: Vec<String>,
}

/// A program's name, or all of its words.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Words {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
pub struct Command {
    pub command: Words,
    #[serde(default)]
    pub timeout: Option<f64>,
    #[serde(default)]
    pub shell: bool,
    #[serde(default)]
    pub check: bool,
    #[serde(default)]
    pub error_msg: String,
    /// All of its environment, where it is not to be ours.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub merge_output_streams: bool,
}

#[derive(Debug, Deserialize)]
pub struct Read {
    pub path: String,
    #[serde(default)]
    pub encoding: Option<String>,
    #[serde(default)]
    pub errors: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Write {
    pub path: String,
    pub content: String,
}

/// Nobody waits longer, whatever was asked for: a year.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// So many seconds; fewer than none are none.
pub fn seconds(count: f64) -> Duration {
    Duration::try_from_secs_f64(count.max(0.0)).unwrap_or(LONGEST).min(LONGEST)
}

/// When a time limit is over; without one, when nobody can be waiting any more.
pub fn until(timeout: Option<f64>) -> Instant {
    Instant::now() + timeout.map_or(LONGEST, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_told_apart_by_their_type() {
        let read = |text: &str| serde_json::from_str::<Action>(text);
        let bash = read(r#"{"action_type":"bash","command":"ls"}"#).expect("it reads");
        assert_eq!(bash.session(), "default");
        assert!(matches!(bash, Action::Bash(Bash { check: Check::Raise, timeout: None, .. })));
        let stop = read(r#"{"action_type":"bash_interrupt","session":"a"}"#).expect("it reads");
        assert!(matches!(&stop, Action::BashInterrupt(asked) if asked.n_retry == 3));
        assert!(read(r#"{"action_type":"sing","command":"ls"}"#).is_err());
    }

    #[test]
    fn a_time_limit_has_bounds() {
        for (asked, expect) in [(-1.0, Duration::ZERO), (f64::NAN, Duration::ZERO)] {
            assert_eq!(seconds(asked), expect);
        }
        assert_eq!(seconds(1e300), LONGEST);
        assert_eq!(seconds(0.5), Duration::from_millis(500));
    }
}
