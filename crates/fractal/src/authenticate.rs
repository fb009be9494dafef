//! From a secret to its key.
//!
//! A secret that is wrong in any way gets one answer, after the same work:
//! who guesses learns neither that a key exists nor how far the guess was
//! right. Refusals are written down, but a flood of them is counted and not
//! listed, so that bad logins cannot fill the disk. The secret itself is never
//! written.

use crate::{Engine, Grant, doorway};
use fractal_model::{
    Code, Error, Id, Key, RecordBody, Result, hash_secret, read_secret, same_hash,
};
use fractal_store::{KeyRow, Reads, now_ms};
use serde_json::json;
use std::sync::Mutex;

/// Refusals per minute that get a record of their own.
const RECORDS_PER_MINUTE: u32 = 10;
const MINUTE_MS: u64 = 60_000;

/// What this process refused lately.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    minute: u64,
    written: u32,
    /// Since the last record that was written.
    unwritten: u64,
}

impl Refusals {
    /// Whether this one gets a record, and how many before it got none.
    fn count(&self, now_ms: u64) -> Option<u64> {
        let mut counted = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let minute = now_ms / MINUTE_MS;
        if counted.minute != minute {
            (counted.minute, counted.written) = (minute, 0);
        }
        if counted.written >= RECORDS_PER_MINUTE {
            counted.unwritten += 1;
            return None;
        }
        counted.written += 1;
        Some(std::mem::take(&mut counted.unwritten))
    }
}

impl Engine {
    /// The key that a secret is good for. The key of a door is good at that
    /// door alone: anywhere else its holder would be without the door's bounds.
    pub fn authenticate(&self, secret: &str) -> Result<Key> {
        self.key_of_secret(secret, None)
    }

    /// The same at a door, which takes no other key than its own.
    pub fn authenticate_at(&self, secret: &str, door: &Grant) -> Result<Key> {
        self.key_of_secret(secret, Some(door))
    }

    fn key_of_secret(&self, secret: &str, door: Option<&Grant>) -> Result<Key> {
        self.ready()?;
        let now = now_ms();
        let id = read_secret(secret);
        let row = id.map_or(Ok(None), |id| self.store.key(id))?;
        let belongs = |key: &Key| match door {
            Some(door) => door.key.id == key.id,
            None => !doorway::is_doors(key),
        };
        let is_right = |row: &KeyRow| is_good(row, secret, now) & belongs(&row.key);
        let Some(row) = row.filter(is_right) else {
            // As much work for what was never a key as for what is one.
            same_hash(&hash_secret(secret), &hash_secret(""));
            self.refused(now, "not a secret", id, None);
            return Err(Error::denied("this is not the secret of a key")
                .hint("`fractal key create --role ROLE` makes one"));
        };
        // A door whose supervisor was killed is closed, whoever notices first.
        let is_over = match door {
            Some(door) => !self.is_open(&row.key)? || self.has_lost_maker(door)?,
            None => false,
        };
        match row.key.ended(now).or(is_over.then_some("over")) {
            None => Ok(row.key),
            Some(how) => {
                self.refused(now, how, Some(row.key.id), Some(&row.key));
                Err(Error::denied(format!("the key `{}` is {how}", row.key.name))
                    .hint("ask for a new one: `fractal key create --role ROLE`"))
            }
        }
    }

    /// Writes down that somebody came with proof of another kind that does not
    /// hold: for doors that know other ways than keys.
    pub fn record_unknown(&self, why: &str) {
        if self.ready().is_ok() {
            self.refused(now_ms(), why, None, None);
        }
    }

    /// Whether a key that was good when its holder came in has ended since.
    /// One that no table holds ends by itself alone.
    pub fn has_ended(&self, key: &Key) -> Result<bool> {
        self.ready()?;
        let now = now_ms();
        let row = self.store.key(key.id)?;
        Ok(key.ended(now).is_some() || row.is_some_and(|row| row.key.ended(now).is_some()))
    }

    /// The same at a door, which also ends with who made it.
    pub fn has_ended_at(&self, key: &Key, door: &Grant) -> Result<bool> {
        Ok(self.has_ended(key)? || !self.is_open(key)? || self.has_lost_maker(door)?)
    }

    /// Writes down that nobody came in. An id that was claimed is named only
    /// where its secret was right: otherwise it is just what somebody typed.
    fn refused(&self, now_ms: u64, why: &str, claimed: Option<Id>, ended: Option<&Key>) {
        let Some(unwritten) = self.refusals.count(now_ms) else { return };
        let mut detail = json!({ "why": why });
        if let Some(claimed) = claimed {
            detail["claimed"] = json!(claimed);
        }
        if unwritten > 0 {
            detail["more_before"] = json!(unwritten);
        }
        let body = RecordBody {
            time_ms: now_ms,
            who: ended.map_or("nobody", |key| key.name.as_str()).to_owned(),
            key: ended.map(|key| key.id),
            tenant: None,
            action: "authenticate".to_owned(),
            place: None,
            sandbox: None,
            name: None,
            before: None,
            after: None,
            error: Some(Code::Denied),
            detail,
        };
        // Who is refused is refused, whether or not it can be written down.
        let _ = self.store.transact_relaxed(|tx| tx.append(body));
    }
}

/// Both comparisons always happen, and each takes the same time for any input.
fn is_good(row: &KeyRow, secret: &str, now_ms: u64) -> bool {
    let hash = hash_secret(secret);
    let (old, until_ms) = row.old.as_ref().map_or(("", 0), |(old, until)| (old.as_str(), *until));
    let is_old = same_hash(&hash, old) && now_ms < until_ms;
    same_hash(&hash, &row.hash) | is_old
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_counted_and_not_listed() {
        let refusals = Refusals::default();
        let written = (0..1000).filter_map(|_| refusals.count(5)).count();
        assert_eq!(written, RECORDS_PER_MINUTE as usize);
        assert_eq!(refusals.count(MINUTE_MS + 1), Some(990), "the next minute tells of them");
        assert_eq!(refusals.count(MINUTE_MS + 1), Some(0));
    }
}
