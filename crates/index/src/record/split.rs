//! Head and body apart, by bytes: nothing of the body is touched.

use super::HEAD_BYTES_MAX;
use crate::Fault;

/// The bounds of both parts in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Where the head's YAML begins and ends; none without a head.
    pub head: Option<(usize, usize)>,
    /// Where the body begins.
    pub body: usize,
}

/// Finds the head of a file. A file that opens one and does not close it has
/// no head, all of it is body, and that is said.
pub(super) fn split(bytes: &[u8]) -> (Parts, Option<Fault>) {
    let start = if bytes.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
    let none = Parts { head: None, body: start };
    let Some(first) = line_at(bytes, start).filter(|line| is_fence(&bytes[start..line.text_end]))
    else {
        return (none, None);
    };
    let mut at = first.next;
    while let Some(line) = line_at(bytes, at) {
        if is_fence(&bytes[at..line.text_end]) {
            return (Parts { head: Some((first.next, at)), body: line.next }, None);
        }
        if line.next - first.next > HEAD_BYTES_MAX {
            break;
        }
        at = line.next;
    }
    let what = if at >= bytes.len() {
        "the head begins with `---` and never ends: close it with a line `---`".to_owned()
    } else {
        format!("the head is longer than {} KiB: move text into the body", HEAD_BYTES_MAX >> 10)
    };
    (none, Some(Fault::at(1, what)))
}

struct Line {
    text_end: usize,
    next: usize,
}

fn line_at(bytes: &[u8], at: usize) -> Option<Line> {
    if at >= bytes.len() {
        return None;
    }
    let length = bytes[at..].iter().position(|byte| *byte == b'\n');
    let (text_end, next) = length.map_or((bytes.len(), bytes.len()), |n| (at + n, at + n + 1));
    Some(Line { text_end, next })
}

fn is_fence(line: &[u8]) -> bool {
    line.trim_ascii_end() == b"---"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_body_are_found_by_their_fences() {
        let check = |text: &str, head: Option<&str>, body: &str| {
            let (parts, fault) = split(text.as_bytes());
            assert_eq!(parts.head.map(|(from, to)| &text[from..to]), head, "{text:?}");
            assert_eq!(&text[parts.body..], body, "{text:?}");
            assert!(fault.is_none(), "{text:?}");
        };
        check("", None, "");
        check("plain\n---\nnot a head\n", None, "plain\n---\nnot a head\n");
        check("---\na: 1\n---\nbody\n", Some("a: 1\n"), "body\n");
        check("---\r\na: 1\r\n---\r\n\r\nx\r\n", Some("a: 1\r\n"), "\r\nx\r\n");
        check("---\n---\n", Some(""), "");
        check("---\na: 1\n--- \nb", Some("a: 1\n"), "b");
        check("\u{feff}---\na: 1\n---\nb", Some("a: 1\n"), "b");
        check("---\na: 1\n---", Some("a: 1\n"), "");
    }

    #[test]
    fn a_head_without_an_end_is_body_and_said() {
        let long = format!("---\na: \"{}\"\n---\n", "x".repeat(HEAD_BYTES_MAX));
        for text in ["---\na: 1\n", "---", long.as_str()] {
            let (parts, fault) = split(text.as_bytes());
            assert_eq!(parts, Parts { head: None, body: 0 });
            assert_eq!(fault.expect("it is said").line, Some(1));
        }
    }
}
