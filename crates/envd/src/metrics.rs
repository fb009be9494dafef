//! What the sandbox uses now, added up over its processes.

use crate::connect::{Answer, Code, Failure};
use crate::entries;
use serde_json::json;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Long enough to see work, short enough to wait for.
const LOOK: Duration = Duration::from_millis(100);
/// Ticks of the kernel's clock in a second, on every Linux there is.
const TICKS: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

pub async fn metrics() -> Answer {
    let before = ticks();
    tokio::time::sleep(LOOK).await;
    let spent = ticks().saturating_sub(before);
    let disk = rustix::fs::statvfs("/")
        .map_err(|error| Failure::of(&error.into(), "cannot measure the disk"))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_err(|_| Failure::new(Code::Internal, "the clock stands before 1970"))?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = |name: &str| {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    };
    Ok(axum::Json(json!({
        "timestamp": entries::time(seconds, i64::from(now.subsec_nanos())),
        "timestampUnix": seconds,
        "cpuCount": cores,
        "cpuUsedPct": spent as f64 / TICKS / LOOK.as_secs_f64() * 100.0,
        "memTotal": memory("MemTotal"),
        "memUsed": resident_bytes(),
        "memCache": 0,
        "diskTotal": disk.f_blocks * disk.f_frsize,
        "diskUsed": (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
    })))
}

/// Fields of every process's `stat` after its name, which may hold anything.
fn processes() -> impl Iterator<Item = Vec<String>> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|text| {
            let (_, fields) = text.rsplit_once(')')?;
            Some(fields.split_whitespace().map(str::to_owned).collect())
        })
}

fn sum(of: impl Fn(&[String]) -> Option<u64>) -> u64 {
    processes().filter_map(|fields| of(&fields)).sum()
}

fn ticks() -> u64 {
    const USER: usize = 11;
    let field = |fields: &[String], at: usize| fields.get(at)?.parse::<u64>().ok();
    sum(|fields| Some(field(fields, USER)? + field(fields, USER + 1)?))
}

fn resident_bytes() -> u64 {
    const RESIDENT: usize = 21;
    sum(|fields| fields.get(RESIDENT)?.parse::<u64>().ok()) * PAGE_BYTES
}
