//! Which layer holds the latest capture of a directory. It is kept for the
//! next capture even if no sandbox stands on it, for as long as captures of
//! that directory are made.

use crate::{Reads, Result, Tx, read, rows};
use fractal_model::Id;
use rusqlite::params;

/// A capture that nobody asked for again is forgotten after this.
const UNUSED_MS_MAX: u64 = 7 * 86_400_000;

/// The question for it, on the store and inside a transaction.
pub trait Captures: Reads {
    /// The latest capture under a key.
    fn capture(&self, key: &str) -> Result<Option<Id>> {
        let sql = "SELECT layer FROM capture WHERE key = ?1";
        self.ask(|conn| read::one(conn, sql, [key], |row| rows::id(row, 0)))
    }
}

impl<T: Reads> Captures for T {}

impl Tx<'_> {
    /// Makes a layer the latest capture under a key, and forgets those that
    /// nobody used for long.
    pub fn set_capture(&self, key: &str, layer: Id, now_ms: u64) -> Result<()> {
        let sql = "INSERT INTO capture (key, layer, used_ms) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (key) DO UPDATE SET layer = ?2, used_ms = ?3";
        self.run(sql, params![key, layer.as_str(), now_ms])?;
        let oldest = now_ms.saturating_sub(UNUSED_MS_MAX);
        self.run("DELETE FROM capture WHERE used_ms < ?1", [oldest])?;
        Ok(())
    }
}
