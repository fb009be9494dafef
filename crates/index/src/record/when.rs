//! Points in time as heads have them.

/// Reads `2026-11-19`, `2026-11-19T07:06:05Z` and the same with a space, a
/// fraction or an offset; in milliseconds since 1970. Anything else, and what
/// lies before 1970, is `None`.
pub fn parse_time_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let (date, rest) = text.split_at_checked(10)?;
    let shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
    };
    if !shape(date, "0000-00-00") || !is_calendar_day(date) {
        return None;
    }
    let Some(clock) = rest.strip_prefix(['T', 't', ' ']) else {
        return if rest.is_empty() { at(date, "00:00:00", 0) } else { None };
    };
    let zone_from = clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(zone_from);
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole).trim_end();
    let clock = if shape(clock, "00:00") { format!("{clock}:00") } else { clock.to_owned() };
    let in_range =
        |from: usize, most: u8| clock[from..from + 2].parse::<u8>().is_ok_and(|n| n <= most);
    if !shape(&clock, "00:00:00") || !in_range(0, 23) || !in_range(3, 59) || !in_range(6, 60) {
        return None;
    }
    let minutes = match zone {
        "" | "Z" | "z" => 0,
        zone if shape(&zone[1..], "00:00") => {
            let minutes = zone[1..3].parse::<i64>().ok()? * 60 + zone[4..6].parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
        _ => return None,
    };
    at(date, &clock, minutes)
}

fn at(date: &str, clock: &str, offset_minutes: i64) -> Option<u64> {
    let local = fractal_model::parse_iso_ms(&format!("{date}T{clock}Z"))?;
    u64::try_from(i64::try_from(local).ok()? - offset_minutes * 60_000).ok()
}

fn is_calendar_day(date: &str) -> bool {
    let number = |from: usize, to: usize| date[from..to].parse::<u32>().unwrap_or(0);
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_ways_to_write_a_time_are_read() {
        let check = |text: &str, seconds: Option<u64>| {
            assert_eq!(parse_time_ms(text), seconds.map(|s| s * 1000), "{text}");
        };
        check("2026-11-15T20:43:57Z", Some(1_794_775_437));
        check("2026-11-15 20:43:57", Some(1_794_775_437));
        check("2026-11-15T20:43:57.123456Z", Some(1_794_775_437));
        check("2026-11-15T21:43:57+01:00", Some(1_794_775_437));
        check("2026-11-15T19:13:57-01:30", Some(1_794_775_437));
        check("2026-11-15", Some(1_794_700_800));
        check("1970-01-01", Some(0));
        check("2024-02-29", Some(1_709_164_800));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "soon",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-11-15T25:00:00Z",
            "2026-11-15x",
            "9223372036854775807-01-01",
            "2026-11-15T20:43:57+1",
            "1969-12-31",
            "２０２６-11-15",
            "2026-11-15T20:43:57+zz:00",
            "2026-11-15T",
            "2026-1١-15",
        ] {
            assert_eq!(parse_time_ms(text), None, "{text}");
        }
    }
}
