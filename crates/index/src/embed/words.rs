//! What BERT's models take for words: a text without accents and capitals, cut
//! at white space and around punctuation.
//!
//! This is the "basic tokenizer" of the reference, character by character, so
//! that a text of any length is read only as far as its words are wanted.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// How a model wants its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Without capitals.
    pub(super) lower: bool,
    /// Without accents.
    pub(super) plain: bool,
    /// Each Chinese character is a word.
    pub(super) cjk: bool,
}

/// A longer word is unknown; so much of it is enough to see that.
pub(super) const WORD_CHARS_MAX: usize = 100;

/// Hands each word of a text to `each`, until that says no.
pub(super) fn words(text: &str, reading: Reading, mut each: impl FnMut(&str) -> bool) {
    let mut word = String::new();
    let mut length = 0;
    for letter in letters(text, reading) {
        let alone = is_punctuation(letter);
        if alone || letter.is_whitespace() {
            if !word.is_empty() && !each(&word) {
                return;
            }
            word.clear();
            length = 0;
            if alone && !each(letter.encode_utf8(&mut [0; 4])) {
                return;
            }
        } else if length <= WORD_CHARS_MAX {
            word.push(letter);
            length += 1;
        }
    }
    if !word.is_empty() {
        each(&word);
    }
}

fn letters(text: &str, reading: Reading) -> Box<dyn Iterator<Item = char> + '_> {
    let clean = text.chars().filter(|&letter| !is_dropped(letter)).map(blank);
    let mut letters: Box<dyn Iterator<Item = char>> = Box::new(clean);
    if reading.cjk {
        letters = Box::new(letters.flat_map(apart));
    }
    if reading.plain {
        letters = Box::new(letters.nfd().filter(|&letter| !is_accent(letter)));
    }
    if reading.lower {
        letters = Box::new(letters.flat_map(char::to_lowercase));
    }
    letters
}

fn blank(letter: char) -> char {
    if letter.is_whitespace() { ' ' } else { letter }
}

/// A Chinese character between spaces; anything else alone.
fn apart(letter: char) -> impl Iterator<Item = char> {
    let space = is_cjk(letter).then_some(' ');
    space.into_iter().chain([letter]).chain(space)
}

fn is_dropped(letter: char) -> bool {
    match letter {
        '\t' | '\n' | '\r' => false,
        '\0' | '\u{fffd}' => true,
        ' '..='~' => false,
        _ => matches!(
            letter.general_category(),
            GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
        ),
    }
}

fn is_accent(letter: char) -> bool {
    !letter.is_ascii() && letter.general_category() == GeneralCategory::NonspacingMark
}

fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || !letter.is_ascii()
            && letter.general_category_group() == GeneralCategoryGroup::Punctuation
}

fn is_cjk(letter: char) -> bool {
    matches!(u32::from(letter),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0xF900..=0xFAFF
        | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
        // The reference begins this range at 2B920, by a slip of the pen that
        // models were trained with.
        | 0x2B920..=0x2CEAF | 0x2F800..=0x2FA1F)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCASED: Reading = Reading { lower: true, plain: true, cjk: true };

    fn check(text: &str, reading: Reading, expect: &[&str]) {
        let mut found = Vec::new();
        words(text, reading, |word| {
            found.push(word.to_owned());
            true
        });
        assert_eq!(found, expect, "{text:?}");
    }

    #[test]
    fn words_end_at_spaces_and_punctuation() {
        check("", UNCASED, &[]);
        check(" \t\r\n\u{3000}\u{2028}", UNCASED, &[]);
        check("Don't stop.", UNCASED, &["don", "'", "t", "stop", "."]);
        check("a\u{a0}b", UNCASED, &["a", "b"]);
        check("fn main() {}", UNCASED, &["fn", "main", "(", ")", "{", "}"]);
        check("«ça» — 1€", UNCASED, &["«", "ca", "»", "—", "1€"]);
    }

    #[test]
    fn accents_capitals_and_control_characters_go() {
        check("ÀÉÎ Ünï\u{0301}", UNCASED, &["aei", "uni"]);
        check("İSTANBUL ΣΑΣ", UNCASED, &["istanbul", "σασ"]);
        check("a\0b\u{200b}c\u{7}d\u{fffd}", UNCASED, &["abcd"]);
        check("a\u{85}b\u{e000}c", UNCASED, &["abc"]);
        let cased = Reading { lower: false, plain: false, cjk: false };
        check("Été 中文", cased, &["Été", "中文"]);
    }

    #[test]
    fn chinese_characters_are_words_and_japanese_syllables_are_not() {
        check("ab中文cd", UNCASED, &["ab", "中", "文", "cd"]);
        check("カタ", UNCASED, &["カタ"]);
    }

    #[test]
    fn a_text_is_read_only_as_far_as_its_words_are_wanted() {
        let mut count = 0;
        words(&"word ".repeat(100_000), UNCASED, |_| {
            count += 1;
            count < 3
        });
        assert_eq!(count, 3);
    }

    #[test]
    fn an_endless_word_is_cut_where_it_is_known_to_be_unknown() {
        words(&"x".repeat(1_000_000), UNCASED, |word| {
            assert_eq!(word.len(), WORD_CHARS_MAX + 1);
            true
        });
    }
}
