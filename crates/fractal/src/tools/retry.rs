//! When a call is tried again, and how long it waits before.

use fractal_model::Code;
use std::time::Duration;

const FIRST_MS: u64 = 50;
const WAIT_MS_MAX: u64 = 2_000;

/// Whether the same call may do better in a moment.
pub fn is_transient(code: Code, retry_timeout: bool) -> bool {
    code == Code::Busy || (code == Code::Timeout && retry_timeout)
}

/// Twice as long each time, and by chance somewhere in the upper half of it,
/// so that those who failed together do not come back together.
pub fn pause(tried: u32, dice: u64) -> Duration {
    let doubled = FIRST_MS.saturating_mul(1 << tried.saturating_sub(1).min(16));
    let whole = doubled.min(WAIT_MS_MAX);
    Duration::from_millis(whole / 2 + dice % (whole / 2 + 1))
}

/// Some number that differs each time.
pub fn dice() -> u64 {
    let mut bytes = [0; 8];
    // Without chance all wait equally long, which is worse and not wrong.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let check = |tried, from, to| {
            for dice in [0, 1, 17, u64::MAX] {
                let ms = pause(tried, dice).as_millis();
                assert!((from..=to).contains(&ms), "{tried}: {ms}");
            }
        };
        check(1, 25, 50);
        check(2, 50, 100);
        check(5, 400, 800);
        check(40, 1000, 2000);
    }

    #[test]
    fn only_what_passes_by_itself_is_tried_again() {
        assert!(is_transient(Code::Busy, false));
        assert!(!is_transient(Code::Timeout, false) && is_transient(Code::Timeout, true));
        assert!(!is_transient(Code::Invalid, true) && !is_transient(Code::Failed, true));
    }
}
