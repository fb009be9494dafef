//! What the secret of a key looks like.
//!
//! `frk_<id>_<43 characters of chance><6 of a checksum>`: the prefix lets
//! scanners find one that was published by mistake, the id finds the key
//! without trying others, and the checksum tells a slip of the pen from a
//! guess without asking anybody. The dice belong to the caller.

use crate::Id;
use sha2::{Digest, Sha256};

/// Where every secret begins.
pub const SECRET_PREFIX: &str = "frk_";

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62^43 is just above 2^256.
const CHANCE_CHARS: usize = 43;
const CHECK_CHARS: usize = 6;

/// Writes the secret of a key from 32 random bytes.
pub fn write_secret(id: Id, random: [u8; 32]) -> String {
    let body = format!("{SECRET_PREFIX}{id}_{}", base62(&random, CHANCE_CHARS));
    let check = checksum(&body);
    body + &check
}

/// The key that a secret claims to belong to; `None` for what is no secret.
pub fn read_secret(text: &str) -> Option<Id> {
    let (id, rest) = text.strip_prefix(SECRET_PREFIX)?.split_once('_')?;
    let whole = rest.len() == CHANCE_CHARS + CHECK_CHARS
        && rest.bytes().all(|byte| ALPHABET.contains(&byte));
    let id = Id::parse(id).ok().filter(|_| whole)?;
    let (body, check) = text.split_at(text.len() - CHECK_CHARS);
    (checksum(body) == check).then_some(id)
}

/// What is stored of a secret. It is not slow on purpose: 256 bits of chance
/// cannot be tried one by one, unlike a password.
pub fn hash_secret(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two hashes are the same, in a time that does not tell where they
/// differ.
pub fn same_hash(a: &str, b: &str) -> bool {
    let differ =
        a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    a.len() == b.len() && differ == 0
}

fn checksum(body: &str) -> String {
    base62(&Sha256::digest(body.as_bytes())[..4], CHECK_CHARS)
}

/// Bytes as one large number in base 62, of a fixed width.
fn base62(bytes: &[u8], chars: usize) -> String {
    let mut number = bytes.to_vec();
    let mut text = vec![ALPHABET[0]; chars];
    for slot in text.iter_mut().rev() {
        let mut rest = 0u32;
        for digit in &mut number {
            let value = (rest << 8) | u32::from(*digit);
            (*digit, rest) = ((value / 62) as u8, value % 62);
        }
        *slot = ALPHABET[rest as usize];
    }
    text.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_reads_back_and_every_slip_shows() {
        let id = Id::from_parts(7, [3; 10]);
        let secret = write_secret(id, [200; 32]);
        assert!(secret.starts_with("frk_") && secret.len() == 4 + 26 + 1 + 49, "{secret}");
        assert_eq!(read_secret(&secret), Some(id));
        for at in 0..secret.len() {
            let mut bytes = secret.clone().into_bytes();
            bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
            let text = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(read_secret(&text), None, "{text}");
            assert_eq!(read_secret(&secret[..at]), None);
        }
        for bad in ["", "frk_", "frk__", "Bearer x", &format!("{secret}0"), &format!(" {secret}")] {
            assert_eq!(read_secret(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_widths_hold_the_largest_numbers() {
        assert_eq!(base62(&[255; 32], CHANCE_CHARS).len(), CHANCE_CHARS);
        assert_ne!(base62(&[255; 32], CHANCE_CHARS), base62(&[254; 32], CHANCE_CHARS));
        assert_eq!(base62(&[0, 0, 0, 61], CHECK_CHARS), "00000z");
        assert_eq!(base62(&[0, 0, 0, 62], CHECK_CHARS), "000010");
        assert_eq!(base62(&[255; 4], CHECK_CHARS), "4gfFC3");
    }

    #[test]
    fn hashes_are_compared_whole() {
        let hash = hash_secret("x");
        assert!(same_hash(&hash, &hash.clone()));
        assert!(!same_hash(&hash, &hash_secret("y")));
        assert!(!same_hash(&hash, &hash[..63]));
        assert!(!same_hash(&hash, ""));
    }
}
