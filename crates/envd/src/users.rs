//! Users of the sandbox, as its own files name them.
//!
//! Clients expect a user called `user` with a home of its own; where we are
//! root of the sandbox and it is missing, it is made. Where we are not (an
//! ordinary user's sandbox has no other ids), every name stands for ourselves.

use crate::connect::{Code, Failure};
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Who works where nobody is named.
pub const DEFAULT: &str = "user";

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// One user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

/// How users are found here.
#[derive(Debug)]
pub struct Users {
    /// Who we are, where we cannot become anybody else.
    only: Option<User>,
}

impl Users {
    /// Looks who we are, and makes the usual user where that is possible.
    pub fn prepare() -> Users {
        let uid = rustix::process::geteuid().as_raw();
        if uid == 0 {
            // Without it requests that name nobody are told so.
            let _ = make_default(Path::new(PASSWD), Path::new(GROUP));
            return Users { only: None };
        }
        let gid = rustix::process::getegid().as_raw();
        let home = std::env::var_os("HOME").filter(|home| Path::new(home).is_dir());
        let home = home.unwrap_or_else(|| OsString::from("/tmp")).into();
        let known = read(Path::new(PASSWD)).into_iter().find(|user| user.uid == uid);
        let name = known.map_or_else(|| DEFAULT.to_owned(), |user| user.name);
        Users { only: Some(User { name, uid, gid, home }) }
    }

    /// Whether processes can be started as other users.
    pub fn can_switch(&self) -> bool {
        self.only.is_none()
    }

    /// Who is meant; nobody in particular is the usual user.
    pub fn find(&self, name: Option<&str>) -> Result<User, Failure> {
        if let Some(only) = &self.only {
            return Ok(only.clone());
        }
        let name = name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT);
        let user = read(Path::new(PASSWD)).into_iter().find(|user| user.name == name);
        // Somebody must be able to put a broken list of users right.
        let root = || User { name: name.to_owned(), uid: 0, gid: 0, home: PathBuf::from("/root") };
        let user = user.or_else(|| (name == "root").then(root));
        let unknown = || {
            let name = name.escape_debug();
            Failure::new(Code::Unauthenticated, format!("there is no user '{name}' in the sandbox"))
        };
        user.ok_or_else(unknown)
    }

    /// Whom the headers of a call name.
    pub fn of_headers(&self, headers: &HeaderMap) -> Result<User, Failure> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let basic = value.and_then(|value| value.split_once(' '));
        let Some((kind, encoded)) = basic else { return self.find(None) };
        if !kind.eq_ignore_ascii_case("basic") {
            return self.find(None);
        }
        let decoded = STANDARD.decode(encoded.trim()).ok();
        let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let name = text.as_deref().and_then(|text| text.split_once(':')).map(|(name, _)| name);
        match name {
            Some(name) => self.find(Some(name)),
            None => Err(Failure::new(Code::Unauthenticated, "the name of the user does not read")),
        }
    }

    /// Names of an owner and a group, or their numbers.
    pub fn names(&self, uid: u32, gid: u32) -> (String, String) {
        let user = read(Path::new(PASSWD)).into_iter().find(|user| user.uid == uid);
        let group = lines(Path::new(GROUP)).into_iter().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            (fields.nth(1)?.parse() == Ok(gid)).then_some(name)
        });
        (
            user.map_or_else(|| uid.to_string(), |user| user.name),
            group.unwrap_or_else(|| gid.to_string()),
        )
    }
}

impl User {
    /// A path as this user means it: `~` and relative ones from their home.
    pub fn path(&self, path: &str) -> Result<PathBuf, Failure> {
        if path.contains('\0') {
            return Err(Failure::invalid("a path has no NUL in it"));
        }
        let path = match path.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => self.home.join(rest.trim_start_matches('/')),
            _ => self.home.join(path),
        };
        Ok(cleaned(&path))
    }
}

/// Without `.`, `..` and doubled slashes; what clients compare with.
fn cleaned(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(clean.pop()),
            Component::Normal(name) => clean.push(name),
            _ => {}
        }
    }
    clean
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

fn read(passwd: &Path) -> Vec<User> {
    lines(passwd).iter().filter_map(|line| user(line)).collect()
}

fn user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = PathBuf::from(fields.nth(1)?);
    Some(User { name, uid, gid, home })
}

/// What of a user's environment is missing in ours.
pub fn missing_variables() -> Vec<(&'static str, OsString)> {
    let uid = rustix::process::geteuid().as_raw();
    let Some(user) = read(Path::new(PASSWD)).into_iter().find(|user| user.uid == uid) else {
        return Vec::new();
    };
    let all = [
        ("HOME", user.home.into()),
        ("USER", user.name.clone().into()),
        ("LOGNAME", user.name.into()),
    ];
    all.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()).collect()
}

/// Adds the usual user with a group of the same name, and gives it a home.
fn make_default(passwd: &Path, group: &Path) -> std::io::Result<()> {
    const FIRST: u32 = 1000;
    let known = read(passwd);
    let user = match known.iter().find(|user| user.name == DEFAULT) {
        Some(user) => user.clone(),
        None => {
            let groups: Vec<u32> = lines(group)
                .iter()
                .filter_map(|line| line.split(':').nth(2)?.parse().ok())
                .collect();
            let is_free =
                |id: &u32| !groups.contains(id) && known.iter().all(|user| user.uid != *id);
            let id = (FIRST..60_000).find(is_free).unwrap_or(FIRST);
            let home = PathBuf::from("/home").join(DEFAULT);
            append(group, &format!("{DEFAULT}:x:{id}:"))?;
            append(passwd, &format!("{DEFAULT}:x:{id}:{id}::{}:/bin/bash", home.display()))?;
            User { name: DEFAULT.to_owned(), uid: id, gid: id, home }
        }
    };
    if !user.home.exists() {
        fs::create_dir_all(&user.home)?;
        fs::set_permissions(&user.home, fs::Permissions::from_mode(0o755))?;
        chown(&user.home, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

/// A line more, also where the last one does not end.
fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let needs_end = fs::read(file)?.last().is_some_and(|byte| *byte != b'\n');
    let start = if needs_end { "\n" } else { "" };
    fs::OpenOptions::new().append(true).open(file)?.write_all(format!("{start}{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody() -> User {
        User { name: "a".to_owned(), uid: 1, gid: 1, home: PathBuf::from("/home/a") }
    }

    #[test]
    fn paths_are_meant_from_home() {
        for (path, expect) in [
            ("x", "/home/a/x"),
            ("~", "/home/a"),
            ("~/x", "/home/a/x"),
            ("/etc//./hosts", "/etc/hosts"),
            ("../../..", "/"),
            ("~b/x", "/home/a/~b/x"),
            ("", "/home/a"),
        ] {
            assert_eq!(somebody().path(path).expect("a path"), Path::new(expect), "{path}");
        }
        assert!(somebody().path("a\0b").is_err());
    }

    #[test]
    fn the_usual_user_gets_free_numbers_and_is_made_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
        let home = dir.path().join("home");
        let line = format!("root:x:0:0::/root:/bin/sh\nuser:x:77:78::{}:/bin/sh", home.display());
        fs::write(&passwd, line).expect("it is written");
        fs::write(&group, "taken:x:1000:\n").expect("it is written");
        let before = fs::read(&passwd).expect("it is there");
        // As somebody else the home cannot be given away, and that is all.
        let _ = make_default(&passwd, &group);
        assert_eq!(fs::read(&passwd).expect("it is there"), before);
        assert!(home.is_dir());
        append(&passwd, "b:x:1:2::/b:/bin/sh").expect("it is written");
        let names: Vec<String> = read(&passwd).into_iter().map(|user| user.name).collect();
        assert_eq!(names, ["root", "user", "b"]);
    }
}
