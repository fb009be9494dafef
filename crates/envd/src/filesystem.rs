//! Looking at entries, and making, moving and removing them.

use crate::connect::{Answer, Code, Failure, Unary};
use crate::users::User;
use crate::{Shared, entries};
use axum::Router;
use axum::extract::State as Here;
use axum::http::HeaderMap;
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

/// Entries of one listing, so that an answer ends somewhere.
const ENTRIES_MAX: usize = 100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    path: String,
    depth: u32,
    source: String,
    destination: String,
}

pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", post(stat))
        .route("/filesystem.Filesystem/ListDir", post(list))
        .route("/filesystem.Filesystem/MakeDir", post(make))
        .route("/filesystem.Filesystem/Move", post(move_entry))
        .route("/filesystem.Filesystem/Remove", post(remove))
}

async fn stat(Here(state): Here<Shared>, headers: HeaderMap, Unary(asked): Unary<Asked>) -> Answer {
    let path = state.users.of_headers(&headers)?.path(&asked.path)?;
    Ok(axum::Json(json!({ "entry": entries::told(&path, &state.users)? })))
}

async fn list(Here(state): Here<Shared>, headers: HeaderMap, Unary(asked): Unary<Asked>) -> Answer {
    let path = state.users.of_headers(&headers)?.path(&asked.path)?;
    let listing = tokio::task::spawn_blocking(move || {
        // Through a link, as `ls` would.
        let root = fs::canonicalize(&path)
            .map_err(|error| Failure::of(&error, format!("cannot list {}", path.display())))?;
        if !root.is_dir() {
            return Err(Failure::invalid(format!("path is not a directory: {}", path.display())));
        }
        let mut found = Vec::new();
        walk(&state, &root, &path, asked.depth.max(1), &mut found)?;
        Ok(json!({ "entries": found }))
    });
    let listing =
        listing.await.map_err(|_| Failure::new(Code::Internal, "the listing broke off"))?;
    Ok(axum::Json(listing?))
}

/// Names as they were asked for, files where they really are.
fn walk(
    state: &Shared,
    real: &Path,
    shown: &Path,
    depth: u32,
    found: &mut Vec<Value>,
) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::of(&error, format!("cannot list {}", shown.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(real).map_err(cannot)? {
        names.push(entry.map_err(cannot)?.file_name());
    }
    names.sort();
    for name in names {
        if found.len() >= ENTRIES_MAX {
            let why = format!("there are more than {ENTRIES_MAX} entries: list less of them");
            return Err(Failure::new(Code::Exhausted, why));
        }
        let (real, shown) = (real.join(&name), shown.join(&name));
        // What is gone meanwhile was not there.
        let Ok(mut entry) = entries::told(&real, &state.users) else { continue };
        entry["path"] = json!(shown.to_string_lossy());
        found.push(entry);
        let is_directory = fs::symlink_metadata(&real).is_ok_and(|found| found.is_dir());
        if depth > 1 && is_directory {
            walk(state, &real, &shown, depth - 1, found)?;
        }
    }
    Ok(())
}

async fn make(Here(state): Here<Shared>, headers: HeaderMap, Unary(asked): Unary<Asked>) -> Answer {
    let user = state.users.of_headers(&headers)?;
    let path = user.path(&asked.path)?;
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => {
            let why = format!("directory already exists: {}", path.display());
            return Err(Failure::new(Code::Exists, why));
        }
        Ok(_) => {
            let why = format!("path already exists but it is not a directory: {}", path.display());
            return Err(Failure::invalid(why));
        }
        Err(_) => {}
    }
    make_directories(&path, &user)
        .map_err(|error| Failure::of(&error, format!("cannot make {}", path.display())))?;
    Ok(axum::Json(json!({ "entry": entries::told(&path, &state.users)? })))
}

async fn move_entry(
    Here(state): Here<Shared>,
    headers: HeaderMap,
    Unary(asked): Unary<Asked>,
) -> Answer {
    let user = state.users.of_headers(&headers)?;
    let (from, to) = (user.path(&asked.source)?, user.path(&asked.destination)?);
    let failed = |error: io::Error| {
        Failure::of(&error, format!("cannot move {} to {}", from.display(), to.display()))
    };
    fs::symlink_metadata(&from).map_err(failed)?;
    if let Some(parent) = to.parent() {
        make_directories(parent, &user).map_err(failed)?;
    }
    fs::rename(&from, &to).map_err(failed)?;
    Ok(axum::Json(json!({ "entry": entries::told(&to, &state.users)? })))
}

async fn remove(
    Here(state): Here<Shared>,
    headers: HeaderMap,
    Unary(asked): Unary<Asked>,
) -> Answer {
    let path = state.users.of_headers(&headers)?.path(&asked.path)?;
    let shown = path.display().to_string();
    let removing = tokio::task::spawn_blocking(move || match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
        Ok(_) => fs::remove_file(&path),
        Err(error) => Err(error),
    });
    match removing.await {
        Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::of(&error, format!("cannot remove {shown}")))
        }
        // What is not there need not go.
        Ok(_) => Ok(axum::Json(json!({}))),
        Err(_) => Err(Failure::new(Code::Internal, "removing broke off")),
    }
}

/// A directory with all above it; what is new belongs to the user.
pub fn make_directories(path: &Path, user: &User) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent, user)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => chown(path, Some(user.uid), Some(user.gid)),
    }
}
