//! Points in time as text, and back. Reading a clock is somebody else's job.

/// Milliseconds since 1970 as `2026-11-15T20:43:57Z`.
pub fn format_iso_ms(ms: u64) -> String {
    let seconds = ms / 1000;
    let (year, month, day) = civil((seconds / 86_400) as i64);
    let rest = seconds % 86_400;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The reverse of [`format_iso_ms`]; `None` for what is no such time.
pub fn parse_iso_ms(text: &str) -> Option<u64> {
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
    fn dates_are_right_around_leap_days_and_read_back() {
        let check = |seconds: u64, text: &str| {
            assert_eq!(format_iso_ms(seconds * 1000), text);
            assert_eq!(parse_iso_ms(text), Some(seconds * 1000));
        };
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(1_709_251_200, "2024-03-01T00:00:00Z");
        check(1_794_775_437, "2026-11-15T20:43:57Z");
        assert_eq!(parse_iso_ms("soon"), None);
        for day in (0..60_000).step_by(13) {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day);
        }
    }
}
