//! `*`, `?` and `[a-z]` over bytes, as a shell has them; `*` takes slashes
//! too, and a backslash makes the next byte plain.

/// Whether all of the text matches a pattern of `*`, `?` and `[a-z]`. Takes
/// time in proportion to the product of both lengths, whatever the pattern.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut byte) = (0, 0);
    // Where to go on when the last star has to take one byte more.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, byte));
            at += 1;
            continue;
        }
        let next = text.get(byte).and_then(|byte| one(&pattern[at.min(pattern.len())..], *byte));
        match (next, star) {
            (Some(len), _) => {
                at += len;
                byte += 1;
            }
            (None, _) if byte == text.len() && at == pattern.len() => return true,
            (None, Some((after, taken))) if taken < text.len() => {
                star = Some((after, taken + 1));
                (at, byte) = (after, taken + 1);
            }
            _ => return false,
        }
    }
}

/// How much of the pattern stands for this byte, if it begins with it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', plain, ..] => (*plain == byte).then_some(2),
        [b'[', rest @ ..] => match set(rest, byte) {
            Some((len, holds)) => holds.then_some(len + 1),
            // A bracket without its end is a bracket.
            None => (byte == b'[').then_some(1),
        },
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// Up to the closing bracket: its length, and whether the byte is in it.
fn set(rest: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let mut at = start;
    let mut holds = false;
    loop {
        let low = *rest.get(at)?;
        if low == b']' && at > start {
            return Some((at + 1, holds != negated));
        }
        match (rest.get(at + 1), rest.get(at + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                holds |= (low..=*high).contains(&byte);
                at += 3;
            }
            _ => {
                holds |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let check = |pattern: &str, text: &str, expect: bool| {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expect, "{pattern} {text}");
        };
        check("*.rs", "main.rs", true);
        check("*.rs", "main.rsx", false);
        check("*", "", true);
        check("", "", true);
        check("", "a", false);
        check("a?c", "abc", true);
        check("a?c", "ac", false);
        check("[a-c]x", "bx", true);
        check("[!a-c]x", "bx", false);
        check("[]]x", "]x", true);
        check("[x", "[x", true);
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("/src/*", "/src/a/b", true);
        check("*a*b*c", "xxaxxbxxc", true);
        check("*a*b*c", "xxaxxcxxb", false);
    }

    #[test]
    fn many_stars_take_no_time() {
        let text = "a".repeat(5000);
        assert!(!matches(format!("{}b", "a*".repeat(100)).as_bytes(), text.as_bytes()));
    }
}
