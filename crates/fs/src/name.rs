//! One name in a directory: bytes, as Linux has it.

use crate::error::{Fault, Kind};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The longest name that Linux filesystems take.
pub const NAME_BYTES_MAX: usize = 255;

const SHORT_MAX: usize = 22;

/// A name: not empty, not `.` or `..`, without slash and NUL, at most
/// [`NAME_BYTES_MAX`] bytes. Short ones, which are nearly all, lie in the
/// directory's own memory, so that looking one up touches nothing else.
#[derive(Clone)]
pub struct Name(Form);

#[derive(Clone)]
enum Form {
    Short(u8, [u8; SHORT_MAX]),
    Long(Arc<[u8]>),
}

impl Name {
    /// Takes what may stand as a name in a directory.
    pub fn new(bytes: &[u8]) -> Result<Name, Fault> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(Fault::new(Kind::NameTooLong));
        }
        let dots = bytes.is_empty() || bytes == b"." || bytes == b"..";
        if dots || bytes.contains(&b'/') || bytes.contains(&0) {
            return Err(Fault::new(Kind::Invalid));
        }
        Ok(Name::trusted(bytes))
    }

    /// The same for one component of a path that was taken apart at slashes.
    #[inline]
    pub(crate) fn trusted(bytes: &[u8]) -> Name {
        debug_assert!(!bytes.contains(&b'/') && !bytes.is_empty());
        if bytes.len() > SHORT_MAX {
            return Name(Form::Long(bytes.into()));
        }
        let mut short = [0; SHORT_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Name(Form::Short(bytes.len() as u8, short))
    }

    /// The bytes of the name.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Short(len, bytes) => &bytes[..*len as usize],
            Form::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Name) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expect: Option<Kind>) {
        assert_eq!(Name::new(bytes).err().map(|fault| fault.kind), expect, "{bytes:?}");
    }

    #[test]
    fn names_are_what_linux_takes() {
        check(b"a", None);
        check(b"...", None);
        check(&[0xff, 0xfe], None);
        check(&[b'x'; 255], None);
        check(&[b'x'; 256], Some(Kind::NameTooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            check(bad, Some(Kind::Invalid));
        }
    }

    #[test]
    fn short_and_long_ones_are_in_one_order() {
        let names = ["b", "a", "a-name-that-is-longer-than-the-short-form", "a-name", ""];
        let mut made: Vec<Name> = names[..4].iter().map(|n| Name::trusted(n.as_bytes())).collect();
        made.sort();
        let shown: Vec<String> = made.iter().map(Name::to_string).collect();
        assert_eq!(shown, ["a", "a-name", "a-name-that-is-longer-than-the-short-form", "b"]);
        assert_eq!(size_of::<Name>(), 24);
    }
}
