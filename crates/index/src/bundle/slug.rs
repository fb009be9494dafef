//! Titles as names of files.

use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

const BYTES_MAX: usize = 60;

/// A title as a part of a file name: lower-case ASCII words joined by `-`, at
/// most 60 bytes, never empty. Letters lose their accents; what has no ASCII
/// letter is left out, and a title of nothing else is `untitled` with a mark.
pub fn slug(title: &str) -> String {
    let mut slug = String::new();
    // As much of a long title as could ever be needed.
    for letter in title.chars().take(20 * BYTES_MAX).nfkd() {
        match letter {
            'ß' => slug.push_str("ss"),
            letter if letter.is_ascii_alphanumeric() => slug.push(letter.to_ascii_lowercase()),
            // Accents that stood on the letter before.
            letter if unicode_normalization::char::is_combining_mark(letter) => {}
            '\'' | '’' => {}
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    if slug.len() > BYTES_MAX {
        let whole_words = slug[..=BYTES_MAX].rfind('-').filter(|at| *at >= BYTES_MAX / 2);
        slug.truncate(whole_words.unwrap_or(BYTES_MAX));
    }
    let slug = slug.trim_matches('-');
    match slug.is_empty() {
        false => slug.to_owned(),
        // Two problems in another alphabet are two all the same.
        true if title.chars().any(char::is_alphanumeric) => format!("untitled-{}", mark(title)),
        true => "untitled".to_owned(),
    }
}

/// A few letters that tell titles apart.
fn mark(title: &str) -> String {
    Sha256::digest(title.trim()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_a_safe_name() {
        let check = |title: &str, expected: &str| assert_eq!(slug(title), expected, "{title:?}");
        check("Locks: two writers, one row!", "locks-two-writers-one-row");
        check("Größe über Ärger – l’été", "grosse-uber-arger-lete");
        check("../../etc/passwd", "etc-passwd");
        check("..hidden\0\n", "hidden");
        check("C:\\x", "c-x");
        check("日本語", "untitled-77710aed");
        check("", "untitled");
        check("---", "untitled");
        check("ﬁle № 5", "file-no-5");
        check(&"word ".repeat(20), "word-word-word-word-word-word-word-word-word-word-word-word");
        check(&"x".repeat(99), &"x".repeat(60));
        check(&"é".repeat(1 << 20), &"e".repeat(60));
    }
}
