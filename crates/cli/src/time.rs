//! Times as people read them. The clock is read here and nowhere else.

use fractal::model::{format_duration_ms, format_iso_ms, parse_iso_ms};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// `2 minutes` for an ISO time in the past or future; the text itself where
/// it is not a time. Such times have whole seconds, so nothing is nearer than
/// one. What lies ahead is rounded: seven days are still seven after a minute.
pub fn distance(iso: &str) -> String {
    let now = now_ms();
    match parse_iso_ms(iso) {
        Some(ms) if ms > now => format_duration_ms(rounded(ms - now)),
        Some(ms) => format_duration_ms((now - ms).max(1_000)),
        None => iso.to_owned(),
    }
}

/// Half a unit more, of the unit that will be shown.
fn rounded(ms: u64) -> u64 {
    let units = [86_400_000, 3_600_000, 60_000, 1_000];
    let unit = units.into_iter().find(|unit| ms >= *unit).unwrap_or(1_000);
    (ms + unit / 2).max(1_000)
}

/// Milliseconds since 1970 as `2026-11-15 20:43:57`, in UTC.
pub fn stamp(ms: u64) -> String {
    format_iso_ms(ms).replace('T', " ").replace('Z', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_ahead_is_rounded() {
        let check = |ms: u64, text: &str| assert_eq!(format_duration_ms(rounded(ms)), text);
        check(7 * 86_400_000 - 60_000, "7 days");
        check(3_600_000 - 1, "1 hour");
        check(90_000, "2 minutes");
        check(10, "1 s");
    }
}
