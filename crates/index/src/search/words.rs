//! A question as an expression of the full-text index.
//!
//! Whatever is typed is taken as words: nothing in it is an operator.

/// Words that every question has and no answer is about.
const EMPTY: [&str; 62] = [
    "a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been",
    "but", "by", "can", "could", "did", "do", "does", "for", "from", "get", "had", "has", "have",
    "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "not", "of", "on", "or", "our",
    "should", "so", "that", "the", "their", "there", "this", "to", "us", "was", "we", "were",
    "what", "when", "where", "which", "who", "why", "will", "with", "you",
];
/// More words than a question has; a pasted log is a long question.
const WORDS_MAX: usize = 64;

/// The expression, or none when there is no word in the question. A name such as
/// `read_exact_at` counts by its parts and, more, as a whole.
pub(super) fn expression(question: &str) -> Option<String> {
    let mut terms: Vec<String> = Vec::new();
    let mut empty: Vec<String> = Vec::new();
    for piece in question.split_whitespace() {
        let parts: Vec<&str> =
            piece.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty()).collect();
        for part in &parts {
            let lower = part.to_lowercase();
            let list = if EMPTY.contains(&lower.as_str()) { &mut empty } else { &mut terms };
            push(list, format!("\"{lower}\""));
        }
        if parts.len() > 1 {
            push(&mut terms, format!("\"{}\"", parts.join(" ").to_lowercase()));
        }
    }
    let mut words = if terms.is_empty() { empty } else { terms };
    words.truncate(WORDS_MAX);
    (!words.is_empty()).then(|| words.join(" OR "))
}

fn push(list: &mut Vec<String>, term: String) {
    if !list.contains(&term) {
        list.push(term);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_words_and_nothing_else() {
        let check = |question: &str, expect: Option<&str>| {
            assert_eq!(expression(question).as_deref(), expect, "{question}");
        };
        check("why did the upgrade fail?", Some("\"upgrade\" OR \"fail\""));
        check("what is it", Some("\"what\" OR \"is\" OR \"it\""));
        check("read_exact_at", Some("\"read\" OR \"exact\" OR \"read exact at\""));
        check("NOT x* OR \"y\" NEAR(z)", Some("\"x\" OR \"y\" OR \"near\" OR \"z\" OR \"near z\""));
        check("Ünïcode 你好", Some("\"ünïcode\" OR \"你好\""));
        check("  ?! ", None);
        check("", None);
    }
}
