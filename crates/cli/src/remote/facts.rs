//! What a server must know of its caller to do what we would have done: as
//! headers, which every request carries.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A server takes 64 KiB of headers; the rest is for ours.
const ENVIRONMENT_BYTES_MAX: usize = 48 << 10;

/// Directory, name, environment and settings of this call.
pub struct Facts(Vec<u8>);

impl Facts {
    /// `None` where something of it cannot stand in a header: then no server
    /// is asked.
    pub fn new(
        directory: &Path,
        who: &str,
        environment: impl Iterator<Item = (OsString, OsString)>,
        user_file: Option<&Path>,
    ) -> Option<Facts> {
        let mut headers = Vec::new();
        add(&mut headers, "Fractal-Directory", directory.as_os_str().as_bytes())?;
        add(&mut headers, "Fractal-Who", who.as_bytes())?;
        if let Some(file) = user_file {
            add(&mut headers, "Fractal-Settings", file.as_os_str().as_bytes())?;
        }
        let mut variables = Vec::new();
        for (name, value) in environment {
            encode(&mut variables, name.as_bytes());
            variables.push(b'=');
            encode(&mut variables, value.as_bytes());
            variables.extend_from_slice(b"%00");
        }
        if variables.len() > ENVIRONMENT_BYTES_MAX {
            return None;
        }
        add(&mut headers, "Fractal-Environment", &variables)?;
        Some(Facts(headers))
    }

    /// A key in the place of all of it: whoever holds one has no word about
    /// directory and environment.
    pub fn of_key(secret: &str) -> Option<Facts> {
        let mut headers = Vec::new();
        add(&mut headers, "Authorization", format!("Bearer {secret}").as_bytes())?;
        Some(Facts(headers))
    }

    /// Lines that each end as headers do.
    pub fn headers(&self) -> &[u8] {
        &self.0
    }
}

/// A header's value has no control characters, and spaces around it are lost.
fn add(headers: &mut Vec<u8>, name: &str, value: &[u8]) -> Option<()> {
    let is_lost = |byte: Option<&u8>| byte == Some(&b' ');
    if value.iter().any(u8::is_ascii_control) || is_lost(value.first()) || is_lost(value.last()) {
        return None;
    }
    headers.extend_from_slice(name.as_bytes());
    headers.extend_from_slice(b": ");
    headers.extend_from_slice(value);
    headers.extend_from_slice(b"\r\n");
    Some(())
}

fn encode(into: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'%' => into.extend_from_slice(b"%25"),
            byte if byte.is_ascii_graphic() => into.push(*byte),
            byte => into.extend_from_slice(format!("%{byte:02x}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_hold_is_not_sent() {
        let facts = |directory: &str, value: &str| {
            let variables = [("A".into(), value.into())].into_iter();
            Facts::new(Path::new(directory), "owner", variables, None)
        };
        let plain = facts("/a b", "1 %").expect("it can be told");
        let expect = "Fractal-Directory: /a b\r\nFractal-Who: owner\r\n\
                      Fractal-Environment: A=1%20%25%00\r\n";
        assert_eq!(String::from_utf8_lossy(plain.headers()), expect);
        assert!(facts("/a\r\nX-Api-Key: b", "").is_none());
        assert!(facts("/a ", "").is_none());
        assert!(facts("/a", &"x".repeat(ENVIRONMENT_BYTES_MAX)).is_none());
    }
}
