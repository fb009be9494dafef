//! Answers that were given through a door, so that the same request again
//! gets the same answer, also after a crash. They are kept for a day, and of
//! one asker only so many: whoever sends ever new keys must not fill the disk.

use crate::{Reads, Result, Store};
use fractal_model::Given;
use rusqlite::{Connection, OptionalExtension};

/// How long a client may come back.
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// Answers of one asker.
const COUNT_MAX: usize = 1000;
/// Bytes of their long answers. Short ones are bounded by their number.
const BYTES_MAX: u64 = 64 << 20;
const LONG_BYTES: usize = 64 << 10;

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

    /// Keeps an answer, and forgets those that are too old or too many.
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
                forget_oldest(conn, (asker, key), given.body.len() > LONG_BYTES)?;
                Ok(())
            })
        })
    }
}

/// Deletes what is too much besides the answer that was given just now.
fn forget_oldest(
    conn: &Connection,
    (asker, latest): (&str, &str),
    is_long: bool,
) -> rusqlite::Result<()> {
    let count = "SELECT count(*) FROM answer WHERE asker = ?1";
    let count: usize = conn.prepare_cached(count)?.query_row([asker], |row| row.get(0))?;
    if count <= COUNT_MAX && !is_long {
        return Ok(());
    }
    // By the index, which holds the times: in the rows they lie behind the
    // bodies.
    let sizes = "SELECT key, octet_length(body) FROM answer INDEXED BY answer_created \
                 WHERE asker = ?1 AND key <> ?2 ORDER BY created_ms DESC";
    let mut sizes = conn.prepare_cached(sizes)?;
    let list = sizes.query_map((asker, latest), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let list: Vec<(String, u64)> = list.collect::<rusqlite::Result<_>>()?;
    let mut bytes = 0;
    for (number, (key, size)) in list.into_iter().enumerate() {
        bytes += size;
        if number + 1 >= COUNT_MAX || bytes > BYTES_MAX {
            conn.execute("DELETE FROM answer WHERE asker = ?1 AND key = ?2", (asker, key))?;
        }
    }
    Ok(())
}
