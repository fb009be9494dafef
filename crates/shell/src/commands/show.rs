//! What several commands print: modes, times, quoted names, reasons.

use crate::name;
use fractal_fs::{FsError, Kind, Stat};
use fractal_model::EntryKind;

/// `-rwxr-xr-x`.
pub(super) fn mode(stat: &Stat) -> String {
    let kind = match stat.kind {
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        _ => '-',
    };
    let bits = stat.meta.mode;
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let three = bits >> shift;
        out.push(if three & 4 != 0 { 'r' } else { '-' });
        out.push(if three & 2 != 0 { 'w' } else { '-' });
        out.push(match (three & 1 != 0, bits & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    out
}

/// Bytes as people read them: `1.5K`, rounded up as coreutils does.
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let (mut unit, mut size) = (0, 1u64);
    while unit < 6 && bytes >= size * 1024 {
        unit += 1;
        size *= 1024;
    }
    if unit == 0 {
        return bytes.to_string();
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(size));
    match tenths < 100 {
        true => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit]),
        false => {
            let whole = bytes.div_ceil(size);
            match whole >= 1024 && unit < 6 {
                true => format!("1.0{}", UNITS[unit + 1]),
                false => format!("{whole}{}", UNITS[unit]),
            }
        }
    }
}

/// A moment in UTC, taken apart.
pub(super) struct Moment {
    pub(super) year: i64,
    pub(super) month: usize,
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
}

pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Moment {
    pub(super) fn new(seconds: i64) -> Moment {
        let (days, within) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years that start in March, in cycles of 400: leap days come last.
        let shifted = days + 719_468;
        let (cycle, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let in_year = day - (365 * year + year / 4 - year / 100);
        let march = (5 * in_year + 2) / 153;
        let month = if march < 10 { march + 3 } else { march - 9 };
        Moment {
            year: year + cycle * 400 + i64::from(month <= 2),
            month: month as usize,
            day: in_year - (153 * march + 2) / 5 + 1,
            hour: within / 3600,
            minute: within / 60 % 60,
            second: within % 60,
        }
    }
}

/// `2024-01-31 12:00:00.000000000 +0000`.
pub(super) fn full_time(ns: i64) -> String {
    let (at, rest) = (Moment::new(ns.div_euclid(1_000_000_000)), ns.rem_euclid(1_000_000_000));
    let Moment { year, month, day, hour, minute, second } = at;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{rest:09} +0000")
}

/// A word as coreutils quotes it in a message.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A path as it is shown: the argument it came from, and names below it.
pub(super) fn joined(dir: &str, name: &[u8]) -> String {
    let name = name::text(name);
    match dir.ends_with('/') {
        true => format!("{dir}{name}"),
        false => format!("{dir}/{name}"),
    }
}

/// A reason in the words of strerror(3).
pub(super) fn reason(error: &FsError) -> String {
    let text = match error.kind {
        Kind::NotFound => "No such file or directory",
        Kind::Exists => "File exists",
        Kind::NotADirectory => "Not a directory",
        Kind::IsADirectory => "Is a directory",
        Kind::NotEmpty => "Directory not empty",
        Kind::Loop => "Too many levels of symbolic links",
        Kind::NameTooLong => "File name too long",
        Kind::Invalid => "Invalid argument",
        Kind::ReadOnly => "Read-only file system",
        Kind::Denied => "Operation not permitted",
        Kind::Full => "No space left on device",
        Kind::TooLarge => "File too large",
        Kind::Busy => "Device or resource busy",
        Kind::Changed => "Stale file handle",
        Kind::Source => "Input/output error",
        Kind::Timeout => "Connection timed out",
        Kind::NoAttribute => "No data available",
        Kind::Unsupported => "Operation not supported",
    };
    match (&error.kind, &error.reason) {
        (Kind::Source, Some(reason)) => format!("{text}: {reason}"),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let check = |seconds: i64, expect: &str| {
            assert_eq!(&full_time(seconds * 1_000_000_000)[..19], expect);
        };
        check(0, "1970-01-01 00:00:00");
        check(951_782_399, "2000-02-28 23:59:59");
        check(951_782_400, "2000-02-29 00:00:00");
        check(1_709_251_199, "2024-02-29 23:59:59");
        check(4_107_542_400, "2100-03-01 00:00:00");
        check(-1, "1969-12-31 23:59:59");
    }

    #[test]
    fn sizes_are_rounded_up() {
        let check = |bytes, expect| assert_eq!(human(bytes), expect);
        check(0, "0");
        check(1023, "1023");
        check(1024, "1.0K");
        check(1025, "1.1K");
        check(10 * 1024, "10K");
        check(1024 * 1024 - 1, "1.0M");
        check(1_500_000, "1.5M");
    }
}
