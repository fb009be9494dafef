//! Answers that were given through a door, so that the same request again
//! gets the same answer, also after a crash. They are kept for a day.

use crate::{Reads, Result, Store};
use fractal_model::Given;
use rusqlite::OptionalExtension;

/// How long a client may come back.
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// The table; part of format 3.
pub(crate) const TABLE: &str = "
CREATE TABLE answer (
    asker       TEXT NOT NULL,
    key         TEXT NOT NULL,
    print       TEXT NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (asker, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX answer_created ON answer(created_ms);
";

impl Store {
    /// The answer that this asker was given under this key.
    pub fn given(&self, asker: &str, key: &str, now_ms: u64) -> Result<Option<Given>> {
        let sql = "SELECT print, status, body FROM answer \
                   WHERE asker = ?1 AND key = ?2 AND created_ms > ?3";
        let since = now_ms.saturating_sub(KEPT_MS);
        self.ask(|conn| {
            let mut question = conn.prepare_cached(sql)?;
            let row = question.query_row((asker, key, since), |row| {
                Ok(Given { print: row.get(0)?, status: row.get(1)?, body: row.get(2)? })
            });
            Ok(row.optional()?)
        })
    }

    /// Keeps an answer, and forgets those that are too old.
    pub fn give(&self, asker: &str, key: &str, given: &Given, now_ms: u64) -> Result<()> {
        self.transact(|tx| {
            tx.ask(|conn| {
                conn.execute(
                    "DELETE FROM answer WHERE created_ms <= ?1",
                    [now_ms.saturating_sub(KEPT_MS)],
                )?;
                conn.execute(
                    "INSERT OR REPLACE INTO answer VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    (asker, key, &given.print, given.status, &given.body, now_ms),
                )?;
                Ok(())
            })
        })
    }
}
