//! The lines of a text diff, in git's layout.

use super::Amount;
use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::io::{self, Write};

/// Bytes of a heading after `@@`, as git cuts it.
const HEADING_BYTES_MAX: usize = 80;

type Input<'a> = InternedInput<&'a [u8]>;

/// Writes all hunks between two texts and counts their lines.
pub(super) fn write(
    out: &mut dyn Write,
    before: &[u8],
    after: &[u8],
    context: u32,
) -> io::Result<Amount> {
    let input = InternedInput::new(before, after);
    // Myers with the indentation heuristic is git's default.
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_lines(&input);
    let changes: Vec<Hunk> = diff.hunks().collect();
    let mut heading = Heading::default();
    for group in groups(&changes, context) {
        write_group(out, &input, group, context, &mut heading)?;
    }
    Ok(Amount::Lines {
        added: u64::from(diff.count_additions()),
        deleted: u64::from(diff.count_removals()),
    })
}

/// Changes so near to each other that their context would touch.
fn groups(changes: &[Hunk], context: u32) -> impl Iterator<Item = &[Hunk]> {
    changes.chunk_by(move |a, b| b.before.start - a.before.end <= context.saturating_mul(2))
}

fn write_group(
    out: &mut dyn Write,
    input: &Input<'_>,
    group: &[Hunk],
    context: u32,
    heading: &mut Heading,
) -> io::Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
    let lines = |side: &[imara_diff::Token]| u32::try_from(side.len()).unwrap_or(u32::MAX);
    let lead = context.min(first.before.start);
    let trail = context.min(lines(&input.before) - last.before.end);
    let (old_start, old_end) = (first.before.start - lead, last.before.end + trail);
    let (new_start, new_end) = (first.after.start - lead, last.after.end + trail);
    let old = range(old_start, old_end - old_start);
    let new = range(new_start, new_end - new_start);
    write!(out, "@@ -{old} +{new} @@")?;
    heading.write(out, input, old_start)?;
    let mut at = old_start;
    for change in group {
        write_lines(out, input, b' ', &input.before, at..change.before.start)?;
        write_lines(out, input, b'-', &input.before, change.before.clone())?;
        write_lines(out, input, b'+', &input.after, change.after.clone())?;
        at = change.before.end;
    }
    write_lines(out, input, b' ', &input.before, at..old_end)
}

/// Counts from 1, leaves out a length of 1, and names the line before when
/// there are none.
fn range(start: u32, length: u32) -> String {
    match length {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        _ => format!("{},{length}", start + 1),
    }
}

fn write_lines(
    out: &mut dyn Write,
    input: &Input<'_>,
    sign: u8,
    side: &[imara_diff::Token],
    lines: std::ops::Range<u32>,
) -> io::Result<()> {
    for token in &side[lines.start as usize..lines.end as usize] {
        let line = input.interner[*token];
        out.write_all(&[sign])?;
        out.write_all(line)?;
        if !line.ends_with(b"\n") {
            out.write_all(b"\n\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}

/// The text after `@@`: the last line above the hunk that starts like a
/// definition. Remembers how far it looked, so a file is scanned once.
#[derive(Default)]
struct Heading {
    seen: u32,
    line: Option<u32>,
}

impl Heading {
    fn write(&mut self, out: &mut dyn Write, input: &Input<'_>, start: u32) -> io::Result<()> {
        for at in self.seen..start {
            let line = input.interner[input.before[at as usize]];
            if line.first().is_some_and(|byte| byte.is_ascii_alphabetic() || b"_$".contains(byte)) {
                self.line = Some(at);
            }
        }
        self.seen = self.seen.max(start);
        if let Some(at) = self.line {
            let line = input.interner[input.before[at as usize]];
            let cut = &line[..line.len().min(HEADING_BYTES_MAX)];
            out.write_all(b" ")?;
            out.write_all(cut.trim_ascii_end())?;
        }
        out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, after: &str, expect: &str) {
        let mut out = Vec::new();
        write(&mut out, before.as_bytes(), after.as_bytes(), 3).expect("a vector takes all");
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn hunks_read_like_gits() {
        check("", "a\n", "@@ -0,0 +1 @@\n+a\n");
        check("a\n", "", "@@ -1 +0,0 @@\n-a\n");
        check("a\nb", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n");
        check(
            "fn x\n 1\n 2\n 3\n 4\n 5\n",
            "fn x\n 1\n 2\n 3\n 4\n 6\n",
            "@@ -3,4 +3,4 @@ fn x\n  2\n  3\n  4\n- 5\n+ 6\n",
        );
    }
}
