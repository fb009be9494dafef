//! Attestations: what was promoted, from what, and on which evidence, signed.
//!
//! An in-toto statement with a SLSA provenance predicate, in a DSSE envelope,
//! signed with an ed25519 key of this state directory. The subject is the
//! digest of everything the promotion wrote; the journal's record is named by
//! number and hash, so that neither can be exchanged without the other. It is
//! written in the transaction of that record, by whoever commits it: so there
//! is no promotion without one, also when a crash came in between.

use crate::Engine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use fractal_model::{Code, Error, Id, Record, Result, format_iso_ms};
use fractal_store::now_ms;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
const BUILD_TYPE: &str = "https://github.com/fractal-sandbox/fractal/promotion/v1";

/// Name of the envelope in a promotion's directory.
const FILE: &str = "attestation.json";

/// Where those lie that have no directory of their own.
const DIRECTORY: &str = "attestations";

/// What a signature covers, and the signature: the DSSE envelope.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload_type: String,
    payload: String,
    signatures: Vec<Signed>,
}

#[derive(Serialize, Deserialize)]
struct Signed {
    keyid: String,
    sig: String,
}

/// What a promotion is, and where its attestation lies.
pub enum Subject {
    /// A write into reality, by the digest of its plan. It lies beside what
    /// was replaced.
    Written(String),
    /// What came into a sandbox's layers, or on a branch.
    Landed {
        /// What exactly changed.
        digest: String,
        /// The commit that it became.
        commit: Option<String>,
    },
}

/// What stands in the statement beside the digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Where it went.
    pub stage: String,
    /// What the subject is called: the project's directory, without its path.
    pub name: String,
    /// What was run, from where, under which policy, and what the checks said.
    pub parameters: Value,
    /// What it started from.
    pub base: Value,
}

/// What is to be signed, beside the plan of a write that is on its way.
const EVIDENCE: &str = "evidence";

impl Facts {
    /// Keeps them for whoever finishes the write.
    pub fn note(&self, dir: &Path) -> std::io::Result<()> {
        fs::write(dir.join(EVIDENCE), serde_json::to_vec(self).expect("facts are plain data"))
    }

    /// Once they are signed they stand in the attestation.
    pub fn forget(dir: &Path) {
        let _ = fs::remove_file(dir.join(EVIDENCE));
    }

    /// Finds them again.
    pub fn noted(dir: &Path) -> Option<Facts> {
        serde_json::from_slice(&fs::read(dir.join(EVIDENCE)).ok()?).ok()
    }
}

/// An attestation that was looked at.
pub struct Checked {
    /// The statement inside.
    pub statement: Value,
    /// The key that signed it.
    pub keyid: String,
}

/// Signs what a promotion did and keeps it.
pub fn write(
    engine: &Engine,
    promotion: Id,
    subject: &Subject,
    record: &Record,
    facts: &Facts,
) -> Result<()> {
    let statement = statement(promotion, record, facts, subject);
    let payload = serde_json::to_vec(&statement).expect("a statement is plain data");
    let key = key(engine)?;
    let signature = key.sign(&signed_bytes(&payload));
    let envelope = Envelope {
        payload_type: PAYLOAD_TYPE.to_owned(),
        payload: BASE64.encode(&payload),
        signatures: vec![Signed {
            keyid: keyid(&key.verifying_key()),
            sig: BASE64.encode(signature.to_bytes()),
        }],
    };
    let text = serde_json::to_string(&envelope).expect("an envelope is plain data");
    let path = file(engine, promotion, subject);
    if let (Subject::Landed { .. }, Some(dir)) = (subject, path.parent()) {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| failed(dir, &error))?;
    }
    write_whole(&path, text.as_bytes(), 0o644)
}

/// Whether there is one.
pub fn exists(engine: &Engine, promotion: Id, subject: &Subject) -> bool {
    file(engine, promotion, subject).exists()
}

impl Subject {
    fn digests(&self) -> Value {
        match self {
            Subject::Written(digest) | Subject::Landed { digest, commit: None } => {
                json!({ "sha256": digest })
            }
            Subject::Landed { digest, commit } => json!({ "sha256": digest, "gitCommit": commit }),
        }
    }
}

fn statement(promotion: Id, record: &Record, facts: &Facts, subject: &Subject) -> Value {
    json!({
        "_type": STATEMENT_TYPE,
        "subject": [{ "name": facts.name, "digest": subject.digests() }],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": facts.parameters,
                "internalParameters": { "stage": facts.stage },
                "resolvedDependencies": [facts.base],
            },
            "runDetails": {
                "builder": { "id": concat!("fractal ", env!("CARGO_PKG_VERSION")) },
                "metadata": {
                    "invocationId": promotion,
                    "finishedOn": format_iso_ms(now_ms()),
                },
                "byproducts": [{
                    "name": "journal record",
                    "annotations": { "seq": record.seq, "hash": record.hash },
                }],
            },
        },
    })
}

/// Checks signature and digest; returns what the attestation says.
pub fn check(engine: &Engine, promotion: Id, subject: &Subject) -> Result<Checked> {
    let path = file(engine, promotion, subject);
    let text = fs::read(&path).map_err(|_| {
        Error::not_found(format!("there is no attestation of promotion {promotion}"))
            .hint("`fractal log` shows promotions; one of an earlier version may have none")
    })?;
    let broken = |why: &str| {
        Error::new(Code::Gate, format!("the attestation of {promotion} does not hold: {why}"))
            .hint("do not trust this promotion; `fractal undo` takes it back")
    };
    let envelope: Envelope = serde_json::from_slice(&text).map_err(|e| broken(&e.to_string()))?;
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(broken("it carries something else"));
    }
    let payload = BASE64.decode(&envelope.payload).map_err(|e| broken(&e.to_string()))?;
    let public = public_key(engine)?;
    let mine = keyid(&public);
    let signed = envelope.signatures.iter().find(|signed| signed.keyid == mine);
    let signed = signed.ok_or_else(|| broken("it is not signed with the key of this directory"))?;
    let bytes = BASE64.decode(&signed.sig).map_err(|e| broken(&e.to_string()))?;
    let signature = Signature::from_slice(&bytes).map_err(|e| broken(&e.to_string()))?;
    public
        .verify(&signed_bytes(&payload), &signature)
        .map_err(|_| broken("the signature is not of this text"))?;
    let statement: Value = serde_json::from_slice(&payload).map_err(|e| broken(&e.to_string()))?;
    if statement["predicate"]["runDetails"]["metadata"]["invocationId"] != promotion.as_str() {
        return Err(broken("it is of another promotion"));
    }
    if statement["subject"][0]["digest"] != subject.digests() {
        return Err(broken("what was promoted is not what was signed"));
    }
    Ok(Checked { statement, keyid: mine })
}

/// The bytes that DSSE signs: type and text, each with its length.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn file(engine: &Engine, promotion: Id, subject: &Subject) -> PathBuf {
    match subject {
        Subject::Written(_) => engine.store.undo_dir(promotion).join(FILE),
        Subject::Landed { .. } => engine.home().join(DIRECTORY).join(format!("{promotion}.json")),
    }
}

fn keyid(key: &VerifyingKey) -> String {
    Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of this state directory, made on first use.
fn key(engine: &Engine) -> Result<SigningKey> {
    let dir = engine.home().join("keys");
    let path = dir.join("ed25519");
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    let mut seed = [0u8; 32];
    let mut filled = 0;
    while filled < seed.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut seed[filled..], flags)
            .map_err(|errno| Error::internal(format!("there is no randomness: {errno}")))?;
    }
    let made = SigningKey::from_bytes(&seed);
    // Only the first of several processes at once gets its key into place.
    write_new(&path, BASE64.encode(seed).as_bytes(), 0o600)?;
    let key = read_key(&path)?.unwrap_or(made);
    let public = BASE64.encode(key.verifying_key().as_bytes());
    write_whole(&dir.join("ed25519.pub"), format!("{public}\n").as_bytes(), 0o644)?;
    Ok(key)
}

fn read_key(path: &Path) -> Result<Option<SigningKey>> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(None) };
    let seed = BASE64.decode(text.trim()).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
    seed.map(|seed| Some(SigningKey::from_bytes(&seed))).ok_or_else(|| {
        Error::new(Code::Corrupt, format!("{} holds no key", path.display()))
            .hint("restore it from a backup, or move it away to get a new one")
    })
}

fn public_key(engine: &Engine) -> Result<VerifyingKey> {
    let path = engine.home().join("keys/ed25519.pub");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let bytes = BASE64.decode(text.trim()).ok().and_then(|key| <[u8; 32]>::try_from(key).ok());
    bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok()).ok_or_else(|| {
        Error::new(Code::Corrupt, format!("{} holds no key", path.display()))
            .hint("restore it from a backup")
    })
}

/// Puts a file into place unless there is one.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let part = part(path);
    write_part(&part, bytes, mode)?;
    let linked = fs::hard_link(&part, path);
    let _ = fs::remove_file(&part);
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(failed(path, &error))
        }
        _ => Ok(()),
    }
}

/// Puts a file into place, whole or not at all.
fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let part = part(path);
    write_part(&part, bytes, mode)?;
    fs::rename(&part, path).map_err(|error| failed(path, &error))?;
    let dir = path.parent().unwrap_or(path);
    let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| failed(dir, &error))
}

fn write_part(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let open = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    open.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|error| failed(path, &error))
}

fn part(path: &Path) -> PathBuf {
    path.with_extension(format!("part-{}", fractal_store::new_id()))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::internal(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_bytes_are_those_of_dsse() {
        let bytes = signed_bytes(b"{}");
        assert_eq!(bytes, b"DSSEv1 28 application/vnd.in-toto+json 2 {}");
    }
}
