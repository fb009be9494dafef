//! Times as people read them. The clock is read here and nowhere else.

use fractal::model::format_duration_ms;
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
    let seconds = ms / 1000;
    let (year, month, day) = civil((seconds / 86_400) as i64);
    let rest = seconds % 86_400;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

fn parse_iso_ms(text: &str) -> Option<u64> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let mut next = || numbers.next()?.parse::<i64>().ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    u64::try_from(seconds).ok().map(|seconds| seconds * 1000)
}

/// Days since 1970. Years begin in March here, so that the leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + day_of_year - 719_468
}

/// The reverse of [`days`].
fn civil(day_number: i64) -> (i64, i64, i64) {
    let shifted = day_number + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_survive_the_way_there_and_back() {
        for day in (0..60_000).step_by(13).chain([59, 60, 11_016, 11_017]) {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day);
        }
        assert_eq!(parse_iso_ms("2026-11-15T20:43:57Z"), Some(1_794_775_437_000));
        assert_eq!(stamp(1_794_775_437_000), "2026-11-15 20:43:57");
        assert_eq!(parse_iso_ms("soon"), None);
    }

    #[test]
    fn what_lies_ahead_is_rounded() {
        let check = |ms: u64, text: &str| assert_eq!(format_duration_ms(rounded(ms)), text);
        check(7 * 86_400_000 - 60_000, "7 days");
        check(3_600_000 - 1, "1 hour");
        check(90_000, "2 minutes");
        check(10, "1 s");
    }
}
