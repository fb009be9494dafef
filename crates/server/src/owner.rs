//! What the owner says of themselves on the socket: the directory they work
//! in, the name for the journal, their environment and their own settings.
//!
//! A command line that goes through a server takes these along, so that what
//! happens is what would have happened without one. They are believed because
//! the kernel says who is at the other end; who comes with a key is refused
//! them, since a key works where and as its server was started.

use crate::failure::Failure;
use crate::state::Project;
use axum::http::{HeaderMap, HeaderValue};
use fractal::Error;
use fractal::model::{Name, decode_percent};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "fractal-directory";
const WHO: &str = "fractal-who";
/// `NAME=VALUE` pieces with a NUL after each, every byte that is no visible
/// ASCII (and `%`) written as `%` and two hexadecimal digits.
const ENVIRONMENT: &str = "fractal-environment";
const SETTINGS: &str = "fractal-settings";
const ALL: [&str; 4] = [DIRECTORY, WHO, ENVIRONMENT, SETTINGS];

/// Variables, in their order.
pub type Environment = Vec<(OsString, OsString)>;

/// The owner, as far as they told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub directory: PathBuf,
    pub who: Option<String>,
    pub environment: Option<Environment>,
    /// Their own settings, instead of those of whoever started the server.
    pub user_file: Option<PathBuf>,
}

impl Owner {
    /// Reads what the headers tell; the server's own directory by default.
    pub fn read(headers: &HeaderMap, project: &Project) -> Result<Owner, Failure> {
        let directory = match headers.get(DIRECTORY).map(path_of) {
            None => project.directory.clone(),
            Some(path) if path.is_absolute() && path.is_dir() => path,
            Some(path) => {
                return Err(Error::not_found(format!("{} is no directory", path.display())).into());
            }
        };
        let who = headers.get(WHO).map(|value| {
            let text = value.to_str().unwrap_or_default();
            Name::parse(text).map(|name| name.to_string())
        });
        let environment = headers.get(ENVIRONMENT).map(|value| {
            read_environment(value.as_bytes())
                .ok_or_else(|| Error::invalid(format!("`{ENVIRONMENT}` does not read")))
        });
        let user_file = headers.get(SETTINGS).map(path_of).map(|path| match path.is_absolute() {
            true => Ok(path),
            false => Err(Error::invalid(format!("`{SETTINGS}` is no absolute path"))),
        });
        Ok(Owner {
            directory,
            who: who.transpose()?,
            environment: environment.transpose()?,
            user_file: user_file.transpose()?,
        })
    }
}

/// Refuses them to who comes with a key: passing them over would let somebody
/// believe in a directory that nobody works in.
pub fn refuse(headers: &HeaderMap) -> Result<(), Failure> {
    match ALL.iter().find(|name| headers.contains_key(**name)) {
        None => Ok(()),
        Some(name) => Err(Error::denied(format!("`{name}` is not for who comes with a key"))
            .hint("leave it out, or ask as the owner by the socket")
            .into()),
    }
}

fn path_of(value: &HeaderValue) -> PathBuf {
    Path::new(OsStr::from_bytes(value.as_bytes())).to_path_buf()
}

fn read_environment(text: &[u8]) -> Option<Environment> {
    let bytes = decode_percent(text)?;
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let pieces = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let pair = |piece: &[u8]| {
        let at = piece.iter().skip(1).position(|byte| *byte == b'=')? + 1;
        let own = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((own(&piece[..at]), own(&piece[at + 1..])))
    };
    pieces.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_reads_byte_by_byte() {
        let pair = |key: &str, value: &[u8]| (key.into(), OsString::from_vec(value.to_vec()));
        let check = |text: &str, expect: Option<Environment>| {
            assert_eq!(read_environment(text.as_bytes()), expect, "{text}");
        };
        check("", Some(Vec::new()));
        check("A=b%00", Some(vec![pair("A", b"b")]));
        check("A=%00B=c=d%00", Some(vec![pair("A", b""), pair("B", b"c=d")]));
        check("A=%ff%25%0a%00", Some(vec![pair("A", b"\xff%\n")]));
        // The kernel lets a name begin with the sign.
        check("==x%00", Some(vec![pair("=", b"x")]));
        for bad in ["A=b", "A%00", "%00", "=%00", "A=%0", "A=%zz%00", "%"] {
            check(bad, None);
        }
    }
}
