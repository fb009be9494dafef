//! The chain of records: how one is added, how all are checked.
//!
//! `head` holds number and hash of the last record. It saves a search on
//! every append, and shows when records were cut off at the end, which a
//! chain alone cannot.

use crate::open::Patience;
use crate::tx::{BEGIN, COMMIT};
use crate::{Problem, Result, Store, StoreError, Tx};
use fractal_model::{Record, RecordBody};
use rusqlite::{Connection, params};

impl Tx<'_> {
    /// Adds a record to the journal, chained to the one before.
    pub fn append(&self, body: RecordBody) -> Result<Record> {
        let json = serde_json::to_string(&body)
            .map_err(|error| StoreError::corrupt(format!("a record cannot be written: {error}")))?;
        let (last, prev) = head(self.conn)?;
        let seq = last + 1;
        let hash = Record::chain_hash(seq, &prev, &json);
        let sandbox = body.sandbox.map(String::from);
        self.run(INSERT, params![seq, prev, hash, sandbox, json])?;
        self.run(MOVE_HEAD, params![seq, hash])?;
        Ok(Record { seq, body, prev, hash })
    }
}

const HEAD: &str = "SELECT seq, hash FROM head";
const INSERT: &str = "INSERT INTO journal (seq, prev, hash, sandbox, body) VALUES (?1,?2,?3,?4,?5)";
const MOVE_HEAD: &str = "UPDATE head SET seq = ?1, hash = ?2";

impl Store {
    /// Gets ready for a relaxed record: compiles its statements and lets the
    /// hash find out which processor it runs on. For a caller that has time
    /// before the record and none after.
    pub fn warm(&self) {
        let _ = Record::chain_hash(0, "", "");
        // Whatever fails here fails again, and is reported, when it is needed.
        let _ = self.with_writer(Patience::Normal, |conn| {
            let statements = [HEAD, INSERT, MOVE_HEAD, BEGIN, COMMIT];
            statements.iter().try_for_each(|sql| conn.prepare_cached(sql).map(drop))?;
            Ok(())
        });
    }
}

/// Number and hash of the last record.
pub(crate) fn head(conn: &Connection) -> Result<(u64, String)> {
    let mut statement = conn.prepare_cached(HEAD)?;
    Ok(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// A journal row as the exact text it is stored as.
pub(crate) struct Link {
    pub seq: u64,
    pub prev: String,
    pub hash: String,
    pub body: String,
}

impl Link {
    pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Link> {
        Ok(Link { seq: row.get(0)?, prev: row.get(1)?, hash: row.get(2)?, body: row.get(3)? })
    }

    /// Says what breaks between the record before and this one.
    pub(crate) fn fault(&self, last: u64, last_hash: &str) -> Option<String> {
        if self.seq != last + 1 {
            return Some(format!("record {} follows record {last}", self.seq));
        }
        if self.prev != last_hash {
            return Some("it does not point at the record before".to_owned());
        }
        if Record::chain_hash(self.seq, &self.prev, &self.body) != self.hash {
            return Some("its content does not match its hash".to_owned());
        }
        let body: std::result::Result<RecordBody, _> = serde_json::from_str(&self.body);
        body.err().map(|error| format!("it cannot be read: {error}"))
    }
}

/// What a walk along the whole chain found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The number of the last record that fits, 0 for none.
    pub last: u64,
    /// Its hash.
    pub hash: String,
    /// Whether a hash that was noted elsewhere is that of a record that fits.
    pub has_expected: bool,
    /// The first record that does not fit, and why.
    pub fault: Option<(u64, String)>,
}

impl Store {
    /// Walks the whole chain up to the first place where it breaks. `expect`
    /// is the hash of a record, as somebody noted it elsewhere.
    pub fn check_chain(&self, expect: Option<&str>) -> Result<Chain> {
        self.with_connection(|conn| {
            // One transaction, so that `head` is of the same moment.
            conn.execute_batch("BEGIN")?;
            let chain = walk(conn, expect);
            conn.execute_batch("COMMIT")?;
            chain
        })
    }
}

/// Reports the first place where the chain breaks, as a problem.
pub(crate) fn check_chain(conn: &Connection) -> Result<Option<Problem>> {
    let fault = walk(conn, None)?.fault;
    Ok(fault.map(|(seq, detail)| Problem::Chain { seq, detail }))
}

/// What follows a break cannot be judged.
fn walk(conn: &Connection, expect: Option<&str>) -> Result<Chain> {
    let mut statement = conn.prepare("SELECT seq, prev, hash, body FROM journal ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let hash = Record::GENESIS.to_owned();
    let mut chain = Chain { last: 0, hash, has_expected: false, fault: None };
    while let Some(row) = rows.next()? {
        let link = Link::read(row)?;
        if let Some(detail) = link.fault(chain.last, &chain.hash) {
            chain.fault = Some((link.seq, detail));
            return Ok(chain);
        }
        (chain.last, chain.hash) = (link.seq, link.hash);
        chain.has_expected |= expect == Some(chain.hash.as_str());
    }
    let (head_seq, head_hash) = head(conn)?;
    if head_seq != chain.last {
        let detail =
            format!("the journal ends at record {}, but {head_seq} were written", chain.last);
        chain.fault = Some((chain.last + 1, detail));
    } else if head_hash != chain.hash {
        let detail = "it is not the record that was written last".to_owned();
        chain.fault = Some((chain.last, detail));
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/format.md");

    /// Reads the lines `seq`, `prev`, `body` and `hash` of the format page.
    fn example() -> Vec<Link> {
        let column = |key: &str| -> Vec<String> {
            let lines = PAGE.lines().filter_map(|line| line.strip_prefix(key));
            lines.map(|rest| rest.trim().to_owned()).collect()
        };
        let numbers = column("seq  ").into_iter().map(|text| text.parse().expect("a number"));
        numbers
            .zip(column("prev "))
            .zip(column("body "))
            .zip(column("hash ").into_iter().filter(|text| text.len() == 64))
            .map(|(((seq, prev), body), hash)| Link { seq, prev, hash, body })
            .collect()
    }

    #[test]
    fn the_worked_example_of_the_format_page_is_true() {
        let links = example();
        assert_eq!(links.len(), 2);
        assert_eq!(links[0].fault(0, Record::GENESIS), None);
        assert_eq!(links[1].fault(1, &links[0].hash), None);
        for link in links {
            let body: RecordBody = serde_json::from_str(&link.body).expect("it reads");
            assert_eq!(serde_json::to_string(&body).expect("it writes"), link.body);
        }
    }

    #[test]
    fn the_format_page_names_every_column() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let conn = crate::schema::create(&home.path().join("db")).expect("it is new");
        let sql = "SELECT DISTINCT column.name FROM sqlite_schema AS item \
                   JOIN pragma_table_info(item.name) AS column WHERE item.type = 'table'";
        let names: Vec<String> =
            crate::read::many(&conn, sql, [], |row| row.get(0)).expect("SQLite knows its tables");
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            let named = PAGE.contains(&format!("`{name}`")) || PAGE.contains(&format!(".{name}`"));
            assert!(named, "docs/format.md does not name `{name}`");
        }
    }
}
