//! Names as the shell's words carry them.
//!
//! Names in the tree are bytes; words of the shell are text. A byte that is
//! no UTF-8 stands in a word as a private-use character, U+10FF00 plus the
//! byte, and turns back into the byte where a word is used as a path. A name
//! that holds such a character itself is written byte by byte, so that the
//! way back is always exact.

use std::borrow::Cow;

const FIRST: u32 = 0x10_FF80;
const ZERO: u32 = 0x10_FF00;

fn stands_for_byte(c: char) -> bool {
    c as u32 >= FIRST
}

/// The first byte of all characters that stand for a byte, and of others
/// that are as rare.
fn may_hold_one(bytes: &[u8]) -> bool {
    bytes.contains(&0xF4)
}

fn push_byte(out: &mut String, byte: u8) {
    match char::from_u32(ZERO + u32::from(byte)) {
        Some(c) if byte >= 0x80 => out.push(c),
        _ => out.push(char::from(byte)),
    }
}

/// A name or path as a word of the shell.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !may_hold_one(bytes) => return Cow::Borrowed(text),
        Ok(text) if !text.chars().any(stands_for_byte) => return Cow::Borrowed(text),
        _ => {}
    }
    let mut out = String::with_capacity(bytes.len() * 2);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match stands_for_byte(c) {
                false => out.push(c),
                true => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| push_byte(&mut out, b)),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut out, *byte));
    }
    Cow::Owned(out)
}

/// A word of the shell as the bytes of a name or path.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    if !may_hold_one(text.as_bytes()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match stands_for_byte(c) {
            true => out.push((c as u32 - ZERO) as u8),
            false => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &[u8]) {
        assert_eq!(&*bytes(&text(name)), name, "{name:?}");
    }

    #[test]
    fn every_name_comes_back_exactly() {
        check(b"plain");
        check("grün \u{1F600}".as_bytes());
        check(b"\xff\xfe");
        check(b"a\x80b\xf4\x8f");
        check("\u{10FF80}".as_bytes());
        check("x\u{10FFFF}\u{10FFC3}y".as_bytes());
        check(&(0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn plain_names_are_not_copied() {
        assert!(matches!(text(b"plain"), Cow::Borrowed(_)));
        assert!(matches!(bytes("plain"), Cow::Borrowed(_)));
    }
}
