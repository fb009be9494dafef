//! A path inside a sandbox: always relative to its root, never climbing.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

const PATH_BYTES_MAX: usize = 4096;

/// A normalised path below a sandbox's root, kept as bytes because Linux
/// names are bytes. Written `/like/this`; holds no `.`, `..`, empty component
/// or NUL, so joining it below a directory cannot leave that directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct SandboxPath(Vec<u8>);

impl SandboxPath {
    /// The root itself.
    pub fn root() -> SandboxPath {
        SandboxPath(Vec::new())
    }

    /// Reads a path; `.` is dropped, `..` and NUL are refused.
    pub fn parse(bytes: impl AsRef<[u8]>) -> Result<SandboxPath> {
        let bytes = bytes.as_ref();
        if bytes.len() > PATH_BYTES_MAX {
            return Err(Error::invalid(format!("a path is longer than {PATH_BYTES_MAX} bytes")));
        }
        let mut out = SandboxPath::root();
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    return Err(Error::invalid(format!(
                        "`{}` climbs with `..`",
                        String::from_utf8_lossy(bytes)
                    )));
                }
                name => out = out.join(name)?,
            }
        }
        Ok(out)
    }

    /// The path one component deeper.
    pub fn join(&self, name: impl AsRef<[u8]>) -> Result<SandboxPath> {
        let name = name.as_ref();
        let bad = name.is_empty() || name == b"." || name == b"..";
        if bad || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::invalid(format!(
                "`{}` is not a file name",
                String::from_utf8_lossy(name)
            )));
        }
        let mut bytes = self.0.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(SandboxPath(bytes))
    }

    /// Bytes without a leading slash: empty for the root.
    pub fn relative(&self) -> &[u8] {
        &self.0
    }

    /// The directory that holds it; `None` for the root.
    pub fn parent(&self) -> Option<SandboxPath> {
        if self.0.is_empty() {
            return None;
        }
        let cut = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(SandboxPath(self.0[..cut].to_vec()))
    }

    /// Whether `self` is `other` or lies below it.
    pub fn is_within(&self, other: &SandboxPath) -> bool {
        other.0.is_empty()
            || self.0 == other.0
            || (self.0.starts_with(&other.0) && self.0.get(other.0.len()) == Some(&b'/'))
    }

    /// The same place below another directory; `None` for what does not lie
    /// within `from`.
    pub fn moved(&self, from: &SandboxPath, to: &SandboxPath) -> Option<SandboxPath> {
        if !self.is_within(from) {
            return None;
        }
        let below = self.components().skip(from.components().count());
        let parts: Vec<&[u8]> = to.components().chain(below).collect();
        Some(SandboxPath(parts.join(&b'/')))
    }

    /// The components from the root down.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
    }
}

impl fmt::Display for SandboxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for SandboxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for SandboxPath {
    type Error = Error;
    fn try_from(text: String) -> Result<SandboxPath> {
        SandboxPath::parse(text)
    }
}

/// Names that are not UTF-8 are shown with replacement characters in JSON.
impl From<SandboxPath> for String {
    fn from(path: SandboxPath) -> String {
        path.to_string()
    }
}

/// A path as somebody typed it, from where they stand or from the root: any
/// bytes. JSON has no word for bytes that are not UTF-8; there it is text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "String", into = "String")]
pub struct TypedPath(Vec<u8>);

impl TypedPath {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for TypedPath {
    fn from(bytes: &[u8]) -> TypedPath {
        TypedPath(bytes.to_vec())
    }
}

impl From<&str> for TypedPath {
    fn from(text: &str) -> TypedPath {
        text.as_bytes().into()
    }
}

impl From<String> for TypedPath {
    fn from(text: String) -> TypedPath {
        TypedPath(text.into_bytes())
    }
}

impl From<TypedPath> for String {
    fn from(path: TypedPath) -> String {
        String::from_utf8_lossy(&path.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expect: Option<&str>) {
        let got = SandboxPath::parse(input).ok().map(|path| path.to_string());
        assert_eq!(got.as_deref(), expect, "{input:?}");
    }

    #[test]
    fn a_path_moves_with_the_directory_it_lies_in() {
        let path = |text: &str| SandboxPath::parse(text).expect("a path");
        let check = |from: &str, to: &str, expect: Option<&str>| {
            assert_eq!(path("/p/q/a").moved(&path(from), &path(to)), expect.map(path), "{from}");
        };
        check("/p/q", "/live", Some("/live/a"));
        check("/p/q/a", "/live", Some("/live"));
        check("/p", "/", Some("/q/a"));
        check("/", "/x/y", Some("/x/y/p/q/a"));
        check("/p/qq", "/live", None);
    }

    #[test]
    fn parsing_normalises_and_never_climbs() {
        check("/", Some("/"));
        check("a//b/./c/", Some("/a/b/c"));
        check("/a/../b", None);
        check("..", None);
        check("a\0b", None);
        check("..a", Some("/..a"));
    }

    #[test]
    fn within_is_by_component() {
        let path = |text: &str| SandboxPath::parse(text).expect("a valid path");
        assert!(path("/a/b").is_within(&path("/a")));
        assert!(path("/a").is_within(&path("/")));
        assert!(!path("/ab").is_within(&path("/a")));
        assert_eq!(path("/a/b").parent(), Some(path("/a")));
        assert_eq!(path("/a").parent(), Some(path("/")));
        assert_eq!(path("/").parent(), None);
    }
}
