//! Watching directories: as a stream, or asked for what has happened since.

use crate::Shared;
use crate::connect::{Answer, Asked, Code, Failure, Unary, ping_interval, stream, time_limit};
use crate::entries;
use axum::Router;
use axum::extract::State as Here;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Directories below one that is watched as a whole.
const DIRECTORIES_MAX: usize = 20_000;
/// What is kept for somebody who does not ask.
const EVENTS_MAX: usize = 16_384;
/// Watchers that are asked.
const WATCHERS_MAX: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wanted {
    path: String,
    recursive: bool,
    include_entry: bool,
    watcher_id: String,
}

/// Those that are asked, by their names.
#[derive(Default)]
pub struct Watchers {
    all: Mutex<BTreeMap<String, Kept>>,
    next: AtomicU64,
}

/// One that is asked. Dropping it ends the watching.
struct Kept {
    events: Arc<Mutex<VecDeque<Value>>>,
    _until: tokio::sync::oneshot::Sender<()>,
}

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/filesystem.Filesystem/WatchDir", post(watch))
        .route("/filesystem.Filesystem/CreateWatcher", post(create))
        .route("/filesystem.Filesystem/GetWatcherEvents", post(events))
        .route("/filesystem.Filesystem/RemoveWatcher", post(remove))
}

async fn watch(
    Here(state): Here<Shared>,
    headers: HeaderMap,
    Asked(wanted): Asked<Wanted>,
) -> Response {
    let begun = state.users.of_headers(&headers).and_then(|user| {
        let root = user.path(&wanted.path)?;
        Watch::begin(&root, wanted.recursive)
    });
    let mut told = match begun {
        Ok(watch) => watch.follow(state, wanted.include_entry),
        Err(failure) => return crate::connect::stream_that_failed(&failure),
    };
    let (send, messages) = mpsc::channel(64);
    let limit = time_limit(&headers);
    tokio::spawn(async move {
        let telling = async {
            let _ = send.send(Ok(json!({ "start": {} }))).await;
            loop {
                let found = tokio::select! {
                    found = told.recv() => found,
                    () = send.closed() => return,
                };
                let Some(found) = found else { return };
                for event in found {
                    if send.send(Ok(json!({ "filesystem": event }))).await.is_err() {
                        return;
                    }
                }
            }
        };
        let late = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = telling => {}
            () = late => {
                let failure = Failure::new(Code::Deadline, "the time of the watch is over");
                let _ = send.send(Err(failure)).await;
            }
        }
    });
    stream(messages, Some((ping_interval(&headers), json!({ "keepalive": {} }))))
}

async fn create(
    Here(state): Here<Shared>,
    headers: HeaderMap,
    Unary(wanted): Unary<Wanted>,
) -> Answer {
    let root = state.users.of_headers(&headers)?.path(&wanted.path)?;
    let watch = Watch::begin(&root, wanted.recursive)?;
    let events = Arc::<Mutex<VecDeque<Value>>>::default();
    let (until, mut ended) = tokio::sync::oneshot::channel::<()>();
    let id = state.watchers.next.fetch_add(1, Ordering::Relaxed).to_string();
    {
        let mut all = state.watchers.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= WATCHERS_MAX {
            return Err(Failure::new(Code::Exhausted, "there are too many watchers already"));
        }
        all.insert(id.clone(), Kept { events: events.clone(), _until: until });
    }
    let mut told = watch.follow(state, wanted.include_entry);
    tokio::spawn(async move {
        loop {
            let found = tokio::select! {
                found = told.recv() => found,
                _ = &mut ended => return,
            };
            let Some(found) = found else { return };
            let mut kept = events.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(found);
            let over = kept.len().saturating_sub(EVENTS_MAX);
            kept.drain(..over);
        }
    });
    Ok(axum::Json(json!({ "watcherId": id })))
}

async fn events(Here(state): Here<Shared>, Unary(wanted): Unary<Wanted>) -> Answer {
    let all = state.watchers.all.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = all.get(&wanted.watcher_id).ok_or_else(|| unknown(&wanted.watcher_id))?;
    let events: Vec<Value> =
        kept.events.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
    Ok(axum::Json(json!({ "events": events })))
}

async fn remove(Here(state): Here<Shared>, Unary(wanted): Unary<Wanted>) -> Answer {
    let mut all = state.watchers.all.lock().unwrap_or_else(PoisonError::into_inner);
    all.remove(&wanted.watcher_id).ok_or_else(|| unknown(&wanted.watcher_id))?;
    Ok(axum::Json(json!({})))
}

fn unknown(id: &str) -> Failure {
    Failure::not_found(format!("watcher with id {} not found", id.escape_debug()))
}

/// A directory under observation, perhaps with all below it.
struct Watch {
    queue: OwnedFd,
    /// Directories by the numbers that the kernel gave them, as paths from
    /// the root.
    directories: BTreeMap<i32, PathBuf>,
    root: PathBuf,
    recursive: bool,
}

impl Watch {
    fn begin(root: &Path, recursive: bool) -> Result<Watch, Failure> {
        let missing = |error: std::io::Error| {
            Failure::of(&error, format!("path {} cannot be watched", root.display()))
        };
        let real = fs::canonicalize(root).map_err(missing)?;
        if !real.is_dir() {
            let why = format!("path {} is not a directory", root.display());
            return Err(Failure::invalid(why));
        }
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let queue = queue.map_err(|error| missing(error.into()))?;
        let mut watch = Watch { queue, directories: BTreeMap::new(), root: real, recursive };
        watch.add(Path::new("")).map_err(missing)?;
        Ok(watch)
    }

    /// A directory more, and all below it.
    fn add(&mut self, below: &Path) -> std::io::Result<()> {
        const WANTED: WatchFlags = WatchFlags::CREATE
            .union(WatchFlags::MODIFY)
            .union(WatchFlags::DELETE)
            .union(WatchFlags::MOVED_FROM)
            .union(WatchFlags::MOVED_TO)
            .union(WatchFlags::ATTRIB)
            .union(WatchFlags::ONLYDIR)
            .union(WatchFlags::DONT_FOLLOW);
        if self.directories.len() >= DIRECTORIES_MAX {
            return Err(std::io::Error::other("there are too many directories to watch"));
        }
        let path = self.root.join(below);
        let number = inotify::add_watch(&self.queue, &path, WANTED)?;
        self.directories.insert(number, below.to_path_buf());
        if self.recursive {
            for entry in fs::read_dir(&path)?.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // What is gone meanwhile need not be watched.
                    let _ = self.add(&below.join(entry.file_name()));
                }
            }
        }
        Ok(())
    }

    /// Has a thread follow it, which may block, and gives what it tells. It
    /// ends when nobody listens any more.
    fn follow(mut self, state: Shared, with_entry: bool) -> mpsc::Receiver<Vec<Value>> {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let (send, told) = mpsc::channel(16);
        tokio::task::spawn_blocking(move || {
            while !send.is_closed() {
                let ready = poll(&mut [PollFd::new(&self.queue, PollFlags::IN)], Some(&LOOK));
                match ready {
                    Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                    Ok(_) => {}
                    Err(_) => return,
                }
                let Ok(raw) = read(&self.queue) else { return };
                let mut found = Vec::new();
                raw.iter().for_each(|event| self.understand(event, &state, with_entry, &mut found));
                if !found.is_empty() && send.blocking_send(found).is_err() {
                    return;
                }
            }
        });
        told
    }

    fn understand(&mut self, event: &Raw, state: &Shared, with_entry: bool, out: &mut Vec<Value>) {
        if event.what.contains(ReadFlags::IGNORED) {
            self.directories.remove(&event.watch);
            return;
        }
        let Some(directory) = self.directories.get(&event.watch) else { return };
        let Some(name) = &event.name else { return };
        let below = directory.join(name);
        let is_directory = event.what.contains(ReadFlags::ISDIR);
        let kind = if event.what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            "EVENT_TYPE_CREATE"
        } else if event.what.contains(ReadFlags::MODIFY) {
            "EVENT_TYPE_WRITE"
        } else if event.what.contains(ReadFlags::DELETE) {
            "EVENT_TYPE_REMOVE"
        } else if event.what.contains(ReadFlags::MOVED_FROM) {
            "EVENT_TYPE_RENAME"
        } else if event.what.contains(ReadFlags::ATTRIB) {
            "EVENT_TYPE_CHMOD"
        } else {
            return;
        };
        let mut told = json!({ "name": below.to_string_lossy(), "type": kind });
        if with_entry && let Ok(entry) = entries::told(&self.root.join(&below), &state.users) {
            told["entry"] = entry;
        }
        out.push(told);
        if is_directory && self.recursive && kind == "EVENT_TYPE_CREATE" {
            let _ = self.add(&below);
            // What came into it before it was watched.
            self.tell_content(&below, state, with_entry, out);
        }
    }

    fn tell_content(&self, below: &Path, state: &Shared, with_entry: bool, out: &mut Vec<Value>) {
        let Ok(entries) = fs::read_dir(self.root.join(below)) else { return };
        for entry in entries.flatten().take(EVENTS_MAX) {
            let below = below.join(entry.file_name());
            let mut told = json!({ "name": below.to_string_lossy(), "type": "EVENT_TYPE_CREATE" });
            if with_entry && let Ok(entry) = entries::told(&self.root.join(&below), &state.users) {
                told["entry"] = entry;
            }
            out.push(told);
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.tell_content(&below, state, with_entry, out);
            }
        }
    }
}

struct Raw {
    watch: i32,
    what: ReadFlags,
    name: Option<PathBuf>,
}

fn read(queue: &OwnedFd) -> std::io::Result<Vec<Raw>> {
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    let mut reader = inotify::Reader::new(queue, &mut buffer);
    let mut found = Vec::new();
    loop {
        let event = match reader.next() {
            Ok(event) => event,
            Err(rustix::io::Errno::WOULDBLOCK) if !found.is_empty() => return Ok(found),
            Err(error) => return Err(error.into()),
        };
        let name = event.file_name();
        let name = name.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())));
        found.push(Raw { watch: event.wd(), what: event.events(), name });
        if reader.is_buffer_empty() {
            return Ok(found);
        }
    }
}
