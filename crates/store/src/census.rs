//! How much there is, without reading all of it.

use crate::read::many;
use crate::{LayerRow, Reads, Result, Store};

/// Counts over the whole state directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sandboxes that exist.
    pub sandboxes: u64,
    /// Those in which something runs.
    pub running: u64,
    /// Runs that have begun and not ended.
    pub runs: u64,
    /// Volumes.
    pub volumes: u64,
    /// Bytes in sealed layers, as far as they were measured.
    pub layer_bytes: u64,
    /// The number of the latest record.
    pub records: u64,
}

impl Store {
    /// Counts everything.
    pub fn census(&self) -> Result<Census> {
        let sql = "SELECT (SELECT count(*) FROM sandbox), \
                   (SELECT count(DISTINCT sandbox) FROM run), (SELECT count(*) FROM run), \
                   (SELECT count(*) FROM volume), \
                   (SELECT coalesce(sum(size_bytes), 0) FROM layer), (SELECT seq FROM head)";
        self.ask(|conn| {
            let mut question = conn.prepare_cached(sql)?;
            Ok(question.query_row([], |row| {
                Ok(Census {
                    sandboxes: row.get(0)?,
                    running: row.get(1)?,
                    runs: row.get(2)?,
                    volumes: row.get(3)?,
                    layer_bytes: row.get(4)?,
                    records: row.get(5)?,
                })
            })?)
        })
    }

    /// How many sandboxes there are, if they are `most` or more. Rows are
    /// numbered upwards, so the highest number bounds their count: it is found
    /// at once, and only beyond the bound is anything counted.
    pub fn sandboxes_beyond(&self, most: u64) -> Result<Option<u64>> {
        let ask = |sql: &str| {
            self.ask(|conn| {
                let count: u64 = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
                Ok(count)
            })
        };
        if ask("SELECT coalesce(max(rowid), 0) FROM sandbox")? < most {
            return Ok(None);
        }
        Ok(Some(ask("SELECT count(*) FROM sandbox")?).filter(|count| *count >= most))
    }

    /// Bytes in all layers: of sealed ones as noted, of those that are written
    /// to as they are now. Walks through the latter, so it takes its time; what
    /// goes away meanwhile takes nothing.
    pub fn measure_layers(&self) -> Result<u64> {
        let open = format!(
            "SELECT {} FROM layer WHERE sealed = 0 OR size_bytes = 0 ORDER BY id",
            LayerRow::COLUMNS
        );
        let noted = "SELECT coalesce(sum(size_bytes), 0) FROM layer WHERE sealed = 1";
        let (noted, rows): (u64, Vec<LayerRow>) = self.ask(|conn| {
            let noted = conn.prepare_cached(noted)?.query_row([], |row| row.get(0))?;
            Ok((noted, many(conn, &open, [], LayerRow::read)?))
        })?;
        let sizes = rows.iter().map(|row| self.known_size(row).unwrap_or(0));
        Ok(sizes.fold(noted, u64::saturating_add))
    }
}
