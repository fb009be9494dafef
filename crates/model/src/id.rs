//! Identity: ids that are never reused, and names that people type.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Crockford's alphabet: no I, L, O, U, so that an id can be read aloud.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ID_CHARS: usize = 26;

/// A time-ordered id of 26 characters (48 bits of time, 80 of chance).
///
/// The clock and the dice belong to the caller; this type only writes them
/// down. An id names a sandbox, a layer or a record for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Id([u8; ID_CHARS]);

impl Id {
    /// Writes a time in milliseconds and ten random bytes as an id.
    pub fn from_parts(time_ms: u64, random: [u8; 10]) -> Id {
        let mut wide = u128::from(time_ms & 0xFFFF_FFFF_FFFF) << 80;
        for (index, byte) in random.iter().enumerate() {
            wide |= u128::from(*byte) << (72 - 8 * index);
        }
        let mut text = [0u8; ID_CHARS];
        for (index, slot) in text.iter_mut().enumerate() {
            let shift = 5 * (ID_CHARS - 1 - index);
            *slot = ALPHABET[(wide >> shift) as usize & 31];
        }
        Id(text)
    }

    /// Reads an id; anything but 26 characters of the alphabet is refused.
    pub fn parse(text: &str) -> Result<Id> {
        let bytes: [u8; ID_CHARS] = text
            .as_bytes()
            .try_into()
            .map_err(|_| Error::invalid(format!("`{text}` is not an id of 26 characters")))?;
        if bytes.iter().all(|byte| ALPHABET.contains(byte)) && bytes[0] <= b'7' {
            Ok(Id(bytes))
        } else {
            Err(Error::invalid(format!("`{text}` is not an id")))
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the alphabet is ASCII")
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Id {
    type Error = Error;
    fn try_from(text: String) -> Result<Id> {
        Id::parse(&text)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.as_str().to_owned()
    }
}

const NAME_BYTES_MAX: usize = 64;

/// A name that a person gave to a sandbox, snapshot or volume.
///
/// Letters, digits, `.`, `_` and `-`, at most 64, starting with a letter or
/// digit: safe as a file name, as an argument and in a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Accepts a name or says which rule it breaks.
    pub fn parse(text: &str) -> Result<Name> {
        let rule =
            "names are 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter or digit";
        let starts_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let all_allowed =
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if starts_well && all_allowed && text.len() <= NAME_BYTES_MAX {
            Ok(Name(text.to_owned()))
        } else {
            Err(Error::invalid(format!("`{}` is not a name", text.escape_debug())).hint(rule))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(text: String) -> Result<Name> {
        Name::parse(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_read_back() {
        let early = Id::from_parts(1, [255; 10]);
        let late = Id::from_parts(2, [0; 10]);
        assert!(early < late);
        assert_eq!(Id::parse(early.as_str()), Ok(early));
        assert_eq!(Id::from_parts(0, [0; 10]).as_str(), "00000000000000000000000000");
        assert_eq!(Id::from_parts(u64::MAX, [255; 10]).as_str(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }

    #[test]
    fn names_keep_to_the_rule() {
        for good in ["a", "x-1", "v0.2_rc", &"n".repeat(64)] {
            assert!(Name::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", ".", "..", "a/b", "a b", "ü", "a\0", &"n".repeat(65)] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }
}
