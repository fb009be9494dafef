//! A patch in two columns: what the first side has, what the second has.
//!
//! `<` stands before what only the left has, `>` before what only the right
//! has, `|` between lines that took each other's place. A line that does not
//! fit goes on below, and a very long one is cut.

use crate::table::plain;
use crate::terminal::{columns_of_char, cut, padded};

/// Where a tab leads to.
const TAB: usize = 8;

/// Rows that one line may take.
const ROWS_MAX: usize = 6;

/// Less than this is no column.
const COLUMN_MIN: usize = 12;

/// A patch as two columns with these names above, within a width.
pub fn text(patch: &str, (left, right): (&str, &str), width: usize) -> String {
    let layout = Layout::new(patch, width);
    let mut text = layout.row(Cells {
        numbers: (None, None),
        left: &cut(&plain(left), layout.column),
        mark: ' ',
        right: &cut(&plain(right), layout.column),
    });
    let mut lines = patch.lines();
    while let Some(line) = lines.next() {
        match Hunk::begin(line) {
            Some(hunk) => {
                text.push_str(&format!("{}\n", cut(&plain(line), width)));
                layout.hunk(hunk, &mut lines, &mut text);
            }
            None => text.extend(about_file(line).map(|line| format!("{}\n", cut(&line, width)))),
        }
    }
    text
}

/// What of the lines between hunks is worth a line here.
fn about_file(line: &str) -> Option<String> {
    if let Some(names) = line.strip_prefix("diff --git ") {
        // Both halves name one file: a patch between sandboxes has no renames.
        let first = names.get(..names.len() / 2).unwrap_or(names);
        return Some(format!("── {}", plain(first.strip_prefix("a/").unwrap_or(first))));
    }
    let told = ["new file", "deleted file", "old mode", "new mode", "Binary files"];
    told.iter().any(|start| line.starts_with(start)).then(|| plain(line))
}

/// Where a hunk stands, and how much of it is to come on each side.
struct Hunk {
    at: (usize, usize),
    left: usize,
    right: usize,
}

impl Hunk {
    /// Reads `@@ -1,4 +1,5 @@ …`.
    fn begin(line: &str) -> Option<Hunk> {
        let (places, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
        let (old, new) = places.split_once(" +")?;
        let place = |text: &str| -> Option<(usize, usize)> {
            match text.split_once(',') {
                Some((at, count)) => Some((at.parse().ok()?, count.parse().ok()?)),
                None => Some((text.parse().ok()?, 1)),
            }
        };
        let ((old_at, left), (new_at, right)) = (place(old)?, place(new)?);
        Some(Hunk { at: (old_at, new_at), left, right })
    }
}

/// One row of the output.
struct Cells<'a> {
    numbers: (Option<usize>, Option<usize>),
    left: &'a str,
    mark: char,
    right: &'a str,
}

struct Layout {
    /// Columns of a line number.
    number: usize,
    /// Columns of each side's text.
    column: usize,
}

impl Layout {
    fn new(patch: &str, width: usize) -> Layout {
        let ends = patch.lines().filter_map(Hunk::begin);
        let ends = ends.map(|hunk| (hunk.at.0 + hunk.left).max(hunk.at.1 + hunk.right));
        let number = ends.max().unwrap_or(0).to_string().len().max(2);
        // Number, space, text, space, mark, space, number, space, text.
        let column = width.saturating_sub(2 * number + 5) / 2;
        Layout { number, column: column.max(COLUMN_MIN) }
    }

    /// Writes the rest of a hunk: lines that stand on both sides, and between
    /// them groups of lines that went and lines that came.
    fn hunk<'p>(
        &self,
        mut hunk: Hunk,
        lines: &mut impl Iterator<Item = &'p str>,
        text: &mut String,
    ) {
        let (mut went, mut came) = (Vec::new(), Vec::new());
        while hunk.left + hunk.right > 0 {
            let Some(line) = lines.next() else { break };
            let body = line.get(1..).unwrap_or_default();
            match line.as_bytes().first() {
                Some(b'-') => {
                    hunk.left = hunk.left.saturating_sub(1);
                    went.push(body);
                }
                Some(b'+') => {
                    hunk.right = hunk.right.saturating_sub(1);
                    came.push(body);
                }
                // No newline at the end of the file.
                Some(b'\\') => {}
                _ => {
                    self.group(&mut hunk.at, &mut went, &mut came, text);
                    hunk.left = hunk.left.saturating_sub(1);
                    hunk.right = hunk.right.saturating_sub(1);
                    self.line(&mut hunk.at, (Some(body), Some(body)), ' ', text);
                }
            }
        }
        self.group(&mut hunk.at, &mut went, &mut came, text);
    }

    fn group(
        &self,
        at: &mut (usize, usize),
        went: &mut Vec<&str>,
        came: &mut Vec<&str>,
        text: &mut String,
    ) {
        for index in 0..went.len().max(came.len()) {
            let pair = (went.get(index).copied(), came.get(index).copied());
            let mark = match pair {
                (Some(_), Some(_)) => '|',
                (Some(_), None) => '<',
                (None, _) => '>',
            };
            self.line(at, pair, mark, text);
        }
        went.clear();
        came.clear();
    }

    /// One line of each side, in as many rows as the longer one needs.
    fn line(
        &self,
        at: &mut (usize, usize),
        (left, right): (Option<&str>, Option<&str>),
        mark: char,
        text: &mut String,
    ) {
        let rows = |side: Option<&str>| side.map(|side| folded(side, self.column));
        let (lefts, rights) = (rows(left).unwrap_or_default(), rows(right).unwrap_or_default());
        for index in 0..lefts.len().max(rights.len()) {
            let first = index == 0;
            let row = |rows: &'_ [String]| rows.get(index).cloned().unwrap_or_default();
            text.push_str(&self.row(Cells {
                numbers: (
                    left.filter(|_| first).map(|_| at.0),
                    right.filter(|_| first).map(|_| at.1),
                ),
                left: &row(&lefts),
                mark,
                right: &row(&rights),
            }));
        }
        at.0 += usize::from(left.is_some());
        at.1 += usize::from(right.is_some());
    }

    fn row(&self, cells: Cells<'_>) -> String {
        let number = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
        let line = format!(
            "{:>width$} {} {} {:>width$} {}",
            number(cells.numbers.0),
            padded(cells.left, self.column),
            cells.mark,
            number(cells.numbers.1),
            cells.right,
            width = self.number,
        );
        format!("{}\n", line.trim_end())
    }
}

/// A line in rows of so many columns; tabs lead to their stops, and what could
/// drive the terminal is spelled out.
fn folded(line: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let (mut used, mut at) = (0, 0);
    let mut put = |text: &str| -> bool {
        for c in text.chars() {
            let wide = columns_of_char(c);
            if used + wide > columns {
                if rows.len() == ROWS_MAX {
                    let last = rows.last_mut().expect("there is always a row");
                    *last = cut(&format!("{last}…"), columns);
                    return false;
                }
                rows.push(String::new());
                used = 0;
            }
            rows.last_mut().expect("there is always a row").push(c);
            used += wide;
        }
        true
    };
    for c in line.chars() {
        let shown = match c {
            '\t' => " ".repeat(TAB - at % TAB),
            c => plain(c.encode_utf8(&mut [0; 4])),
        };
        at += shown.chars().map(columns_of_char).sum::<usize>();
        if !put(&shown) {
            break;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::columns_of;

    const PATCH: &str = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n\
                         @@ -1,4 +1,4 @@\n same\n-one\n--- two\n+1\n end\n+more\n";

    #[test]
    fn lines_that_belong_together_stand_beside_each_other() {
        let expect = [
            "   left              right",
            "── f",
            "@@ -1,4 +1,4 @@",
            " 1 same            1 same",
            " 2 one          |  2 1",
            " 3 -- two       <",
            " 4 end             3 end",
            "                >  4 more",
        ];
        let text = text(PATCH, ("left", "right"), 33);
        assert_eq!(text.lines().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn no_row_is_wider_than_the_terminal() {
        let line = |text: &str| format!("@@ -1 +1 @@\n-{text}\n+x{text}\n");
        for body in [
            "a\tb\tc\td\te\tf",
            "漢字かな交じり文が長く続く行です、とても長い",
            &"x".repeat(500),
            "\x1b[2Jred\r",
        ] {
            for width in [40, 41, 80, 132] {
                let text = text(&line(body), ("a", "b"), width);
                assert!(text.lines().all(|line| columns_of(line) <= width), "{width}\n{text}");
                assert!(!text.contains(['\x1b', '\r', '\t']), "{text:?}");
            }
        }
    }

    #[test]
    fn long_lines_go_on_below_and_very_long_ones_are_cut() {
        assert_eq!(folded("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(folded("漢字", 3), ["漢", "字"]);
        assert_eq!(folded("a\tb", 12), ["a       b"]);
        assert_eq!(folded("", 4), [""]);
        let rows = folded(&"x".repeat(100), 4);
        assert_eq!((rows.len(), rows[ROWS_MAX - 1].as_str()), (ROWS_MAX, "xxx…"));
    }
}
