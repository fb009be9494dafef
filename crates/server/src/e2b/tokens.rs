//! Secrets of this door: a token for each sandbox, and keys in E2B's form.
//!
//! A sandbox's token is made from its id and a secret in the state directory,
//! so that none is stored and it is the same after a restart.

use crate::failure::Failure;
use axum::http::{HeaderMap, HeaderValue};
use fractal::Error;
use fractal::model::Id;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const FILE: &str = "keys/e2b";
const SECRET_BYTES: usize = 32;
/// How these keys begin; the rest is a key of ours in hexadecimal.
const PREFIX: &str = "e2b_";

/// Makes and checks tokens.
pub struct Tokens {
    file: PathBuf,
    key: OnceLock<hmac::Key>,
}

impl Tokens {
    pub fn new(home: &Path) -> Tokens {
        Tokens { file: home.join(FILE), key: OnceLock::new() }
    }

    /// The token of a sandbox.
    pub fn of(&self, sandbox: Id) -> Result<String, Failure> {
        let tag = hmac::sign(self.key()?, sandbox.as_str().as_bytes());
        Ok(hex(&tag.as_ref()[..20]))
    }

    /// Whether this is the token of the sandbox, in constant time.
    pub fn is_of(&self, token: &str, sandbox: Id) -> Result<bool, Failure> {
        let expect = self.of(sandbox)?;
        let key = self.key()?;
        // The tags of both are compared by the library, whatever they are.
        let tag = hmac::sign(key, expect.as_bytes());
        Ok(hmac::verify(key, token.as_bytes(), tag.as_ref()).is_ok())
    }

    fn key(&self) -> Result<&hmac::Key, Failure> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let cannot = |error: io::Error| {
            Error::internal(format!("the secret for tokens cannot be kept: {error}"))
        };
        let secret = secret(&self.file).map_err(cannot)?;
        Ok(self.key.get_or_init(|| hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }
}

/// What stands in the file, which is made once; whoever is first wins.
fn secret(file: &Path) -> io::Result<Vec<u8>> {
    match fs::read(file) {
        Ok(secret) if secret.len() == SECRET_BYTES => return Ok(secret),
        Ok(_) => return Err(io::Error::other(format!("{} is damaged: remove it", file.display()))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let mut dice = vec![0; SECRET_BYTES];
    SystemRandom::new().fill(&mut dice).map_err(|_| io::Error::other("no random numbers"))?;
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    let draft = file.with_extension(hex(&dice[..8]));
    let mut open = fs::OpenOptions::new();
    let mut written = open.write(true).create_new(true).mode(0o600).open(&draft)?;
    written.write_all(&dice)?;
    written.sync_all()?;
    let linked = fs::hard_link(&draft, file);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::read(file),
    }
}

/// A key of ours as E2B's clients want keys to look.
pub fn dressed_key(secret: &str) -> String {
    format!("{PREFIX}{}", hex(secret.as_bytes()))
}

/// The same headers with such a key as it is.
pub fn plain_key(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let plain = |text: &str| {
        let bytes = unhex(text.strip_prefix(PREFIX)?)?;
        HeaderValue::from_bytes(&bytes).ok()
    };
    let key = headers.get("x-api-key").and_then(|value| plain(value.to_str().ok()?));
    if let Some(key) = key {
        headers.insert("x-api-key", key);
    }
    headers
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_dress() {
        let mut headers = HeaderMap::new();
        let dressed = dressed_key("fk_1.2");
        assert!(dressed[4..].bytes().all(|byte| byte.is_ascii_hexdigit()));
        headers.insert("x-api-key", dressed.parse().expect("a value"));
        assert_eq!(plain_key(&headers)["x-api-key"], "fk_1.2");
        for odd in ["e2b_", "e2b_0", "e2b_zz", "e2b_0a", "other"] {
            headers.insert("x-api-key", odd.parse().expect("a value"));
            let _ = plain_key(&headers);
        }
    }

    #[test]
    fn a_token_is_for_one_sandbox_and_stays() {
        let home = tempfile::tempdir().expect("a directory");
        let id = |text: &str| Id::parse(text).expect("an id");
        let (a, b) = (id("01M7JG3D8E1MV1YPPAV0WGSZFX"), id("01M7JG3D8E1MV1YPPAV0WGSZFY"));
        let token = Tokens::new(home.path()).of(a).expect("a token");
        let again = Tokens::new(home.path());
        assert!(again.is_of(&token, a).expect("checked"));
        assert!(!again.is_of(&token, b).expect("checked"));
        assert!(!again.is_of("", a).expect("checked"));
    }
}
