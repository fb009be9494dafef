//! Bytes as text, in the ways that clients know: Python's names of encodings
//! and of what is done with bytes that are none.

use super::Thrown;
use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use std::fmt::Write;

/// How a client wants bytes that do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnBad {
    Strict,
    Ignore,
    Replace,
    Backslash,
}

impl OnBad {
    fn find(name: &str) -> Result<OnBad, Thrown> {
        match name {
            "strict" => Ok(OnBad::Strict),
            "ignore" => Ok(OnBad::Ignore),
            "replace" => Ok(OnBad::Replace),
            "backslashreplace" => Ok(OnBad::Backslash),
            _ => Err(Thrown::of(
                "builtins.LookupError",
                format!(
                    "no error handler `{}` here: there are strict, ignore, replace and \
                     backslashreplace",
                    name.escape_debug()
                ),
            )),
        }
    }

    fn handle(self, bad: &[u8], at: usize, codec: &str, out: &mut String) -> Result<(), Thrown> {
        match self {
            OnBad::Ignore => {}
            OnBad::Replace => out.push(char::REPLACEMENT_CHARACTER),
            OnBad::Backslash => escape(bad, out),
            OnBad::Strict => {
                let first = bad.first().copied().unwrap_or_default();
                return Err(Thrown::of(
                    "builtins.UnicodeDecodeError",
                    format!("'{codec}' cannot decode byte 0x{first:02x} at position {at}"),
                ));
            }
        }
        Ok(())
    }
}

/// A table of characters.
enum Codec {
    Ascii,
    /// Each byte is the character of its number.
    Latin1,
    Other(&'static Encoding),
}

impl Codec {
    /// By a name that Python knows, and what of the bytes is not text.
    fn find(name: &str, bytes: &[u8]) -> Result<(Codec, usize), Thrown> {
        let plain = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
        let marked = |mark: &[u8]| bytes.starts_with(mark);
        let found = match plain.as_str() {
            "utf-8" | "utf8" | "u8" => (Codec::Other(UTF_8), 0),
            "utf-8-sig" => (Codec::Other(UTF_8), if marked(b"\xef\xbb\xbf") { 3 } else { 0 }),
            "ascii" | "us-ascii" | "646" => (Codec::Ascii, 0),
            "latin-1" | "latin1" | "l1" | "iso-8859-1" | "iso8859-1" | "8859" => (Codec::Latin1, 0),
            "utf-16" | "utf16" | "u16" if marked(b"\xfe\xff") => (Codec::Other(UTF_16BE), 2),
            "utf-16" | "utf16" | "u16" if marked(b"\xff\xfe") => (Codec::Other(UTF_16LE), 2),
            "utf-16" | "utf16" | "u16" | "utf-16-le" | "utf-16le" => (Codec::Other(UTF_16LE), 0),
            "utf-16-be" | "utf-16be" => (Codec::Other(UTF_16BE), 0),
            other => {
                let found = Encoding::for_label_no_replacement(other.as_bytes()).or_else(|| {
                    Encoding::for_label_no_replacement(other.replace('-', "").as_bytes())
                });
                let unknown = || {
                    let name = name.escape_debug();
                    Thrown::of("builtins.LookupError", format!("unknown encoding: {name}"))
                };
                (Codec::Other(found.ok_or_else(unknown)?), 0)
            }
        };
        Ok(found)
    }
}

/// Bytes as text in an encoding, UTF-8 unless another one is named.
pub fn decode(
    bytes: &[u8],
    encoding: Option<&str>,
    errors: Option<&str>,
) -> Result<String, Thrown> {
    let name = encoding.unwrap_or("utf-8");
    let on_bad = OnBad::find(errors.unwrap_or("strict"))?;
    let (codec, mark) = Codec::find(name, bytes)?;
    let name = name.escape_debug().to_string();
    match codec {
        Codec::Latin1 => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Codec::Ascii => {
            let mut out = String::with_capacity(bytes.len());
            for (at, byte) in bytes.iter().enumerate() {
                match byte.is_ascii() {
                    true => out.push(char::from(*byte)),
                    false => on_bad.handle(&[*byte], at, &name, &mut out)?,
                }
            }
            Ok(out)
        }
        Codec::Other(encoding) => by_table(&bytes[mark..], mark, encoding, on_bad, &name),
    }
}

fn by_table(
    bytes: &[u8],
    before: usize,
    encoding: &'static Encoding,
    on_bad: OnBad,
    name: &str,
) -> Result<String, Thrown> {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut out = String::with_capacity(bytes.len() + 16);
    let mut at = 0;
    loop {
        let (result, read) =
            decoder.decode_to_string_without_replacement(&bytes[at..], &mut out, true);
        at += read;
        match result {
            DecoderResult::InputEmpty => return Ok(out),
            DecoderResult::OutputFull => out.reserve(bytes.len() - at + 64),
            DecoderResult::Malformed(length, after) => {
                let end = at.saturating_sub(usize::from(after));
                let start = end.saturating_sub(usize::from(length));
                on_bad.handle(&bytes[start..end], before + start, name, &mut out)?;
            }
        }
    }
}

/// Text of a program: what is none is written as escapes.
pub fn of_program(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        escape(chunk.invalid(), &mut out);
    }
    out
}

fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        // Writing into a string does not fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// Ends of lines, however they were written, as one newline each.
pub fn plain_lines(text: String) -> String {
    match text.contains('\r') {
        true => text.replace("\r\n", "\n").replace('\r', "\n"),
        false => text,
    }
}

/// What was written to a terminal, without what steers one.
pub fn of_terminal(bytes: &[u8]) -> String {
    without_controls(&of_program(bytes)).replace("\r\n", "\n")
}

/// Leaves out sequences that begin with an escape: those with parameters, the
/// titles of windows, and single ones.
fn without_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match after.as_bytes().first() {
            Some(b'[') => {
                let body = after[1..].trim_start_matches(|c| matches!(c, '\x20'..='\x3f'));
                body.strip_prefix(|c| matches!(c, '@'..='~')).unwrap_or(body)
            }
            Some(b']') => match after.find(['\x07', '\x1b']) {
                Some(end) => after[end..].trim_start_matches('\x07').trim_start_matches("\x1b\\"),
                None => "",
            },
            Some(b'@'..=b'_') => &after[1..],
            _ => after,
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decode_as_in_python() {
        let check = |bytes: &[u8], encoding: &str, errors: &str, expect: Option<&str>| {
            let text = decode(bytes, Some(encoding), Some(errors)).ok();
            assert_eq!(text.as_deref(), expect, "{bytes:?} {encoding} {errors}");
        };
        check("ä€".as_bytes(), "utf-8", "strict", Some("ä€"));
        check(b"a\xff\xfeb", "UTF8", "strict", None);
        check(b"a\xff\xfeb", "utf_8", "ignore", Some("ab"));
        check(b"a\xff\xfeb", "utf-8", "replace", Some("a\u{fffd}\u{fffd}b"));
        check(b"a\xe2\x82b", "utf-8", "replace", Some("a\u{fffd}b"));
        check(b"a\xe2\x82b\xe2", "utf-8", "backslashreplace", Some("a\\xe2\\x82b\\xe2"));
        check(b"\xe4\x80", "latin-1", "strict", Some("ä\u{80}"));
        check(b"\xe4\x80", "cp1252", "strict", Some("ä€"));
        check(b"a\xe4", "ascii", "strict", None);
        check(b"a\xe4", "ascii", "backslashreplace", Some("a\\xe4"));
        check(b"\xff\xfea\0", "utf-16", "strict", Some("a"));
        check(b"\0a", "utf-16-be", "strict", Some("a"));
        check(b"\xef\xbb\xbfa", "utf-8-sig", "strict", Some("a"));
        check(b"\xef\xbb\xbfa", "utf-8", "strict", Some("\u{feff}a"));
        check(b"a\x93", "shift_jis", "strict", None);
        check(b"\x93\xfa", "shift_jis", "strict", Some("日"));
        check(b"a", "no-such", "strict", None);
        check(b"a", "utf-8", "no-such", None);
    }

    #[test]
    fn text_of_a_terminal_has_no_controls() {
        let check = |text: &str, expect: &str| assert_eq!(of_terminal(text.as_bytes()), expect);
        check("a\r\nb\r\r\n", "a\nb\r\n");
        check("\x1b[?2004h\x1b[1;31mred\x1b[0m", "red");
        check("\x1b]0;title\x07shown \x1b]8;;x\x1b\\link", "shown link");
        check("\x1bMup", "up");
        assert_eq!(of_terminal(b"a\xffb"), "a\\xffb");
    }
}
