//! Columns and trees of text, and text that others wrote made safe to print.

use crate::terminal::{columns_of, padded};

/// Lines up rows in columns; the last column is not padded.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| columns_of(cell)).max()
    };
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Orders items as a tree: the branch drawn before each, and the item.
/// Items whose parent is not among them stand at the root.
pub fn tree<T>(
    items: &[T],
    name: impl Fn(&T) -> &str,
    parent: impl Fn(&T) -> Option<&str>,
) -> Vec<(String, &T)> {
    let is_child_of = |index: usize, above: Option<usize>| {
        let wanted = parent(&items[index]);
        let found = wanted.and_then(|wanted| items.iter().position(|item| name(item) == wanted));
        found == above
    };
    let children = |above: Option<usize>| -> Vec<usize> {
        (0..items.len()).filter(|index| is_child_of(*index, above)).collect()
    };
    let mut rows = Vec::new();
    // An explicit stack: a chain of forks may be deeper than ours.
    let mut stack: Vec<(usize, String, String)> = Vec::new();
    let push = |stack: &mut Vec<_>, of: Option<usize>, indent: &str| {
        let list = children(of);
        for (place, index) in list.iter().enumerate().rev() {
            let last = place + 1 == list.len();
            let (branch, below) = match (of, last) {
                (None, _) => ("", ""),
                (_, true) => ("└─ ", "   "),
                (_, false) => ("├─ ", "│  "),
            };
            stack.push((*index, format!("{indent}{branch}"), format!("{indent}{below}")));
        }
    };
    push(&mut stack, None, "");
    while let Some((index, branch, indent)) = stack.pop() {
        rows.push((branch, &items[index]));
        push(&mut stack, Some(index), &indent);
    }
    rows
}

/// One line without control characters: names, commands and paths come from
/// inside sandboxes and must not drive the terminal.
pub fn plain(text: &str) -> String {
    let safe = |c: char| {
        // Besides control characters, those that reorder or hide text.
        let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || hides { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(safe).collect()
}

/// `1 change`, `3 changes`.
pub fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_show_who_came_from_whom() {
        let items = [
            ("a", None),
            ("b", Some("a")),
            ("c", None),
            ("d", Some("b")),
            ("e", Some("a")),
            ("f", Some("gone")),
        ];
        let rows = tree(&items, |item| item.0, |item| item.1);
        let text: Vec<String> =
            rows.iter().map(|(branch, item)| format!("{branch}{}", item.0)).collect();
        assert_eq!(text, ["a", "├─ b", "│  └─ d", "└─ e", "c", "f"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), String::new()]];
        assert_eq!(columns(&rows), "a     1\nlong\n");
    }

    #[test]
    fn terminals_are_not_driven_by_names() {
        assert_eq!(plain("a\x1b[31m\nb\u{202e}"), "a\\u{1b}[31m\\nb\\u{202e}");
        assert_eq!(plain("über/файл"), "über/файл");
    }
}
