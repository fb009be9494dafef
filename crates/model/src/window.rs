//! Freeze windows: times of the day or the week at which nothing moves.
//!
//! `fri 16:00-mon 08:00` comes back every week, `22:00-06:00` every day. Times
//! are UTC unless a fixed offset follows, as in `22:00-06:00 +02:00`: no table
//! of time zones is asked, so a window never depends on the machine. Pure: who
//! asks brings the time.

use crate::{Error, Result};
use std::fmt;

const MINUTE_MS: u64 = 60_000;
const DAY_MIN: u32 = 24 * 60;
const WEEK_MIN: u32 = 7 * DAY_MIN;
/// 1970 began on a Thursday; weeks begin on Monday here.
const EPOCH_MIN: u64 = 3 * DAY_MIN as u64;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// No place on earth is further from UTC.
const OFFSET_MAX: u32 = 14 * 60;

const HINT: &str = "write `fri 16:00-mon 08:00` for every week or `22:00-06:00` for every day, \
                    in UTC, or with an offset as in `22:00-06:00 +02:00`";

/// A span of time that comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    text: String,
    /// Minutes in UTC, from the beginning of the period.
    start: u32,
    /// Minutes from the start; never zero.
    length: u32,
    /// A day or a week.
    period: u32,
}

impl Window {
    /// Reads one. A window that ends when it begins is always closed.
    pub fn parse(text: &str) -> Result<Window> {
        let bad = || {
            Error::invalid(format!("`{}` is not a freeze window", text.escape_debug())).hint(HINT)
        };
        let (span, offset) = split_offset(text.trim()).ok_or_else(bad)?;
        let (from, to) = span.split_once('-').ok_or_else(bad)?;
        let (from, to) = (moment(from).ok_or_else(bad)?, moment(to).ok_or_else(bad)?);
        let (start, end, period) = match (from, to) {
            ((None, start), (None, end)) => (start, end, DAY_MIN),
            ((Some(first), start), (Some(last), end)) => {
                (first * DAY_MIN + start, last * DAY_MIN + end, WEEK_MIN)
            }
            _ => return Err(bad()),
        };
        let utc = |local: u32| (i64::from(local) - offset).rem_euclid(i64::from(period)) as u32;
        let (start, end) = (utc(start), utc(end));
        let length = match (end + period - start) % period {
            0 => period,
            length => length,
        };
        Ok(Window { text: text.trim().to_owned(), start, length, period })
    }

    /// When it ends, if this moment (milliseconds since 1970) lies in it.
    pub fn until(&self, now_ms: u64) -> Option<u64> {
        let now_min = now_ms / MINUTE_MS + EPOCH_MIN;
        let period = u64::from(self.period);
        let since = (now_min % period + period - u64::from(self.start)) % period;
        let length = u64::from(self.length);
        (since < length).then(|| (now_min - since + length - EPOCH_MIN) * MINUTE_MS)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Cuts a trailing `UTC` or `+02:00` off; minutes to subtract for UTC.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    let Some((span, last)) = text.rsplit_once(' ') else { return Some((text, 0)) };
    if last == "UTC" || last == "Z" {
        return Some((span, 0));
    }
    let (sign, clock) = match last.split_at_checked(1)? {
        ("+", clock) => (1, clock),
        ("-", clock) => (-1, clock),
        _ => return Some((text, 0)),
    };
    let minutes = clock_min(clock).filter(|minutes| *minutes <= OFFSET_MAX)?;
    Some((span, sign * i64::from(minutes)))
}

/// `fri 16:00` or `16:00`.
fn moment(text: &str) -> Option<(Option<u32>, u32)> {
    match text.trim().split_once(' ') {
        None => Some((None, clock_min(text.trim())?)),
        Some((day, clock)) => {
            let day = DAYS.iter().position(|name| day.eq_ignore_ascii_case(name))?;
            Some((Some(u32::try_from(day).ok()?), clock_min(clock.trim())?))
        }
    }
}

/// Minutes of `16:00`; a day ends at 24:00.
fn clock_min(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let plain = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| plain)
    };
    let (hour, minute) = (number(hour, 1..=2)?, number(minute, 2..=2)?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= DAY_MIN).then_some(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format_iso_ms, parse_iso_ms};

    #[test]
    fn windows_close_and_open_at_their_minutes() {
        let check = |window: &str, now: &str, until: Option<&str>| {
            let window = Window::parse(window).expect(window);
            let now = parse_iso_ms(now).expect("a time");
            let found = window.until(now).map(format_iso_ms);
            assert_eq!(found.as_deref(), until, "{window} at {}", format_iso_ms(now));
        };
        // 2026-11-16 is a Monday.
        let weekend = "fri 16:00-mon 08:00";
        check(weekend, "2026-11-16T07:59:59Z", Some("2026-11-16T08:00:00Z"));
        check(weekend, "2026-11-16T08:00:00Z", None);
        check(weekend, "2026-11-20T15:59:59Z", None);
        check(weekend, "2026-11-20T16:00:00Z", Some("2026-11-23T08:00:00Z"));
        check(weekend, "2026-11-22T00:00:00Z", Some("2026-11-23T08:00:00Z"));
        check("tue 09:00-tue 10:00", "2026-11-17T09:30:00Z", Some("2026-11-17T10:00:00Z"));
        check("22:00-06:00", "2026-11-16T23:00:00Z", Some("2026-11-17T06:00:00Z"));
        check("22:00-06:00", "2026-11-16T05:59:00Z", Some("2026-11-16T06:00:00Z"));
        check("22:00-06:00", "2026-11-16T12:00:00Z", None);
        check("22:00-24:00", "2026-11-16T23:59:00Z", Some("2026-11-17T00:00:00Z"));
        // In Berlin's winter, 00:30 on Monday is 23:30 on Sunday in UTC.
        check("mon 00:00-mon 01:00 +01:00", "2026-11-15T23:30:00Z", Some("2026-11-16T00:00:00Z"));
        check("09:00-17:00 -05:00", "2026-11-16T14:00:00Z", Some("2026-11-16T22:00:00Z"));
        check("00:00-00:00 UTC", "2026-11-16T14:00:00Z", Some("2026-11-17T00:00:00Z"));
        check("mon 00:00-mon 00:00", "2026-11-18T00:00:00Z", Some("2026-11-23T00:00:00Z"));
    }

    #[test]
    fn what_is_no_window_is_refused_with_an_example() {
        for bad in [
            "",
            "friday",
            "fri 16:00",
            "fri 16:00-08:00",
            "fry 16:00-mon 08:00",
            "fri 25:00-mon 08:00",
            "fri 16:60-mon 08:00",
            "16-18",
            "16:00-18:00 CET",
            "16:00-18:00 +15:00",
            "16:00-18:00 +2",
        ] {
            let error = Window::parse(bad).expect_err(bad);
            assert!(error.hint.is_some_and(|hint| hint.contains("fri 16:00-mon 08:00")), "{bad}");
        }
    }
}
