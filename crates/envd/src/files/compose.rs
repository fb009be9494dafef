//! One file made of several that are there: how large ones come up in parts.

use super::{Refused, open, written};
use crate::connect::{Code, Failure};
use crate::filesystem::make_directories;
use crate::users::User;
use crate::{Shared, entries};
use axum::Json;
use axum::extract::State as Here;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const SOURCES_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
pub struct Asked {
    destination: String,
    source_paths: Vec<String>,
    username: Option<String>,
}

pub async fn compose(
    Here(state): Here<Shared>,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Result<Response, Refused> {
    let unreadable = |error: JsonRejection| Failure::invalid(error.body_text());
    let Json(asked) = asked.map_err(unreadable)?;
    let user = state.users.find(asked.username.as_deref())?;
    if asked.source_paths.is_empty() || asked.source_paths.len() > SOURCES_MAX {
        let count = asked.source_paths.len();
        let message = format!("a file is made of 1 to {SOURCES_MAX} others, not of {count}");
        return Err(Failure::invalid(message).into());
    }
    let destination = user.path(&asked.destination)?;
    let sources = asked.source_paths.iter().map(|path| user.path(path));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let _turn = state.uploads.acquire().await;
    let work = tokio::task::spawn_blocking(move || join(&destination, &sources, &user));
    let told = work.await.map_err(|_| Failure::new(Code::Internal, "composing broke off"))??;
    Ok(Json(told).into_response())
}

/// Whatever fails, the destination and all parts are as they were.
fn join(
    destination: &Path,
    sources: &[PathBuf],
    user: &User,
) -> Result<serde_json::Value, Failure> {
    let shown = destination.display();
    let failed = |error: io::Error| Failure::of(&error, format!("cannot write {shown}"));
    let before = std::fs::metadata(destination).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return Err(Failure::invalid(format!("path is not a regular file: {shown}")));
    }
    let (Some(parent), Some(name)) = (destination.parent(), destination.file_name()) else {
        return Err(Failure::invalid(format!("path is a directory: {shown}")));
    };
    // All of them are there before a byte is copied.
    sources.iter().try_for_each(|source| open(source).map(|_| ()))?;
    make_directories(parent, user).map_err(failed)?;
    let mut draft = Draft::beside(parent).map_err(failed)?;
    for source in sources {
        let (mut part, _) = open(source)?;
        io::copy(&mut part, &mut draft.file).map_err(failed)?;
    }
    let (mode, uid, gid) = match &before {
        Some(before) => (before.mode() & 0o7777, before.uid(), before.gid()),
        None => (0o644, user.uid, user.gid),
    };
    fchown(&draft.file, Some(uid), Some(gid)).map_err(failed)?;
    draft.file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
    if before.is_some() {
        entries::set_metadata(&draft.path, &entries::metadata(destination)).map_err(failed)?;
    }
    // Through a link, as whoever writes to one would.
    let place = std::fs::canonicalize(destination).unwrap_or_else(|_| parent.join(name));
    draft.becomes(&place).map_err(failed)?;
    for source in sources.iter().filter(|source| !is_same(source, &place)) {
        match std::fs::remove_file(source) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::of(&error, format!("cannot remove {}", source.display())));
            }
            _ => {}
        }
    }
    Ok(written(destination))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
}

/// A file on its way to be another one; gone if it does not get there.
struct Draft {
    file: File,
    path: PathBuf,
    is_done: bool,
}

impl Draft {
    fn beside(parent: &Path) -> io::Result<Draft> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!(".composing-{}-{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Draft { file, path, is_done: false })
    }

    fn becomes(&mut self, place: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, place)?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
