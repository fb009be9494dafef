//! Secrets in what programs print, before it is written into records.
//!
//! Records are read by many and live long, so this errs towards taking out too
//! much. It is a second fence: environment and files that hold secrets are
//! already hidden from programs in sandboxes.

use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

const GONE: &str = "[secret]";

/// What looks like a secret by itself, and what stands behind a telling name.
static SHAPES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let shapes = [
        // Keys in PEM armour, up to its end.
        (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)", GONE),
        // Tokens whose makers gave them a beginning.
        (
            r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abposr]-|sk-|pk_live_|sk_live_|rk_live_|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|hf_|frk_|fractal_)[A-Za-z0-9_\-]{12,}",
            GONE,
        ),
        (r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*", GONE),
        // Words before a secret, and the password of an address.
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=_\-.]{12,}", "$1 [secret]"),
        (r"(?i)([a-z][a-z0-9+.\-]*://[^\s/:@]*):[^\s/@]+@", "$1:[secret]@"),
        (
            r#"(?i)((?:[a-z0-9_\-]*(?:password|passwd|secret|token|api[_\-]?key|access[_\-]?key|private[_\-]?key|credential)[a-z0-9_\-]*)["']?\s*(?:=|:)\s*["']?)([^\s"',;&]{4,})"#,
            "${1}[secret]",
        ),
    ];
    let compile = |(shape, with): (&str, &'static str)| {
        (Regex::new(shape).expect("the shapes are constants"), with)
    };
    shapes.into_iter().map(compile).collect()
});

/// The text without what looks like a secret.
pub(crate) fn scrubbed(text: &str) -> Cow<'_, str> {
    SHAPES.iter().fold(Cow::Borrowed(text), |text, (shape, with)| {
        match shape.replace_all(&text, *with) {
            Cow::Borrowed(_) => text,
            Cow::Owned(changed) => Cow::Owned(changed),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_and_the_rest_stays() {
        let check = |text: &str, expect: &str| assert_eq!(scrubbed(text), expect);
        check("export API_KEY=abcd1234efgh", "export API_KEY=[secret]");
        check(
            r#"{"password": "hunter22", "user": "ann"}"#,
            r#"{"password": "[secret]", "user": "ann"}"#,
        );
        check("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer [secret]");
        check(
            "git clone https://ann:s3cr3t@example.org/x",
            "git clone https://ann:[secret]@example.org/x",
        );
        check("token ghp_abcdefghijklmnopqrstuvwxyz0123", "token [secret]");
        check(
            "a -----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- b",
            "a [secret] b",
        );
        check("-----BEGIN PRIVATE KEY-----\ncut off", "[secret]");
        check("error: 3 tokens expected, found 4", "error: 3 tokens expected, found 4");
        check("https://example.org:8080/x", "https://example.org:8080/x");
        check("plain", "plain");
    }
}
