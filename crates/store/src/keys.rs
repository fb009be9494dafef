//! Keys as they are stored: never with a secret, only with its hash.

use crate::rows::{id, json, unreadable};
use crate::{Result, Tx, tx};
use fractal_model::{Id, Key};
use rusqlite::{Row, params};

/// A key beside the hashes of the secrets that are good for it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// The key.
    pub key: Key,
    /// Hash of its secret.
    pub hash: String,
    /// Hash of the secret before that, and until when it stays good.
    pub old: Option<(String, u64)>,
}

/// Hashes have no place in messages.
impl std::fmt::Debug for KeyRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRow").field("key", &self.key).finish_non_exhaustive()
    }
}

impl KeyRow {
    pub(crate) const COLUMNS: &str = "id, name, role, policy, tenant, scope, rate_per_minute, \
         concurrent, created_ms, expires_ms, revoked_ms, secret_hash, old_hash, old_until_ms";

    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
        let key = Key {
            id: id(row, 0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            policy: json(row, 3)?,
            tenant: row.get(4)?,
            scope: json(row, 5)?,
            rate_per_minute: row.get(6)?,
            concurrent: row.get(7)?,
            created_ms: row.get(8)?,
            expires_ms: row.get(9)?,
            revoked_ms: row.get(10)?,
        };
        let old: (Option<String>, Option<u64>) = (row.get(12)?, row.get(13)?);
        let old = match old {
            (Some(hash), Some(until_ms)) => Some((hash, until_ms)),
            (None, None) => None,
            _ => return Err(unreadable(12, std::io::Error::other("half an old secret"))),
        };
        Ok(KeyRow { key, hash: row.get(11)?, old })
    }
}

impl Tx<'_> {
    /// Adds a key. Its name must be free among those of its tenant.
    pub fn insert_key(&self, row: &KeyRow) -> Result<()> {
        let key = &row.key;
        let sql = format!(
            "INSERT INTO key ({}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
            KeyRow::COLUMNS
        );
        let values = params![
            key.id.as_str(),
            key.name,
            key.role,
            tx::json(&key.policy)?,
            key.tenant,
            tx::json(&key.scope)?,
            key.rate_per_minute,
            key.concurrent,
            key.created_ms,
            key.expires_ms,
            key.revoked_ms,
            row.hash,
            row.old.as_ref().map(|(hash, _)| hash),
            row.old.as_ref().map(|(_, until_ms)| until_ms),
        ];
        self.insert("key", &key.name, &sql, values)
    }

    /// Gives a key another secret; the one before stays good as `old` says.
    pub fn set_secret(&self, id: Id, hash: &str, old: Option<(&str, u64)>) -> Result<()> {
        let sql = "UPDATE key SET secret_hash = ?2, old_hash = ?3, old_until_ms = ?4 \
                   WHERE id = ?1 AND revoked_ms IS NULL";
        let (old_hash, until_ms) = old.unzip();
        tx::found(self.run(sql, params![id.as_str(), hash, old_hash, until_ms])?, "key", id)
    }

    /// Ends a key for good; returns whether it had not ended that way before.
    pub fn revoke_key(&self, id: Id, revoked_ms: u64) -> Result<bool> {
        let sql = "UPDATE key SET revoked_ms = ?2, old_hash = NULL, old_until_ms = NULL \
                   WHERE id = ?1 AND revoked_ms IS NULL";
        Ok(self.run(sql, params![id.as_str(), revoked_ms])? > 0)
    }
}
