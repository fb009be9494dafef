//! Keys of an issuer: a JSON Web Key Set (RFC 7517) in a file.
//!
//! What kind a key is decides with which algorithm it is used, and nothing
//! else does: a token cannot have the public half of one taken for the secret
//! of another.

use super::json;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fractal::{Error, Result};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};
use std::path::Path;

const KEYS_MAX: usize = 100;
/// The point of a P-256 key is two numbers of so many bytes.
const P256_BYTES: usize = 32;
const ED25519_BYTES: usize = 32;
/// Shorter RSA is broken, longer takes long to check.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// How something is signed. There is no other way: `none` and secrets that two
/// sides share prove nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub const ALL: [Algorithm; 3] = [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    pub fn parse(text: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text)
    }
}

/// All keys of a file with which something can be checked.
#[derive(Debug)]
pub struct Keys(Vec<PublicKey>);

/// One of them.
#[derive(Clone, Debug)]
pub struct PublicKey {
    kid: Option<String>,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Keys {
    /// Reads the text of a file; the reason names it.
    pub fn read(path: &Path, text: &[u8]) -> Result<Keys> {
        let bad = |why: String| {
            Error::invalid(format!("{}: {why}", path.display()))
                .hint("it is the JSON at the `jwks_uri` of the issuer: {\"keys\": [...]}")
        };
        let set = json::object(text)
            .ok_or_else(|| bad("no JSON object, or one that says something twice".to_owned()))?;
        let Some(Value::Array(list)) = set.get("keys") else {
            return Err(bad("there is no list `keys`".to_owned()));
        };
        if list.len() > KEYS_MAX {
            return Err(bad(format!("there are {} keys, {KEYS_MAX} may be", list.len())));
        }
        let mut keys: Vec<PublicKey> = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let key = entry.as_object().ok_or("it is no object").and_then(PublicKey::read);
            let key = key.map_err(|why| bad(format!("key {}: {why}", index + 1)))?;
            let Some(key) = key else { continue };
            if keys.iter().any(|other| other.kid == key.kid) {
                let kid = key.kid.as_deref().unwrap_or_default().escape_debug().to_string();
                return Err(bad(format!("two keys have the kid `{kid}`")));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            let names = Algorithm::ALL.map(Algorithm::name).join(", ");
            return Err(bad(format!("none of its keys is for signatures by {names}")));
        }
        Ok(Keys(keys))
    }

    /// The key that a token names; one that names none means the only one.
    pub fn find(&self, kid: Option<&str>) -> Option<&PublicKey> {
        match (kid, self.0.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(kid), keys) => keys.iter().find(|key| key.kid.as_deref() == Some(kid)),
        }
    }
}

impl PublicKey {
    /// `None` for keys that are for something else, which sets often have.
    fn read(map: &Map<String, Value>) -> std::result::Result<Option<PublicKey>, &'static str> {
        let text = |name: &str| map.get(name).and_then(Value::as_str);
        if map.contains_key("d") {
            return Err("it has the private half, which belongs to the issuer alone");
        }
        if text("kty") == Some("oct") {
            return Err("it is a secret, and whoever checks with one can sign with it");
        }
        let checks = |ops: &Value| ops.as_array().is_some_and(|ops| ops.contains(&"verify".into()));
        if text("use").unwrap_or("sig") != "sig" || !map.get("key_ops").is_none_or(checks) {
            return Ok(None);
        }
        let material = match (text("kty"), text("crv")) {
            (Some("RSA"), _) => rsa(map)?,
            (Some("EC"), Some("P-256")) => {
                let (x, y) = (bytes(map, "x")?, bytes(map, "y")?);
                if x.len() != P256_BYTES || y.len() != P256_BYTES {
                    return Err("its point is of another curve");
                }
                Material::P256([&[4][..], &x, &y].concat())
            }
            (Some("OKP"), Some("Ed25519")) => {
                let x = bytes(map, "x")?;
                if x.len() != ED25519_BYTES {
                    return Err("its point is of another curve");
                }
                Material::Ed25519(x)
            }
            _ => return Ok(None),
        };
        let key = PublicKey { kid: text("kid").map(str::to_owned), material };
        let fits = text("alg").is_none_or(|alg| alg == key.algorithm().name());
        Ok(fits.then_some(key))
    }

    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether it signed these bytes.
    pub fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            Material::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
            }
            Material::Ed25519(point) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(message, signature)
            }
        };
        verified.is_ok()
    }
}

fn rsa(map: &Map<String, Value>) -> std::result::Result<Material, &'static str> {
    let (n, e) = (bytes(map, "n")?, bytes(map, "e")?);
    // Some write numbers with a zero before them; ring takes none.
    let trim = |number: Vec<u8>| number.into_iter().skip_while(|byte| *byte == 0).collect();
    let (n, e): (Vec<u8>, Vec<u8>) = (trim(n), trim(e));
    match RSA_BYTES.contains(&n.len()) {
        true => Ok(Material::Rsa { n, e }),
        false => Err("its modulus has not 2048 to 8192 bits"),
    }
}

fn bytes(map: &Map<String, Value>, name: &str) -> std::result::Result<Vec<u8>, &'static str> {
    let text = map.get(name).and_then(Value::as_str).ok_or("a number of it is missing")?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "a number of it is no base64url")
}
