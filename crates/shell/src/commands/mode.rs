//! Permission bits as people write them: `755`, `u+x,go-w`, `a=rX`.

/// What a mode does to the bits that are there.
pub(super) enum Mode {
    Exactly(u32),
    Steps(Vec<Step>),
}

pub(super) struct Step {
    /// Which of the bits it is about.
    who: u32,
    sign: char,
    what: String,
}

/// Bits that a mode without `ugoa` leaves alone.
const UMASK: u32 = 0o022;

impl Mode {
    pub(super) fn parse(text: &str) -> Option<Mode> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
            return bits.map(Mode::Exactly);
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let start = clause.find(['+', '-', '='])?;
            let mut who = 0;
            for letter in clause[..start].chars() {
                who |= match letter {
                    'u' => 0o4700,
                    'g' => 0o2070,
                    'o' => 0o1007,
                    'a' => 0o7777,
                    _ => return None,
                };
            }
            if start == 0 {
                who = 0o7777 & !UMASK;
            }
            let mut rest = &clause[start..];
            while let Some(sign) = rest.chars().next() {
                let after = &rest[1..];
                let end = after.find(['+', '-', '=']).unwrap_or(after.len());
                let what = &after[..end];
                if !what.chars().all(|c| "rwxXstugo".contains(c)) {
                    return None;
                }
                steps.push(Step { who, sign, what: what.into() });
                rest = &after[end..];
            }
        }
        Some(Mode::Steps(steps))
    }

    /// The bits afterwards.
    pub(super) fn of(&self, old: u32, is_dir: bool) -> u32 {
        let steps = match self {
            Mode::Exactly(bits) => return *bits,
            Mode::Steps(steps) => steps,
        };
        steps.iter().fold(old, |bits, step| {
            let set = step.bits(bits, is_dir) & step.who;
            match step.sign {
                '+' => bits | set,
                '-' => bits & !set,
                _ => (bits & !(step.who & 0o777)) | set,
            }
        })
    }
}

impl Step {
    fn bits(&self, old: u32, is_dir: bool) -> u32 {
        self.what.chars().fold(0, |bits, letter| {
            bits | match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                'X' if is_dir || old & 0o111 != 0 => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                'u' => (old >> 6 & 7) * 0o111,
                'g' => (old >> 3 & 7) * 0o111,
                'o' => (old & 7) * 0o111,
                _ => 0,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        let check = |text: &str, old: u32, expect: Option<u32>| {
            let got = Mode::parse(text).map(|mode| mode.of(old, false));
            assert_eq!(got, expect, "{text} on {old:o}");
        };
        check("755", 0o644, Some(0o755));
        check("u+x", 0o644, Some(0o744));
        check("+x", 0o644, Some(0o755));
        check("+w", 0o444, Some(0o644));
        check("a+w", 0o444, Some(0o666));
        check("go-r", 0o644, Some(0o600));
        check("u=rw,g=r,o=", 0o777, Some(0o640));
        check("a+X", 0o644, Some(0o644));
        check("a+X", 0o744, Some(0o755));
        check("g=u", 0o700, Some(0o770));
        check("u+s", 0o755, Some(0o4755));
        check("u-x+w", 0o500, Some(0o600));
        check("z+x", 0o644, None);
        check("u+q", 0o644, None);
        check("99", 0o644, None);
        check("x", 0o644, None);
    }
}
