//! One thing that happened. Records form a chain: each carries the hash of
//! the one before, so an edited, removed or reordered record shows.

use crate::{Code, Id};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What happened, without its place in the chain. Holds no absolute host
/// paths, so that a journal means the same on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordBody {
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// The name of the key that asked (`owner` for the local user).
    pub who: String,
    /// The id of the key that asked; none for the local user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Id>,
    /// Whose it is; none for the local user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The verb.
    pub action: String,
    /// In which directory, as [`RecordBody::place_of`] marks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// On which sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Id>,
    /// Its name at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The top layer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Id>,
    /// The top layer after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Id>,
    /// `None` when it was carried out, the error's code otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Code>,
    /// What the verb adds: command, exit, usage, counts.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub detail: serde_json::Value,
}

impl RecordBody {
    /// A mark by which records of one directory are found, without its name.
    pub fn place_of(directory: &[u8]) -> String {
        let digest = Sha256::digest(directory);
        digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether it tells of a run that was part of another verb: a check, a
    /// score, a look at the base.
    pub fn is_part(&self) -> bool {
        self.detail.get("kind").is_some()
    }
}

/// A record in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub body: RecordBody,
    /// Hash of the record before (64 zeros for the first).
    pub prev: String,
    /// Hash of this one.
    pub hash: String,
}

impl Record {
    /// The hash the first record points at.
    pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    /// Hash of a record from the exact bytes it is stored as.
    pub fn chain_hash(seq: u64, prev: &str, body_json: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update(seq.to_be_bytes());
        hasher.update(prev.as_bytes());
        hasher.update(body_json.as_bytes());
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_number_predecessor_and_body() {
        let hash = Record::chain_hash(1, Record::GENESIS, "{}");
        assert_eq!(hash.len(), 64);
        assert_ne!(hash, Record::chain_hash(2, Record::GENESIS, "{}"));
        assert_ne!(hash, Record::chain_hash(1, &hash, "{}"));
        assert_ne!(hash, Record::chain_hash(1, Record::GENESIS, "{} "));
    }
}
