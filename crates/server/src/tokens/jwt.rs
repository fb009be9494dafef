//! A token in its compact form (RFC 7519): what it says, and whether it was
//! signed.
//!
//! What its header says chooses among the keys that a file names and does
//! nothing else: keys that a token brings along, or says where to fetch, and
//! extensions that must be understood are refused.

use super::json;
use super::jwks::{Algorithm, PublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fractal::{Error, Result};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Later than anybody means; beyond it seconds are milliseconds by mistake.
const SECONDS_MAX: f64 = 1e11;

/// Header members that lead to a key of the sender's choice.
const KEYS_BROUGHT: [&str; 4] = ["jwk", "jku", "x5u", "x5c"];

/// Kinds of tokens that let somebody in; one that was signed to log somebody
/// out is none of them.
const KINDS: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// A token that was taken apart, of which nothing is proven yet.
pub struct Token<'a> {
    algorithm: Algorithm,
    kid: Option<String>,
    claims: Map<String, Value>,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub fn read(text: &'a str) -> Result<Token<'a>> {
        let (signed, signature) = text.rsplit_once('.').ok_or_else(|| no("it has no parts"))?;
        let (header, claims) = signed.split_once('.').ok_or_else(|| no("it has no parts"))?;
        let header = part(header).ok_or_else(|| no("its header is no JSON object"))?;
        let claims = part(claims).ok_or_else(|| no("its claims are no JSON object"))?;
        let signature = URL_SAFE_NO_PAD.decode(signature);
        let signature = signature.map_err(|_| no("its signature is no base64url"))?;
        let (algorithm, kid) = read_header(&header)?;
        Ok(Token { algorithm, kid, claims, signed: signed.as_bytes(), signature })
    }

    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Proves it, with this key and in one of these ways.
    pub fn check_signature(&self, key: &PublicKey, allowed: &BTreeSet<Algorithm>) -> Result<()> {
        if self.algorithm != key.algorithm() {
            return Err(no("its algorithm is not that of its key"));
        }
        if !allowed.contains(&self.algorithm) {
            return Err(no("its algorithm is not allowed for its issuer"));
        }
        match key.signed(self.signed, &self.signature) {
            true => Ok(()),
            false => Err(no("its signature does not hold")),
        }
    }

    /// A claim by its name, or by a JSON pointer to it.
    pub fn claim(&self, name: &str) -> Option<&Value> {
        match name.strip_prefix('/') {
            None => self.claims.get(name),
            Some(rest) => {
                let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
                let first = self.claims.get(&first.replace("~1", "/").replace("~0", "~"))?;
                let rest = if rest.is_empty() { String::new() } else { format!("/{rest}") };
                first.pointer(&rest)
            }
        }
    }

    /// A claim that must be text, and not empty.
    pub fn text(&self, name: &str) -> Result<&str> {
        let text = self.claim(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or_else(|| Error::denied(format!("its claim `{name}` is no text")))
    }

    /// A claim that may be one text or several.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        match self.claim(name) {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// When it ends, after all that it says of time was held against the clock.
    pub fn check_time(&self, now_ms: u64, leeway_ms: u64) -> Result<u64> {
        let ends = self.time("exp")?.ok_or_else(|| no("it does not say when it ends"))?;
        let ends = ends.saturating_add(leeway_ms);
        if ends <= now_ms {
            return Err(no("it has expired"));
        }
        let latest = now_ms.saturating_add(leeway_ms);
        for (name, why) in [("nbf", "it is not good yet"), ("iat", "it was issued in the future")] {
            if self.time(name)?.is_some_and(|from| from > latest) {
                return Err(no(why));
            }
        }
        Ok(ends)
    }

    /// A time, in milliseconds; tokens have seconds, at times with a fraction.
    fn time(&self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.claims.get(name) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| (0.0..SECONDS_MAX).contains(seconds));
        let seconds = seconds.ok_or_else(|| no("a time in it is none"))?;
        Ok(Some((seconds * 1000.0) as u64))
    }
}

fn read_header(header: &Map<String, Value>) -> Result<(Algorithm, Option<String>)> {
    if header.contains_key("crit") {
        return Err(no("its header has extensions that must be understood"));
    }
    if KEYS_BROUGHT.iter().any(|name| header.contains_key(*name)) {
        return Err(no("it brings a key along, or says where one is"));
    }
    match header.get("typ") {
        None => {}
        Some(Value::String(kind)) if KINDS.contains(&kind.to_ascii_lowercase().as_str()) => {}
        Some(_) => return Err(no("it is a token for something else")),
    }
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::parse);
    let algorithm = algorithm.ok_or_else(|| no("its algorithm is none of those there are"))?;
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Err(no("the name of its key is no text")),
    };
    Ok((algorithm, kid))
}

fn part(text: &str) -> Option<Map<String, Value>> {
    json::object(&URL_SAFE_NO_PAD.decode(text).ok()?)
}

fn no(why: &str) -> Error {
    Error::denied(why)
}
