//! Patterns of names: `*`, `?`, `[a-z]`, `[!a-z]`, `\`. A `*` crosses
//! slashes, as in `find -path`.

pub(super) struct Glob {
    parts: Vec<Part>,
    fold: bool,
}

enum Part {
    Char(char),
    Any,
    Star,
    /// Ranges, and whether they are what must not stand there.
    Set(Vec<(char, char)>, bool),
}

fn folded(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

impl Glob {
    /// `fold` for patterns that do not care about case.
    pub(super) fn new(pattern: &str, fold: bool) -> Glob {
        let chars: Vec<char> = pattern.chars().collect();
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(c) = chars.get(at) {
            at += 1;
            match c {
                '*' if matches!(parts.last(), Some(Part::Star)) => {}
                '*' => parts.push(Part::Star),
                '?' => parts.push(Part::Any),
                '[' => match set(&chars, at) {
                    Some((part, end)) => {
                        parts.push(part);
                        at = end;
                    }
                    None => parts.push(Part::Char('[')),
                },
                '\\' => {
                    parts.push(Part::Char(chars.get(at).copied().unwrap_or('\\')));
                    at += 1;
                }
                c => parts.push(Part::Char(if fold { folded(*c) } else { *c })),
            }
        }
        Glob { parts, fold }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        // One star is remembered at a time: the last one can take whatever
        // an earlier one would have to.
        let (mut part, mut rest) = (0, name);
        let mut star: Option<(usize, &str)> = None;
        loop {
            match (self.parts.get(part), rest.chars().next()) {
                (None, None) => return true,
                (Some(Part::Star), _) => {
                    star = Some((part, rest));
                    part += 1;
                    continue;
                }
                (Some(one), Some(c)) if self.takes(one, c) => {
                    part += 1;
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
                _ => {}
            }
            let Some((at, from)) = star else { return false };
            let Some(c) = from.chars().next() else { return false };
            star = Some((at, &from[c.len_utf8()..]));
            (part, rest) = (at + 1, &from[c.len_utf8()..]);
        }
    }

    fn takes(&self, part: &Part, c: char) -> bool {
        let folded = if self.fold { folded(c) } else { c };
        match part {
            Part::Char(own) => *own == folded,
            Part::Any => true,
            Part::Star => false,
            Part::Set(ranges, not) => {
                let within = |c: char| ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                let upper = c.to_uppercase().next().unwrap_or(c);
                (within(c) || (self.fold && (within(folded) || within(upper)))) != *not
            }
        }
    }
}

/// The set that starts after its bracket, and where it ends.
fn set(chars: &[char], start: usize) -> Option<(Part, usize)> {
    let not = matches!(chars.get(start), Some('!' | '^'));
    let mut at = start + usize::from(not);
    let (first, mut ranges) = (at, Vec::new());
    loop {
        match chars.get(at)? {
            ']' if at > first => return Some((Part::Set(ranges, not), at + 1)),
            '[' if chars.get(at + 1) == Some(&':') => {
                let end = at + 2 + chars[at + 2..].windows(2).position(|two| two == [':', ']'])?;
                let name: String = chars[at + 2..end].iter().collect();
                ranges.extend_from_slice(class(&name)?);
                at = end + 2;
            }
            c => {
                let to = match (chars.get(at + 1), chars.get(at + 2)) {
                    (Some('-'), Some(to)) if *to != ']' => Some(*to),
                    _ => None,
                };
                ranges.push((*c, to.unwrap_or(*c)));
                at += if to.is_some() { 3 } else { 1 };
            }
        }
    }
}

fn class(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "digit" => &[('0', '9')],
        "alpha" => &[('a', 'z'), ('A', 'Z')],
        "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
        "upper" => &[('A', 'Z')],
        "lower" => &[('a', 'z')],
        "space" => &[(' ', ' '), ('\t', '\r')],
        "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_fnmatch_does() {
        let check = |pattern: &str, name: &str, expect: bool| {
            assert_eq!(Glob::new(pattern, false).matches(name), expect, "{pattern} {name}");
        };
        check("*.rs", "a.rs", true);
        check("*.rs", "a.rsx", false);
        check("*a*b*", "xxaxxbxx", true);
        check("*a*b", "ab/ab", true);
        check("?", "ü", true);
        check("[a-c]x", "bx", true);
        check("[!a-c]x", "bx", false);
        check("[]]", "]", true);
        check("[[:digit:]]*", "7up", true);
        check("\\*", "*", true);
        check("[", "[", true);
        check("", "", true);
        check("*", "", true);
        assert!(Glob::new("*.RS", true).matches("a.rs"));
        assert!(Glob::new("[A-C]", true).matches("b"));
        // Linear for what makes naive matchers explode.
        check(&"*a".repeat(30), &"a".repeat(25), false);
    }
}
