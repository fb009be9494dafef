//! Time, and waiting for it.
//!
//! A guest that sleeps does not block its host: it says until when, and who
//! drives it waits, with an eye on being stopped.

use super::abi::{Done, Errno};
use super::memory::Memory;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const REALTIME: u32 = 0;

/// Layouts of what is waited for and of what happened.
const SUBSCRIPTION_BYTES: u32 = 48;
const EVENT_BYTES: u32 = 32;
const CLOCK: u8 = 0;
const ABSOLUTE: u16 = 1;

/// The most things to wait for at once, as many as there are descriptors.
const SUBSCRIPTIONS_MAX: u32 = 2048;

pub(super) struct Clock {
    started: Instant,
    pub(super) wake: Wake,
}

/// When a guest that waits goes on.
#[derive(Clone, Default)]
pub(super) struct Wake(Arc<Mutex<Option<Instant>>>);

impl Wake {
    pub(super) fn at(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// What a guest waits for.
pub(super) struct Waiting {
    /// Events that have happened already, as the guest reads them.
    ready: Vec<[u8; EVENT_BYTES as usize]>,
    /// When each clock rings, with its event.
    clocks: Vec<(Duration, [u8; EVENT_BYTES as usize])>,
}

impl Clock {
    pub(super) fn start(wake: Wake) -> Clock {
        Clock { started: Instant::now(), wake }
    }

    pub(super) fn now_ns(&self, id: u32) -> u64 {
        let since = match id {
            REALTIME => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            _ => self.started.elapsed(),
        };
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reads what the guest wants to wait for. Input and output are always
    /// ready.
    pub(super) fn waiting(&self, memory: &Memory, at: u32, count: u32) -> Done<Waiting> {
        if count == 0 || count > SUBSCRIPTIONS_MAX {
            return Err(Errno::INVAL);
        }
        let mut waiting = Waiting { ready: Vec::new(), clocks: Vec::new() };
        for index in 0..count {
            let from = at.checked_add(index * SUBSCRIPTION_BYTES).ok_or(Errno::FAULT)?;
            let asked = memory.get(from, SUBSCRIPTION_BYTES)?;
            let mut event = [0; EVENT_BYTES as usize];
            event[..8].copy_from_slice(&asked[..8]);
            event[10] = asked[8];
            if asked[8] != CLOCK {
                event[16] = 1;
                waiting.ready.push(event);
                continue;
            }
            let number = |at: usize| -> u64 {
                u64::from_le_bytes(asked[at..at + 8].try_into().unwrap_or_default())
            };
            let (id, timeout) = (number(16) as u32, number(24));
            let absolute = u16::from_le_bytes([asked[40], asked[41]]) & ABSOLUTE != 0;
            let ns = if absolute { timeout.saturating_sub(self.now_ns(id)) } else { timeout };
            waiting.clocks.push((Duration::from_nanos(ns), event));
        }
        Ok(waiting)
    }
}

impl Waiting {
    /// How long nothing happens.
    pub(super) fn time(&self) -> Duration {
        match self.ready.is_empty() {
            false => Duration::ZERO,
            true => self.clocks.iter().map(|(time, _)| *time).min().unwrap_or_default(),
        }
    }

    /// Writes the events of which it is time; says how many.
    pub(super) fn tell(self, memory: &mut Memory, at: u32) -> Done<usize> {
        let time = self.time();
        let rung = self.clocks.into_iter().filter(|(clock, _)| *clock <= time);
        let events: Vec<_> = self.ready.into_iter().chain(rung.map(|(_, event)| event)).collect();
        memory.put(at, &events.concat())?;
        Ok(events.len())
    }
}
