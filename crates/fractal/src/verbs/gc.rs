//! `gc`: sandboxes that were forgotten, and layers nobody stands on.

use crate::{Caller, Engine};
use fractal_model::{GcReply, Result};
use fractal_store::{Reads, SandboxRow, now_ms};

pub fn gc(engine: &Engine, caller: &Caller, dry_run: bool) -> Result<GcReply> {
    let expired = expired(engine)?;
    let mut reply = GcReply {
        expired: expired.iter().map(|row| row.name.clone()).collect(),
        ..GcReply::default()
    };
    for row in &expired {
        reply.bytes += engine.store.own_size(row)?;
        if !dry_run {
            super::drop::drop_row(engine, caller, row)?;
        }
    }
    let report = engine.store.gc(dry_run)?;
    reply.layers = report.layers;
    reply.bytes += report.bytes;
    Ok(reply)
}

/// Past their time and with nothing running in them.
fn expired(engine: &Engine) -> Result<Vec<SandboxRow>> {
    let now = now_ms();
    let mut list = Vec::new();
    for row in engine.store.sandboxes()? {
        let over = row.ttl_ms.is_some_and(|ttl| row.touched_ms.saturating_add(ttl) < now);
        if over && !engine.is_running(row.id)? {
            list.push(row);
        }
    }
    Ok(list)
}

/// Drops what has expired, on the way of other verbs. What fails now is tried
/// again next time.
pub fn expire(engine: &Engine, caller: &Caller) {
    for row in expired(engine).unwrap_or_default() {
        let _ = super::drop::drop_row(engine, caller, &row);
    }
}
