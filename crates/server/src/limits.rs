//! How much each key may ask, and how often somebody may guess.
//!
//! Rates are buckets that fill with time. The tables are bounded: whoever has
//! been quiet is forgotten, which is the same as a full bucket.

use crate::failure::Failure;
use fractal::model::{Id, Key};
use fractal::{Code, Error};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Wrong keys that one address may try in a minute.
const GUESSES_PER_MINUTE: f64 = 30.0;
const ENTRIES_MAX: usize = 10_000;

/// A bucket that holds a minute's worth and fills with time.
#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    since: Instant,
}

impl Bucket {
    fn full(per_minute: f64) -> Bucket {
        Bucket { left: per_minute, since: Instant::now() }
    }

    fn fill(&mut self, per_minute: f64) {
        let now = Instant::now();
        let gained = now.duration_since(self.since).as_secs_f64() * per_minute / 60.0;
        self.left = (self.left + gained).min(per_minute);
        self.since = now;
    }

    /// Seconds until there is one more.
    fn wait_s(&self, per_minute: f64) -> u64 {
        ((1.0 - self.left) * 60.0 / per_minute).ceil().max(1.0) as u64
    }
}

/// Buckets and counters of everybody who asks.
#[derive(Default)]
pub struct Gauges {
    requests: Mutex<HashMap<Id, Bucket>>,
    guesses: Mutex<HashMap<Option<IpAddr>, Bucket>>,
    at_work: Arc<Mutex<HashMap<String, u32>>>,
}

/// A panic elsewhere leaves numbers behind, no broken promises.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gauges {
    /// Notes a wrong key; refuses more plainly who guesses often. A good key
    /// passes all the same: secrets are far too long to be guessed, and one
    /// program must not lock out everybody behind its address.
    pub fn bad_key(&self, peer: Option<IpAddr>) -> Option<Failure> {
        let mut guesses = lock(&self.guesses);
        make_room(&mut guesses, GUESSES_PER_MINUTE);
        let bucket = guesses.entry(peer).or_insert_with(|| Bucket::full(GUESSES_PER_MINUTE));
        bucket.fill(GUESSES_PER_MINUTE);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return None;
        }
        let error = Error::new(Code::Busy, "too many wrong keys came from this address");
        Some(Failure::busy(error, bucket.wait_s(GUESSES_PER_MINUTE)))
    }

    /// Takes one request from what the key may ask in a minute.
    pub fn request(&self, key: &Key) -> Result<(), Failure> {
        let Some(rate) = key.rate_per_minute else { return Ok(()) };
        let rate = f64::from(rate.max(1));
        let mut requests = lock(&self.requests);
        make_room(&mut requests, rate);
        let bucket = requests.entry(key.id).or_insert_with(|| Bucket::full(rate));
        bucket.fill(rate);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let text = format!("the key `{}` may ask {rate} times a minute", key.name);
        Err(Failure::busy(Error::new(Code::Busy, text), bucket.wait_s(rate)))
    }

    /// Counts work of a key while it lasts.
    pub fn work(&self, asker: &crate::asker::Asker) -> Result<AtWork, Failure> {
        let id = asker.id();
        let most = asker.key.as_ref().and_then(|key| key.concurrent);
        let mut at_work = lock(&self.at_work);
        let count = at_work.entry(id.clone()).or_default();
        if let Some(most) = most
            && *count >= most
        {
            let text = format!("{count} requests of this key are at work, {most} may be");
            return Err(Failure::busy(Error::new(Code::Busy, text), 1));
        }
        *count += 1;
        Ok(AtWork { id, at_work: self.at_work.clone() })
    }
}

/// Forgets the fullest entries when there are too many: they lose nothing.
fn make_room<K: Clone + Eq + std::hash::Hash>(map: &mut HashMap<K, Bucket>, rate: f64) {
    if map.len() < ENTRIES_MAX {
        return;
    }
    map.values_mut().for_each(|bucket| bucket.fill(rate));
    map.retain(|_, bucket| bucket.left < rate - 0.5);
    if map.len() >= ENTRIES_MAX {
        let some: Vec<K> = map.keys().take(ENTRIES_MAX / 2).cloned().collect();
        for key in some {
            map.remove(&key);
        }
    }
}

/// One piece of work; over when dropped.
pub struct AtWork {
    id: String,
    at_work: Arc<Mutex<HashMap<String, u32>>>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut at_work = lock(&self.at_work);
        if let Some(count) = at_work.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                at_work.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_run_out_and_others_are_not_held_up() {
        let gauges = Gauges::default();
        let one = Some(IpAddr::from([127, 0, 0, 1]));
        for _ in 0..30 {
            assert!(gauges.bad_key(one).is_none());
        }
        assert!(gauges.bad_key(one).is_some());
        assert!(gauges.bad_key(Some(IpAddr::from([127, 0, 0, 2]))).is_none());
    }

    #[test]
    fn tables_stay_small() {
        let gauges = Gauges::default();
        for number in 0..50_000u32 {
            gauges.bad_key(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(lock(&gauges.guesses).len() <= ENTRIES_MAX);
    }
}
