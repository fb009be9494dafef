//! Bytes in text: `%` and two hexadecimal digits stand for one.

/// The bytes that a text stands for; `None` where a `%` has no two digits.
pub fn decode_percent(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(digit(digits[0])? << 4 | digit(digits[1])?);
        rest = after;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::decode_percent;

    #[test]
    fn a_percent_wants_two_digits() {
        let check = |text: &str, expect: Option<&[u8]>| {
            assert_eq!(decode_percent(text.as_bytes()).as_deref(), expect, "{text}");
        };
        check("", Some(b""));
        check("a/b%20c", Some(b"a/b c"));
        check("%2Ftmp/%ff", Some(b"/tmp/\xff"));
        for broken in ["100%", "%c", "%+1", "%zz", "%"] {
            check(broken, None);
        }
    }
}
