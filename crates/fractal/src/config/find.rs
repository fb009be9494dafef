//! Which files speak: the nearest of the project, and the user's own.
//!
//! Something of that name that is no file ends the search with an error, and
//! not with the next one above: its gates would be another project's.

use super::{Config, FILE_NAME, Source};
use fractal_model::{Error, Result};
use std::io::Read;
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
        let project = directory.ancestors().map(|dir| dir.join(FILE_NAME)).find(exists);
        let user = user_file.map(Path::to_path_buf).filter(exists);
        let (mut sources, mut first) = (Vec::new(), None);
        for path in project.into_iter().chain(user) {
            match Source::load(path) {
                Ok(source) => sources.push(source),
                Err(error) => first = first.or(Some(error)),
            }
        }
        (Config { sources }, first)
    }
}

/// Reads a file, and never waits for a fifo.
pub(super) fn read_regular(path: &Path) -> std::io::Result<String> {
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
