//! A text in pieces that a model reads as a whole.
//!
//! A model looks at some 256 pieces of words and forgets the rest, so a text is
//! cut before: between paragraphs, if it can be, otherwise between lines,
//! words, letters.

/// A piece weighs about as much as so many English words.
const PIECE_WORDS: usize = 200;

/// More of a text is not looked at: some 6,400 words.
pub const PIECES_MAX: usize = 32;

/// Cuts a text into at most [`PIECES_MAX`] pieces of about 200 words.
pub fn chunks(text: &str) -> Vec<String> {
    let mut pieces = Pieces { text, start: 0, end: 0, words: 0, out: Vec::new() };
    pieces.add(0, text, Border::Paragraph);
    pieces.cut();
    pieces.out
}

#[derive(Clone, Copy, PartialEq)]
enum Border {
    Paragraph,
    Line,
    Word,
    Letter,
}

impl Border {
    fn next(self) -> Border {
        match self {
            Border::Paragraph => Border::Line,
            Border::Line => Border::Word,
            Border::Word | Border::Letter => Border::Letter,
        }
    }

    fn split(self, text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Border::Paragraph => Box::new(text.split_inclusive("\n\n")),
            Border::Line => Box::new(text.split_inclusive('\n')),
            Border::Word => Box::new(text.split_inclusive(char::is_whitespace)),
            Border::Letter => Box::new(text.split_inclusive(|_| true)),
        }
    }
}

struct Pieces<'a> {
    text: &'a str,
    start: usize,
    end: usize,
    words: usize,
    out: Vec<String>,
}

impl Pieces<'_> {
    fn add(&mut self, mut at: usize, text: &str, border: Border) {
        for part in border.split(text) {
            let words = weight(part);
            if self.out.len() == PIECES_MAX {
                return;
            }
            if words > PIECE_WORDS && border != Border::Letter {
                self.add(at, part, border.next());
            } else {
                if self.words + words > PIECE_WORDS {
                    self.cut();
                }
                self.words += words;
                self.end = at + part.len();
            }
            at += part.len();
        }
    }

    fn cut(&mut self) {
        let piece = self.text[self.start..self.end].trim();
        if !piece.is_empty() && self.out.len() < PIECES_MAX {
            self.out.push(piece.to_owned());
        }
        (self.start, self.words) = (self.end, 0);
    }
}

/// A word, with more for a long one, and more for letters that models know
/// one by one.
fn weight(text: &str) -> usize {
    let words = text.split_whitespace().map(|word| {
        let letters = word.chars().count();
        let foreign = word.chars().filter(|letter| !letter.is_ascii()).count();
        1 + (letters - foreign) / 12 + foreign / 2
    });
    words.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn texts_are_cut_between_paragraphs_if_they_can_be() {
        for (text, expect) in [
            (String::new(), vec![]),
            (" \n\n \n".to_owned(), vec![]),
            ("one\n\ntwo".to_owned(), vec![3 + 2 + 3]),
            (format!("{}\n\n{}", words(150), words(100)), vec![749, 499]),
            (format!("{}\n{}", words(150), words(100)), vec![749, 499]),
            (words(450), vec![999, 999, 249]),
            ("中".repeat(500), vec![600, 600, 300]),
        ] {
            let lengths: Vec<_> = chunks(&text).iter().map(String::len).collect();
            assert_eq!(lengths, expect, "{}", &text.chars().take(40).collect::<String>());
        }
    }

    #[test]
    fn nothing_is_lost_before_the_last_piece_and_pieces_are_bounded() {
        let text = (0..3000).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
        assert_eq!(chunks(&text).join(" "), text);
        let pieces = chunks(&words(100_000));
        assert_eq!(pieces.len(), PIECES_MAX);
        assert!(chunks(&"x".repeat(10_000_000)).len() <= PIECES_MAX);
    }
}
