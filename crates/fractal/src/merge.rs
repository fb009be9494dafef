//! Joining two edits of one text: lines that only one side changed are taken
//! from that side, and two changes that touch each other are a conflict.
//!
//! Pure: three texts in, one or none out. It errs towards conflicts: edits of
//! neighbouring lines are not joined, since lines next to each other mostly
//! belong together.

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::ops::Range;

/// Larger texts are not joined.
pub const BYTES_MAX: usize = 16 << 20;

/// The text with both sides' edits; `None` when they clash, or when one of
/// the texts is none.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    if [base, ours, theirs].iter().any(|text| !is_text(text)) {
        return None;
    }
    let (base_lines, our_lines, their_lines) = (lines(base), lines(ours), lines(theirs));
    let our_hunks = hunks(base, ours);
    let their_hunks = hunks(base, theirs);
    let mut out = Vec::with_capacity(ours.len().max(theirs.len()));
    let mut at = 0;
    let (mut mine, mut other) = (our_hunks.iter().peekable(), their_hunks.iter().peekable());
    loop {
        let (hunk, source) = match (mine.peek(), other.peek()) {
            (None, None) => break,
            (Some(a), Some(b)) if same(a, &our_lines, b, &their_lines) => {
                other.next();
                (mine.next()?, &our_lines)
            }
            (Some(a), Some(b)) if touch(&a.before, &b.before) => return None,
            (Some(a), Some(b)) if a.before.start < b.before.start => (mine.next()?, &our_lines),
            (Some(_), None) => (mine.next()?, &our_lines),
            (_, Some(_)) => (other.next()?, &their_lines),
        };
        copy(&base_lines, at..hunk.before.start, &mut out);
        copy(source, hunk.after.clone(), &mut out);
        at = hunk.before.end;
    }
    copy(&base_lines, at..base_lines.len() as u32, &mut out);
    Some(out)
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.len() <= BYTES_MAX && !bytes.contains(&0)
}

/// Lines with their ends, as the diff counts them.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn hunks(base: &[u8], side: &[u8]) -> Vec<Hunk> {
    let input = InternedInput::new(base, side);
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_lines(&input);
    diff.hunks().collect()
}

/// Whether both sides made the same of the same lines.
fn same(a: &Hunk, ours: &[&[u8]], b: &Hunk, theirs: &[&[u8]]) -> bool {
    a.before == b.before && part(ours, &a.after) == part(theirs, &b.after)
}

/// Overlapping, or next to each other.
fn touch(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start <= b.end && b.start <= a.end
}

fn part<'a, 'b>(lines: &'a [&'b [u8]], range: &Range<u32>) -> &'a [&'b [u8]] {
    &lines[range.start as usize..range.end as usize]
}

fn copy(lines: &[&[u8]], range: Range<u32>, out: &mut Vec<u8>) {
    part(lines, &range).iter().for_each(|line| out.extend_from_slice(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apart_are_joined_and_edits_together_clash() {
        let check = |base: &str, ours: &str, theirs: &str, expect: Option<&str>| {
            let both = [(ours, theirs), (theirs, ours)];
            for (ours, theirs) in both {
                let merged = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
                let merged = merged.map(|text| String::from_utf8(text).expect("it was text"));
                assert_eq!(merged.as_deref(), expect, "{base:?} {ours:?} {theirs:?}");
            }
        };
        let base = "a\nb\nc\nd\ne\n";
        check(base, "A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n", Some("A\nb\nc\nd\nE\n"));
        check(base, "A\nb\nc\nd\ne\n", "A\nb\nc\nd\nE\n", Some("A\nb\nc\nd\nE\n"));
        check(base, base, "x\n", Some("x\n"));
        check(base, "b\nc\nd\ne\n", "a\nb\nc\nd\ne\nf\n", Some("b\nc\nd\ne\nf\n"));
        check(base, "a\nb\nX\nd\ne\n", "a\nb\nY\nd\ne\n", None);
        check(base, "a\nX\nc\nd\ne\n", "a\nb\nY\nd\ne\n", None);
        check("a", "a\nours\n", "a\ntheirs\n", None);
        check("", "x\n", "y\n", None);
        check("a\n", "", "a\n", Some(""));
    }

    #[test]
    fn what_is_no_text_is_not_joined() {
        assert_eq!(merge(b"a\n\0", b"b\n\0", b"a\n\0"), None);
    }
}
