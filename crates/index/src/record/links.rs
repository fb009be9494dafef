//! Links and the title of a body, as Markdown has them.

use super::lines::Lines;
use super::{LINKS_MAX, TITLE_CHARS_MAX};
use pulldown_cmark::{Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd};

/// A link in a body: `[text](target)`, not in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it leads, as it is written.
    pub target: String,
    /// What it says.
    pub text: String,
    /// Its line in the file, from 1.
    pub line: u32,
}

/// What a body holds besides text.
#[derive(Default)]
pub(super) struct Found {
    /// The first heading of the first level.
    pub heading: Option<String>,
    /// All links in order.
    pub links: Vec<Link>,
    /// The line of the first link that was too much.
    pub too_many_at: Option<u32>,
}

/// Looks through a body that begins on line `first_line` of its file.
pub(super) fn scan(body: &str, first_line: u32) -> Found {
    let lines = Lines::of(body, first_line);
    let mut found = Found::default();
    let mut link: Option<Link> = None;
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(body, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { link_type: LinkType::Email, .. }) => {}
            Event::Start(Tag::Link { dest_url, .. }) => {
                let line = lines.at(range.start);
                link = Some(Link { target: dest_url.into_string(), text: String::new(), line });
            }
            Event::End(TagEnd::Link) => found.links.extend(link.take()),
            Event::Start(Tag::Heading { level: HeadingLevel::H1, .. }) => {
                heading = found.heading.is_none().then(String::new);
            }
            Event::End(TagEnd::Heading(HeadingLevel::H1)) => {
                let text = heading.take().map(|text| text.trim().to_owned());
                found.heading = found.heading.or(text.filter(|text| !text.is_empty()));
            }
            Event::Text(text) | Event::Code(text) => {
                say(&mut link, &mut heading, &text);
            }
            Event::SoftBreak | Event::HardBreak => say(&mut link, &mut heading, " "),
            _ => {}
        }
        if found.links.len() == LINKS_MAX {
            found.too_many_at = Some(lines.at(range.start));
            break;
        }
    }
    found
}

fn say(link: &mut Option<Link>, heading: &mut Option<String>, text: &str) {
    if let Some(link) = link {
        link.text.push_str(text);
    }
    if let Some(heading) = heading {
        let room = TITLE_CHARS_MAX.saturating_sub(heading.chars().count());
        heading.extend(text.chars().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_that_markdown_shows() {
        let check = |body: &str, expected: &[(&str, &str, u32)]| {
            let links = scan(body, 5).links;
            let found: Vec<_> =
                links.iter().map(|l| (l.target.as_str(), l.text.as_str(), l.line)).collect();
            assert_eq!(found, expected, "{body:?}");
        };
        check(
            "see [a](../x.md)\nand [`b` c](https://example.org/y)",
            &[("../x.md", "a", 5), ("https://example.org/y", "b c", 6)],
        );
        check("```\n[a](b)\n```\n`[a](b)` \\[a](b)\n\n    [a](b)\n", &[]);
        check("~~~\n[a](b)", &[]);
        check("[a][r]\n\n[r]: z.md \"title\"\n", &[("z.md", "a", 5)]);
        check("[a](<b c.md>) [x](y%20z.md#part)", &[("b c.md", "a", 5), ("y%20z.md#part", "x", 5)]);
        check("![picture](p.png) [[wiki]] <me@example.org> [note](", &[]);
        check("[two\r\nlines](t.md)", &[("t.md", "two lines", 5)]);
    }

    #[test]
    fn the_title_is_the_first_heading_that_says_something() {
        let check = |body: &str, heading: Option<&str>| {
            assert_eq!(scan(body, 1).heading.as_deref(), heading, "{body:?}");
        };
        check("## two\n# \n\n# One `x`\n# other", Some("One x"));
        check("```\n# no\n```\nOne\n===\n", Some("One"));
        check("#no\ntext", None);
    }
}
