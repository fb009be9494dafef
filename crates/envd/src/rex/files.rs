//! Files: read and written as text, and uploaded one by one or packed.

use super::asked::{Read as ReadAsked, Write as WriteAsked};
use super::thrown::Refused;
use super::{Thrown, text};
use axum::extract::multipart::{Field, Multipart};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zip::ZipArchive;

/// What is read as one text.
const READ_BYTES_MAX: u64 = 64 << 20;
/// Files and directories of one archive.
const ENTRIES_MAX: usize = 200_000;
/// How long a client may send nothing before its upload is given up.
const IDLE: Duration = Duration::from_secs(120);
/// The name of a path in a form.
const PATH_BYTES_MAX: usize = 4096;

pub async fn read(asked: ReadAsked) -> Result<String, Thrown> {
    blocking(move || {
        let bytes = whole(&asked.path)?;
        let read = text::decode(&bytes, asked.encoding.as_deref(), asked.errors.as_deref())?;
        Ok(text::plain_lines(read))
    })
    .await
}

pub async fn write(asked: WriteAsked) -> Result<(), Thrown> {
    blocking(move || {
        let mut file = open_new(Path::new(&asked.path))?;
        let written = file.write_all(asked.content.as_bytes());
        written.map_err(|error| Thrown::system(&error, &asked.path))
    })
    .await
}

/// Reads and writes happen where nobody waits for them.
async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Thrown> + Send + 'static,
) -> Result<T, Thrown> {
    let broken = |_| Thrown::new("SwerexException", "work on a file broke off");
    tokio::task::spawn_blocking(job).await.map_err(broken)?
}

/// Never waits: a pipe that nobody writes into would be waited for for ever.
fn nonblocking() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default()
}

fn whole(path: &str) -> Result<Vec<u8>, Thrown> {
    let cannot = |error: io::Error| Thrown::system(&error, path);
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(nonblocking()).open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > READ_BYTES_MAX {
        let why = format!("`{path}` is longer than {READ_BYTES_MAX} bytes: read it in parts");
        return Err(Thrown::of("builtins.OSError", why));
    }
    Ok(bytes)
}

/// An empty file at a path, with the directories above it.
fn open_new(path: &Path) -> Result<File, Thrown> {
    let cannot = |error: io::Error| Thrown::system(&error, path.display());
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(nonblocking());
    options.open(path).map_err(cannot)
}

fn make_directories(path: &Path) -> Result<(), Thrown> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|error| Thrown::system(&error, path.display()))
}

/// A file, or a directory packed as a ZIP archive, at a path that may come after
/// it in the form.
pub async fn upload(form: Multipart) -> Response {
    match take(form).await {
        Ok(()) => axum::Json(json!({})).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn take(mut form: Multipart) -> Result<(), Refused> {
    let strange = |error: &dyn std::fmt::Display| {
        Refused::Invalid(format!("the form does not read: {error}"))
    };
    let (mut content, mut target, mut unzip) = (None, None, false);
    loop {
        let field = tokio::time::timeout(IDLE, form.next_field()).await;
        let field = field.map_err(|_| strange(&"nothing has come for a long time"))?;
        let Some(field) = field.map_err(|error| strange(&error))? else { break };
        match field.name() {
            Some("file") => content = Some(save(field).await?),
            Some("target_path") => target = Some(short(field).await?),
            Some("unzip") => {
                let said = short(field).await?.to_ascii_lowercase();
                unzip = matches!(said.as_str(), "true" | "1" | "on" | "yes" | "t" | "y");
            }
            _ => {}
        }
    }
    let (file, name) = content.ok_or_else(|| strange(&"there is no `file`"))?;
    let target = target.ok_or_else(|| strange(&"there is no `target_path`"))?;
    blocking(move || match unzip {
        true => unpack(file, Path::new(&target)),
        false => put(file, &name, PathBuf::from(target)),
    })
    .await
    .map_err(Refused::Thrown)
}

/// A field of the form that is text.
async fn short(mut field: Field<'_>) -> Result<String, Refused> {
    let mut bytes = Vec::new();
    while let Some(chunk) = next(&mut field).await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > PATH_BYTES_MAX {
            let name = field.name().unwrap_or_default().escape_debug().to_string();
            return Err(Refused::Invalid(format!("`{name}` is too long")));
        }
    }
    String::from_utf8(bytes).map_err(|_| Refused::Invalid("a path is no text".to_owned()))
}

async fn next(field: &mut Field<'_>) -> Result<Option<axum::body::Bytes>, Refused> {
    let cut = || Refused::Invalid("the content was cut on its way".to_owned());
    let chunk = tokio::time::timeout(IDLE, field.chunk()).await.map_err(|_| cut())?;
    chunk.map_err(|_| cut())
}

/// Content under no name until it is known where it belongs, and the name that
/// it had.
async fn save(mut field: Field<'_>) -> Result<(File, String), Refused> {
    let name = field.file_name().map(str::to_owned).unwrap_or_default();
    let cannot = |error: io::Error| Thrown::system(&error, "upload");
    let mut file = tempfile::tempfile().map_err(cannot)?;
    while let Some(chunk) = next(&mut field).await? {
        let job = move || file.write_all(&chunk).map(|()| file).map_err(cannot);
        file = blocking(job).await?;
    }
    file.rewind().map_err(cannot)?;
    Ok((file, name))
}

/// A file at its target, or in it where that is a directory.
fn put(mut content: File, name: &str, mut target: PathBuf) -> Result<(), Thrown> {
    if target.is_dir() {
        let name = Path::new(name).file_name();
        target.push(name.ok_or_else(|| {
            let error = io::Error::from_raw_os_error(rustix::io::Errno::ISDIR.raw_os_error());
            Thrown::system(&error, target.display())
        })?);
    }
    let mut file = open_new(&target)?;
    io::copy(&mut content, &mut file)
        .map(|_| ())
        .map_err(|error| Thrown::system(&error, target.display()))
}

/// All files of an archive below a directory, and none beside it.
fn unpack(archive: File, target: &Path) -> Result<(), Thrown> {
    let bad = |why: &dyn std::fmt::Display| {
        Thrown::of("zipfile.BadZipFile", format!("the archive does not read: {why}"))
    };
    let mut archive = ZipArchive::new(archive).map_err(|error| bad(&error))?;
    if archive.len() > ENTRIES_MAX {
        return Err(bad(&format!("it holds more than {ENTRIES_MAX} files")));
    }
    make_directories(target)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| bad(&error))?;
        let inside = entry.enclosed_name().ok_or_else(|| bad(&"a name in it leads out of it"))?;
        let path = target.join(inside);
        if entry.is_dir() {
            make_directories(&path)?;
            continue;
        }
        let mut file = open_new(&path)?;
        let cannot = |error: io::Error| Thrown::system(&error, path.display());
        io::copy(&mut entry, &mut file).map_err(cannot)?;
        // What could be run before can be run here.
        if entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0) {
            file.set_permissions(Permissions::from_mode(0o755)).map_err(cannot)?;
        }
    }
    Ok(())
}
