//! A sandbox that is asked for twice under one name is made once.
//!
//! The answer holds a token and is not kept; the name stands in the sandbox's
//! entry, and the answer is made anew.

use crate::asker::Asker;
use crate::failure::Failure;
use crate::idempotent::HEADER;
use axum::http::HeaderMap;
use fractal::{Code, Error};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

const NAME_BYTES_MAX: usize = 255;

/// Names of requests that are on their way.
#[derive(Default)]
pub struct Making(Mutex<HashSet<String>>);

/// On its way until dropped.
pub struct OnItsWay<'a> {
    making: &'a Making,
    name: String,
}

impl Making {
    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins; whoever comes second is told to come again.
    pub fn begin(&self, name: String) -> Result<OnItsWay<'_>, Failure> {
        if !self.lock().insert(name.clone()) {
            let error = Error::new(Code::Busy, "a request with this key is on its way");
            return Err(Failure::busy(error, 1));
        }
        Ok(OnItsWay { making: self, name })
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.making.lock().remove(&self.name);
    }
}

/// The name of a request, which nobody else has.
pub fn name(asker: &Asker, headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= NAME_BYTES_MAX);
    let bad = || Error::invalid(format!("an idempotency key is 1 to {NAME_BYTES_MAX} bytes"));
    Ok(Some(format!("{} {}", asker.id(), text.ok_or_else(bad)?)))
}
