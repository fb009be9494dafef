//! Following: one process at a time brings a server in step.
//!
//! The mark that a server has and the one that is noted here must be of the
//! same epoch, and the lesser of the two counts. Anything else means that one
//! of them is not the one that the other knew, and everything is sent again.

use super::{Batch, Follower, Mark, feed};
use crate::catalog::Catalog;
use crate::{IndexError, Progress, Result};
use rusqlite::{OptionalExtension, params};
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::time::{Duration, Instant};

/// How much is sent at a time, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Changes that are sent together.
    pub batch: usize,
    /// After this no further batch is begun.
    pub budget: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { batch: 1000, budget: Duration::MAX }
    }
}

/// What following did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Records that were sent.
    pub sent: u64,
    /// Records that were removed.
    pub removed: u64,
    /// Changes that are not there yet.
    pub lag: u64,
    /// Set when everything was sent again, or for the first time.
    pub afresh: bool,
}

pub(super) fn follow(
    catalog: &Catalog,
    server: &dyn Follower,
    pace: Pace,
    progress: Progress<'_>,
) -> Result<Followed> {
    let started = Instant::now();
    let mut followed = Followed { lag: lag(catalog, server)?, ..Followed::default() };
    let Some(_alone) = alone(catalog, server)? else { return Ok(followed) };
    let mut mark = match resume(catalog, server)? {
        Some(mark) => mark,
        None => {
            followed.afresh = true;
            afresh(catalog, server)?
        }
    };
    let total = feed::count(catalog, server.wants(), mark.rev)?;
    loop {
        progress((followed.sent + followed.removed).min(total), total);
        let batch = feed::next(catalog, server.wants(), mark.rev, pace.batch.max(1))?;
        if batch.upto == mark.rev {
            break;
        }
        mark.rev = batch.upto;
        server.take(&batch, &mark)?;
        note(catalog, server, &mark)?;
        followed.sent += batch.records.len() as u64;
        followed.removed += batch.gone.len() as u64;
        if started.elapsed() >= pace.budget {
            break;
        }
    }
    followed.lag = feed::count(catalog, server.wants(), mark.rev)?;
    Ok(followed)
}

pub(super) fn lag(catalog: &Catalog, server: &dyn Follower) -> Result<u64> {
    let after = noted(catalog, server)?.map_or(0, |mark| mark.rev);
    feed::count(catalog, server.wants(), after)
}

pub(super) fn unfollow(catalog: &Catalog, server: &dyn Follower) -> Result<()> {
    // First here: what is forgotten here is sent anew, whatever is left there.
    catalog.write(|conn| conn.execute("DELETE FROM stores WHERE name = ?", [server.name()]))?;
    server.clear()
}

/// From where to go on; none where everything is to be sent again.
fn resume(catalog: &Catalog, server: &dyn Follower) -> Result<Option<Mark>> {
    let Some(here) = noted(catalog, server)? else { return Ok(None) };
    let Some(there) = server.mark()? else { return Ok(None) };
    let rev = here.rev.min(there.rev);
    Ok((here.epoch == there.epoch).then_some(Mark { epoch: here.epoch, rev }))
}

fn afresh(catalog: &Catalog, server: &dyn Follower) -> Result<Mark> {
    let mark = Mark { epoch: epoch(catalog)?, rev: 0 };
    server.begin()?;
    server.clear()?;
    server.take(&Batch::default(), &mark)?;
    note(catalog, server, &mark)?;
    Ok(mark)
}

/// A name that nobody else has.
fn epoch(catalog: &Catalog) -> Result<String> {
    catalog.ask(|conn| conn.query_row("SELECT LOWER(HEX(RANDOMBLOB(16)))", [], |row| row.get(0)))
}

fn noted(catalog: &Catalog, server: &dyn Follower) -> Result<Option<Mark>> {
    catalog.ask(|conn| {
        let mut row = conn.prepare_cached("SELECT epoch, rev FROM stores WHERE name = ?")?;
        row.query_row([server.name()], |row| Ok(Mark { epoch: row.get(0)?, rev: row.get(1)? }))
            .optional()
    })
}

fn note(catalog: &Catalog, server: &dyn Follower, mark: &Mark) -> Result<()> {
    catalog.write(|conn| {
        conn.prepare_cached("INSERT OR REPLACE INTO stores (name, rev, epoch) VALUES (?, ?, ?)")?
            .execute(params![server.name(), mark.rev, mark.epoch])
    })?;
    Ok(())
}

/// Two that send at once could leave what the slower one read earlier. None if
/// somebody else is at it.
fn alone(catalog: &Catalog, server: &dyn Follower) -> Result<Option<File>> {
    let digest = Sha256::digest(server.name().as_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let path = catalog.dir().join(format!("follow-{name}.lock"));
    let file = File::create(&path).map_err(|error| IndexError::io("make", &path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(IndexError::io("lock", &path, error)),
    }
}
