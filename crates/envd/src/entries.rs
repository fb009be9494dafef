//! Files, directories and links as clients see them.

use crate::connect::Failure;
use crate::users::Users;
use rustix::fs::XattrFlags;
use serde_json::{Map, Value, json};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Where metadata of clients lies among a file's attributes.
const ATTRIBUTES: &str = "user.e2b.";
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// Everything about the entry at a path.
pub fn told(path: &Path, users: &Users) -> Result<Value, Failure> {
    let found = fs::symlink_metadata(path).map_err(|error| match error.kind() {
        // Below a file there is nothing.
        io::ErrorKind::NotADirectory => {
            Failure::not_found(format!("{} does not exist", path.display()))
        }
        _ => Failure::of(&error, format!("cannot stat {}", path.display())),
    })?;
    let name = path.file_name().map_or("/".into(), |name| name.to_string_lossy());
    // A link is told by what it leads to, where that exists.
    let target = found.is_symlink().then(|| fs::metadata(path).ok()).flatten();
    let shown = target.as_ref().unwrap_or(&found);
    let (owner, group) = users.names(found.uid(), found.gid());
    let mut entry = json!({
        "name": name,
        "path": path.to_string_lossy(),
        "type": kind(shown),
        "size": found.size().to_string(),
        "mode": found.mode() & 0o777,
        "permissions": permissions(&found),
        "owner": owner,
        "group": group,
        "modifiedTime": time(found.mtime(), found.mtime_nsec()),
    });
    if found.is_symlink() {
        entry["isSymlink"] = json!(true);
        let leads = fs::canonicalize(path).or_else(|_| fs::read_link(path));
        entry["symlinkTarget"] = json!(leads.unwrap_or_default().to_string_lossy());
    }
    let metadata = metadata(path);
    if !metadata.is_empty() {
        entry["metadata"] = Value::Object(metadata);
    }
    Ok(entry)
}

fn kind(found: &Metadata) -> &'static str {
    if found.is_dir() {
        "FILE_TYPE_DIRECTORY"
    } else if found.is_file() {
        "FILE_TYPE_FILE"
    } else if found.is_symlink() {
        "FILE_TYPE_SYMLINK"
    } else {
        "FILE_TYPE_UNSPECIFIED"
    }
}

/// `-rw-r--r--`, `drwxr-xr-x`, `Lrwxrwxrwx`.
fn permissions(found: &Metadata) -> String {
    let kind = found.file_type();
    let first = if kind.is_dir() {
        'd'
    } else if kind.is_symlink() {
        'L'
    } else if kind.is_fifo() {
        'p'
    } else if kind.is_socket() {
        'S'
    } else if kind.is_char_device() || kind.is_block_device() {
        'D'
    } else {
        '-'
    };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    let letters = bits.map(|(bit, letter)| if found.mode() >> bit & 1 == 1 { letter } else { '-' });
    std::iter::once(first).chain(letters).collect()
}

/// What clients wrote beside a file.
pub fn metadata(path: &Path) -> Map<String, Value> {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names[..]) else { return Map::new() };
    names.truncate(length);
    let mut found = Map::new();
    for name in names.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok()) {
        let Some(key) = name.strip_prefix(ATTRIBUTES) else { continue };
        let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
        if let Ok(length) = rustix::fs::lgetxattr(path, name, &mut value[..]) {
            value.truncate(length);
            found.insert(key.to_owned(), json!(String::from_utf8_lossy(&value)));
        }
    }
    found
}

/// Puts these in the place of all that was there.
pub fn set_metadata(path: &Path, metadata: &Map<String, Value>) -> io::Result<()> {
    for key in self::metadata(path).keys().filter(|key| !metadata.contains_key(*key)) {
        rustix::fs::lremovexattr(path, format!("{ATTRIBUTES}{key}"))?;
    }
    for (key, value) in metadata {
        let value = value.as_str().unwrap_or_default();
        let name = format!("{ATTRIBUTES}{key}");
        rustix::fs::lsetxattr(path, name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// A moment as RFC 3339 has it.
pub fn time(seconds: i64, nanoseconds: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let rest = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// The day of the calendar so many days after 1970 began.
fn date(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years that begin in March, so that leap days come last.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, nanoseconds, expect) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, 5, "2000-02-29T00:00:00.000000005Z"),
            (1_794_960_000, 0, "2026-11-18T00:00:00.000000000Z"),
            (-1, 0, "1969-12-31T23:59:59.000000000Z"),
        ] {
            assert_eq!(time(seconds, nanoseconds), expect);
        }
    }

    #[test]
    fn permissions_are_nine_letters_after_a_kind() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("f");
        fs::write(&file, "").expect("it is written");
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
        let told = |path: &Path| permissions(&fs::symlink_metadata(path).expect("it is there"));
        assert_eq!(told(&file), "-rw-r-----");
        assert!(told(dir.path()).starts_with("drwx"));
    }
}
