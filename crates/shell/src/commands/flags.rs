//! Options as getopt takes them apart: `-la`, `-t DIR`, `--all`, `--`.

use super::Instead;
use crate::command::Call;

pub(super) struct Flags {
    set: Vec<(char, String)>,
    pub(super) operands: Vec<String>,
}

impl Flags {
    /// `shorts` as getopt has it, a colon after letters with a value; `longs`
    /// are other names of letters. `None` for an option that is in neither.
    pub(super) fn parse(args: &[String], shorts: &str, longs: &[(&str, char)]) -> Option<Flags> {
        let mut flags = Flags { set: Vec::new(), operands: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--" {
                flags.operands.extend(args.by_ref().cloned());
            } else if let Some(long) = arg.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let letter = longs.iter().find(|(long, _)| *long == name)?.1;
                let value = match (takes_value(shorts, letter)?, value) {
                    (true, Some(value)) => value,
                    (true, None) => args.next()?.clone(),
                    (false, None) => String::new(),
                    (false, Some(_)) => return None,
                };
                flags.set.push((letter, value));
            } else if arg.len() > 1 && arg.starts_with('-') {
                let mut letters = arg[1..].chars();
                while let Some(letter) = letters.next() {
                    let value = match takes_value(shorts, letter)? {
                        false => String::new(),
                        true if letters.as_str().is_empty() => args.next()?.clone(),
                        true => letters.by_ref().collect(),
                    };
                    flags.set.push((letter, value));
                }
            } else {
                flags.operands.push(arg.clone());
            }
        }
        Some(flags)
    }

    pub(super) fn has(&self, letter: char) -> bool {
        self.set.iter().any(|(set, _)| *set == letter)
    }

    /// The last one's value.
    pub(super) fn value(&self, letter: char) -> Option<&str> {
        self.set.iter().rev().find(|(set, _)| *set == letter).map(|(_, value)| value.as_str())
    }

    /// Which of these letters was given last.
    pub(super) fn last_of(&self, letters: &str) -> Option<char> {
        self.set.iter().rev().map(|(set, _)| *set).find(|set| letters.contains(*set))
    }
}

fn takes_value(shorts: &str, letter: char) -> Option<bool> {
    let at = shorts.find(letter).filter(|_| letter != ':')?;
    Some(shorts[at + letter.len_utf8()..].starts_with(':'))
}

/// For commands that hand unknown options to bashkit.
pub(super) fn known_or_bashkits(
    call: &Call,
    shorts: &str,
    longs: &[(&str, char)],
) -> Option<Instead> {
    Flags::parse(call.args, shorts, longs).is_none().then_some(Instead::Bashkits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<(String, Vec<String>)> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let flags = Flags::parse(&args, "abt:", &[("all", 'a'), ("to", 't')])?;
        let set = flags.set.iter().map(|(letter, value)| format!("{letter}{value} ")).collect();
        Some((set, flags.operands))
    }

    #[test]
    fn options_are_taken_apart_as_getopt_does() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse("-ab x -t y z"), Some(("a b ty ".into(), words("x z"))));
        assert_eq!(parse("-aty x --to=q --all"), Some(("a ty tq a ".into(), words("x"))));
        assert_eq!(parse("- -- -a"), Some(("".into(), words("- -a"))));
        assert!(parse("-c").is_none() && parse("--no").is_none() && parse("x -t").is_none());
        assert!(parse("--all=1").is_none() && parse("-:").is_none());
    }
}
