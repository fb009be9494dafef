//! How wide text is, and how much room there is for it.
//!
//! A column of a terminal is not a character: some take two of them, some
//! none. Whatever lines up asks here.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What git takes when it cannot know better.
pub const WIDTH: usize = 80;

/// Columns of our output: what `COLUMNS` says, else the terminal's.
pub fn width() -> usize {
    const WIDTH_MIN: usize = 20;
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let found = || {
        let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
        Some(usize::from(width.0))
    };
    named.or_else(found).filter(|columns| *columns >= WIDTH_MIN).unwrap_or(WIDTH)
}

/// Columns that a text takes.
pub fn columns_of(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Columns that a character takes.
pub fn columns_of_char(c: char) -> usize {
    UnicodeWidthChar::width(c).unwrap_or(0)
}

/// The text, and spaces up to so many columns.
pub fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(columns_of(text))))
}

/// At most so many columns, with a mark where something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += columns_of_char(c);
        if used > room {
            break;
        }
        kept.push(c);
    }
    format!("{kept}…")
}

/// The end of a text in at most so many columns: what tells paths apart.
pub fn cut_front(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let reversed: String = text.chars().rev().collect();
    cut(&reversed, columns).chars().rev().collect()
}

/// A text in lines of at most so many columns, broken between words; those
/// that follow the first are indented. A word that is too long stays whole.
pub fn wrapped(text: &str, columns: usize, indent: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        let room = columns.saturating_sub(columns_of(line) + 1);
        if line.is_empty() {
            line.push_str(word);
        } else if columns_of(word) <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7, "  "), ["one two", "  three"]);
        assert_eq!(wrapped("漢字 漢字", 7, "  "), ["漢字", "  漢字"]);
        assert_eq!(cut_front("/srv/a/long/path", 8), "…ng/path");
        assert_eq!(cut_front("short", 8), "short");
    }

    #[test]
    fn text_is_cut_by_columns() {
        let check = |text: &str, columns: usize, expect: &str| {
            assert_eq!(cut(text, columns), expect);
            assert!(columns_of(expect) <= columns);
        };
        check("short", 5, "short");
        check("longer", 5, "long…");
        check("漢字漢字", 8, "漢字漢字");
        check("漢字漢字", 7, "漢字漢…");
        check("漢字漢字", 6, "漢字…");
        // A letter with an accent of its own takes one column.
        check("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}");
    }

    #[test]
    fn text_is_padded_by_columns() {
        assert_eq!(padded("漢", 4), "漢  ");
        assert_eq!(padded("long", 2), "long");
    }
}
