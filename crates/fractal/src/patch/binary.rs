//! `GIT binary patch`: contents deflated and written in git's base 85.

use flate2::{Compression, write::ZlibEncoder};
use std::io::{self, Write};

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Bytes per line: as many as its first letter can count.
const LINE_BYTES: usize = 52;

/// Writes both directions, so that the patch can also be taken back.
pub(super) fn write(out: &mut dyn Write, before: &[u8], after: &[u8]) -> io::Result<()> {
    out.write_all(b"GIT binary patch\n")?;
    write_literal(out, after)?;
    write_literal(out, before)
}

fn write_literal(out: &mut dyn Write, content: &[u8]) -> io::Result<()> {
    writeln!(out, "literal {}", content.len())?;
    let lines = Lines { out, pending: Vec::with_capacity(LINE_BYTES) };
    // Best speed is the level git uses here.
    let mut encoder = ZlibEncoder::new(lines, Compression::fast());
    encoder.write_all(content)?;
    encoder.finish()?.finish()
}

/// Cuts what is written into lines of base 85.
struct Lines<'a> {
    out: &'a mut dyn Write,
    pending: Vec<u8>,
}

impl Lines<'_> {
    fn finish(mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.write_line()?;
        }
        self.out.write_all(b"\n")
    }

    fn write_line(&mut self) -> io::Result<()> {
        let mut line = vec![length_letter(self.pending.len())];
        for group in self.pending.chunks(4) {
            let mut word = [0; 4];
            word[..group.len()].copy_from_slice(group);
            line.extend(encode(u32::from_be_bytes(word)));
        }
        line.push(b'\n');
        self.pending.clear();
        self.out.write_all(&line)
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(LINE_BYTES - self.pending.len());
        self.pending.extend_from_slice(&bytes[..taken]);
        if self.pending.len() == LINE_BYTES {
            self.write_line()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `A` to `Z` for 1 to 26, `a` to `z` for 27 to 52.
fn length_letter(length: usize) -> u8 {
    let length = u8::try_from(length).unwrap_or(LINE_BYTES as u8);
    if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }
}

fn encode(mut word: u32) -> [u8; 5] {
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(word % 85) as usize];
        word /= 85;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_lengths_are_written_as_git_writes_them() {
        assert_eq!(&encode(0x7801_0300), b"cmV?d");
        assert_eq!(&encode(1), b"00001");
        assert_eq!([1, 26, 27, 52].map(length_letter), *b"AZaz");
    }
}
