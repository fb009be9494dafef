//! Which files speak: the nearest of the project, and the user's own.
//!
//! Something of that name that is no file ends the search with an error, and
//! not with the next one above: its gates would be another project's.
//! A file in a directory above belongs to the project only if it is ours,
//! root's or of who owns the project: in `/tmp` anybody may put one, and its
//! publish commands would run as us.

use super::{Config, FILE_NAME, Source};
use fractal_model::{Error, Result};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

impl Config {
    /// Reads the project's file, searched from `directory` upwards, and the
    /// user's file. Files that do not exist are fine.
    pub fn load(directory: &Path, user_file: Option<&Path>) -> Result<Config> {
        match Config::load_sound(directory, user_file) {
            (config, None) => Ok(config),
            (_, Some(error)) => Err(error),
        }
    }

    /// The same without the files that cannot be read, and the first reason:
    /// for those who act on no setting.
    pub fn load_sound(directory: &Path, user_file: Option<&Path>) -> (Config, Option<Error>) {
        // A link that leads nowhere was meant to say something, too.
        let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
        let own = directory.join(FILE_NAME);
        let above = directory.ancestors().skip(1).map(|dir| dir.join(FILE_NAME));
        let above = above.filter(|path| is_ours(path, directory));
        let project = std::iter::once(own).chain(above).find(exists);
        let user = user_file.map(Path::to_path_buf).filter(exists);
        let (mut sources, mut first) = (Vec::new(), None);
        for path in project.into_iter().chain(user) {
            match Source::load(path) {
                Ok(source) => sources.push(source),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let user = user_file.map(Path::to_path_buf);
        (Config { sources, user, directory: directory.to_path_buf() }, first)
    }
}

/// Whether a file above the project was put there by somebody who has a say
/// in it. A link counts as well as what it leads to.
pub(crate) fn is_ours(path: &Path, directory: &Path) -> bool {
    let project = directory.metadata().map(|meta| meta.uid());
    let me = rustix::process::geteuid().as_raw();
    let trusted = |uid: u32| uid == me || uid == 0 || project.as_ref().is_ok_and(|own| *own == uid);
    let link = path.symlink_metadata().map(|meta| meta.uid());
    let file = path.metadata().map(|meta| meta.uid());
    link.is_ok_and(trusted) && file.map_or(true, trusted)
}

/// Reads a file, and never waits for a fifo.
pub(crate) fn read_regular(path: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TTL_MS;

    #[test]
    fn what_somebody_else_put_above_the_project_says_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (above, project) = (dir.path().join(FILE_NAME), dir.path().join("project"));
        std::fs::create_dir(&project).expect("it is new");
        std::fs::write(&above, "template = \"above\"\n").expect("it is written");
        let said = || Config::load(&project, None).expect("it is sound").default_template();
        assert_eq!(said(), "above");
        let chown = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None);
        if chown(&above, 12345).is_err() {
            eprintln!("skipped: only root can give files away");
            return;
        }
        assert_eq!(said(), "clone", "of a stranger");
        chown(&project, 12345).expect("we are root");
        assert_eq!(said(), "above", "of who owns the project");
        chown(&project, 0).expect("we are root");
        std::fs::write(project.join(FILE_NAME), "template = \"own\"\n").expect("it is written");
        chown(&project.join(FILE_NAME), 12345).expect("we are root");
        assert_eq!(said(), "own", "what lies in the project is the project's");
    }

    #[test]
    fn the_nearest_file_speaks_and_what_is_none_is_an_error() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let inner = dir.path().join("a/b");
        std::fs::create_dir_all(&inner).expect("it is new");
        let write = |at: &str, text: &str| {
            std::fs::write(dir.path().join(at).join(FILE_NAME), text).expect("it is written")
        };
        write("", "template = \"outer\"\nttl = \"1h\"\n");
        write("a", "template = \"nearest\"\n");
        let config = Config::load(&inner, None).expect("both are sound");
        assert_eq!(config.default_template(), "nearest");
        assert_eq!(config.ttl_ms().expect("the default"), TTL_MS, "nothing comes from above it");
        let at = inner.join(FILE_NAME);
        let makes: [&dyn Fn(); 3] = [
            &|| std::fs::create_dir(&at).expect("it is new"),
            &|| {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &at, rustix::fs::FileType::Fifo, mode, 0)
                    .expect("a fifo")
            },
            &|| std::os::unix::fs::symlink("nowhere", &at).expect("a link"),
        ];
        for make in makes {
            make();
            let error = Config::load(&inner, None).expect_err("it is no file");
            assert!(error.message.contains("a/b/fractal.toml") && error.hint.is_some(), "{error}");
            let user = Config::load(dir.path(), Some(&at)).expect_err("neither here");
            assert_eq!(user.message, error.message);
            let removed = std::fs::remove_dir(&at).or_else(|_| std::fs::remove_file(&at));
            removed.expect("it is taken away");
        }
    }
}
