//! Sizes and durations as people write them, and back.

use crate::{Error, Result};

/// Reads `512m`, `1.5g`, `64KiB`, `4096`: powers of 1024, bytes by default.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(bad("size", text, "write a number with k, m, g or t, as in `512m`")),
    };
    scale(number, factor)
        .ok_or_else(|| bad("size", text, "write a number with k, m, g or t, as in `512m`"))
}

/// Reads `30s`, `500ms`, `10m`, `2h`, `7d`; a bare number means seconds.
pub fn parse_duration_ms(text: &str) -> Result<u64> {
    let (number, unit) = split(text);
    let hint = "write a number with ms, s, m, h or d, as in `30s`";
    let factor: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad("duration", text, hint)),
    };
    scale(number, factor).ok_or_else(|| bad("duration", text, hint))
}

/// `1.5 GiB`, `12 KiB`, `7 B`.
pub fn format_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 10.0 {
        format!("{value:.1} {}", units[unit])
    } else {
        format!("{value:.0} {}", units[unit])
    }
}

/// `340 ms`, `12 s`, `14 minutes`, `3 hours`, `2 days`.
pub fn format_duration_ms(ms: u64) -> String {
    let plural = |count: u64, word: &str| {
        if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
    };
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{} s", ms / 1_000),
        60_000..3_600_000 => plural(ms / 60_000, "minute"),
        3_600_000..86_400_000 => plural(ms / 3_600_000, "hour"),
        _ => plural(ms / 86_400_000, "day"),
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let cut = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..cut], text[cut..].trim_start())
}

/// Exact for whole numbers; fractions go through a float and must stay finite.
fn scale(number: &str, factor: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value: f64 = number.parse().ok()?;
    let product = value * factor as f64;
    (product.is_finite() && product >= 0.0 && product < u64::MAX as f64).then_some(product as u64)
}

fn bad(what: &str, text: &str, hint: &str) -> Error {
    Error::invalid(format!("`{}` is not a {what}", text.escape_debug())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check =
            |text: &str, expect: Option<u64>| assert_eq!(parse_bytes(text).ok(), expect, "{text}");
        check("512m", Some(512 << 20));
        check("1.5g", Some(3 << 29));
        check("64 KiB", Some(65536));
        check("0", Some(0));
        for bad in ["", "m", "-1", "1x", "1e9", "1..2", "99999999999t", "∞"] {
            check(bad, None);
        }
    }

    #[test]
    fn durations() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(parse_duration_ms(text).ok(), expect, "{text}")
        };
        check("30s", Some(30_000));
        check("250ms", Some(250));
        check("2", Some(2_000));
        check("7d", Some(604_800_000));
        for bad in ["", "s", "-1s", "1y", "1 fortnight"] {
            check(bad, None);
        }
    }

    #[test]
    fn formats_read_well() {
        assert_eq!(format_bytes(7), "7 B");
        assert_eq!(format_bytes(1536), "1.5 KiB");
        assert_eq!(format_bytes(3 << 30), "3.0 GiB");
        assert_eq!(format_duration_ms(60_000), "1 minute");
        assert_eq!(format_duration_ms(14 * 60_000), "14 minutes");
    }
}
