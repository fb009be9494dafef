//! What a terminal has shown and nobody has taken yet, and waiting for a place
//! in it.

use super::super::Thrown;
use super::super::gathered::Gathered;
use regex::bytes::{Regex, RegexBuilder};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How far before what is new a match may begin.
const BEHIND_BYTES: usize = 64 << 10;
/// Patterns of one action, and the size of one when it is ready to be used.
const PATTERNS_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub struct Screen {
    shown: Mutex<Shown>,
    changed: Notify,
}

#[derive(Default)]
struct Shown {
    gathered: Gathered,
    is_over: bool,
}

/// What is waited for: places that are told apart by their number.
pub struct Patterns(Vec<Regex>);

/// Where waiting has ended.
pub struct Found {
    /// What was shown before it.
    pub before: Vec<u8>,
    /// The number of the pattern.
    pub which: usize,
    /// What its first group holds, where it has one.
    pub group: String,
}

/// Why waiting has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The time is over.
    Late,
    /// Nobody shows anything any more.
    Over,
}

impl Patterns {
    /// One of ours first, then those of a client.
    pub fn new(own: &Regex, more: &[String]) -> Result<Patterns, Thrown> {
        let bad = |why: String| Thrown::of("builtins.ValueError", why);
        if more.len() > PATTERNS_MAX {
            return Err(bad(format!("`expect` has more than {PATTERNS_MAX} patterns")));
        }
        let read = |text: &String| {
            let mut builder = RegexBuilder::new(text);
            let built = builder.dot_matches_new_line(true).size_limit(PATTERN_BYTES_MAX).build();
            built.map_err(|error| {
                let text = text.escape_debug();
                bad(format!("`{text}` in `expect` is no regular expression here: {error}"))
            })
        };
        let more: Result<Vec<Regex>, Thrown> = more.iter().map(read).collect();
        Ok(Patterns([vec![own.clone()], more?].concat()))
    }

    pub fn one(own: &Regex) -> Patterns {
        Patterns(vec![own.clone()])
    }

    /// The first place in the text; of several there, the one named first.
    fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize, usize, String)> {
        let found = self.0.iter().enumerate().filter_map(|(which, pattern)| {
            let captures = pattern.captures_at(text, from)?;
            let place = captures.get(0)?;
            let group = captures.get(1).map(|group| group.as_bytes()).unwrap_or_default();
            let group = String::from_utf8_lossy(group).into_owned();
            Some((place.start(), place.end(), which, group))
        });
        found.min_by_key(|(start, _, which, _)| (*start, *which))
    }
}

impl Screen {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn show(&self, bytes: &[u8]) {
        self.lock().gathered.push(bytes);
        self.changed.notify_waiters();
    }

    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_waiters();
    }

    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// All that was shown and not taken.
    pub fn take(&self) -> Vec<u8> {
        self.lock().gathered.take_all()
    }

    /// Waits until one of these is shown, and takes all up to its end.
    pub async fn expect(&self, patterns: &Patterns, until: Instant) -> Result<Found, Missed> {
        let mut seen = 0;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut shown = self.lock();
                let bytes = shown.gathered.bytes();
                let from = match bytes.len() < seen {
                    // Something was cut out of it: what is new is at the end.
                    true => bytes.len() / 2,
                    false => seen.saturating_sub(BEHIND_BYTES),
                };
                if let Some((start, end, which, group)) = patterns.find(bytes, from) {
                    let before = shown.gathered.take(start, end);
                    return Ok(Found { before, which, group });
                }
                seen = bytes.len();
                if shown.is_over {
                    return Err(Missed::Over);
                }
            }
            timeout_at(until, changed).await.map_err(|_| Missed::Late)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(more: &[&str]) -> Patterns {
        let own = Regex::new("<([0-9]+)>").expect("it reads");
        let more: Vec<String> = more.iter().map(|text| (*text).to_owned()).collect();
        Patterns::new(&own, &more).expect("they read")
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_first_place_ends_the_wait_and_the_rest_stays() {
        let screen = Screen::default();
        let soon = || Instant::now() + std::time::Duration::from_millis(20);
        screen.show(b"one >>> two <7> three");
        let found = screen.expect(&patterns(&[">>> "]), soon()).await.expect("it is there");
        assert_eq!((found.before.as_slice(), found.which), (&b"one "[..], 1));
        let found = screen.expect(&patterns(&["nothing"]), soon()).await.expect("it is there");
        assert_eq!((found.before.as_slice(), found.group.as_str()), (&b"two "[..], "7"));
        let missed = screen.expect(&patterns(&[]), soon()).await.err();
        assert_eq!(missed, Some(Missed::Late));
        screen.end();
        let missed = screen.expect(&patterns(&[]), soon()).await.err();
        assert_eq!((missed, screen.take()), (Some(Missed::Over), b" three".to_vec()));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let own = Regex::new("x").expect("it reads");
        assert!(Patterns::new(&own, &["(".to_owned()]).is_err());
        assert!(Patterns::new(&own, &vec!["a".to_owned(); PATTERNS_MAX + 1]).is_err());
    }
}
