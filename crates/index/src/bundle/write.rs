//! Records written, and changed where they lie.

use super::place::{self, Dir, Over, outside};
use super::{Bundle, EXPERIMENT, is_generated, slug};
use crate::record::{Draft, Kind, compose, read};
use crate::{Fault, IndexError, Result};
use fractal_model::format_iso_ms;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer files are not changed by a program.
const EDIT_BYTES_MAX: u64 = 64 << 20;
const LOCK_SECONDS_MAX: u64 = 10;

impl Bundle {
    /// Writes a new record into the folder of its kind and returns where it
    /// lies. `suffix` is chance that the caller throws, so that two writers
    /// who know nothing of each other take different names.
    pub fn write(&self, draft: &Draft, suffix: &str) -> Result<PathBuf> {
        let text = checked(draft)?;
        let name = name(draft, suffix)?;
        let folder = Dir::open(&self.dir)?.made(draft.record.kind.folder())?;
        match draft.record.kind {
            Kind::Experiment => {
                folder.made_new(&name)?.write(EXPERIMENT, text.as_bytes(), Over::Nothing)
            }
            _ => folder.write(&format!("{name}.md"), text.as_bytes(), Over::Nothing),
        }
    }

    /// Writes a new file into the directory of an experiment: what it printed,
    /// measured or changed. Evidence is not written over.
    pub fn write_beside(&self, experiment: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        const NAME_BYTES_MAX: usize = 200;
        let is_plain = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name.contains(|c: char| c == '/' || c == '\\' || c.is_control())
            && !is_generated(Path::new(name));
        if !is_plain {
            let what = format!("`{}` is no name for a file of an experiment", name.escape_debug());
            return Err(IndexError::Invalid(what));
        }
        let folder = self.relative(experiment)?;
        Dir::open(&self.dir)?.beneath(folder)?.write(name, bytes, Over::Nothing)
    }

    /// Puts other bytes into a record that is there; its mode stays.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let (dir, name) = self.place(path)?;
        let _lock = self.lock()?;
        let (_, _, mode) = dir.file(name)?;
        let name = name.to_str().ok_or_else(|| outside(path))?;
        dir.write(name, bytes, Over::File { mode }).map(drop)
    }

    /// Changes a record, which nobody else changes through this crate in the
    /// meantime. Where the change refuses, the record stays as it is.
    pub fn edit(
        &self,
        path: &Path,
        change: impl FnOnce(&[u8]) -> std::result::Result<Vec<u8>, Fault>,
    ) -> Result<()> {
        let (dir, name) = self.place(path)?;
        let _lock = self.lock()?;
        let (file, length, mode) = dir.file(name)?;
        if length > EDIT_BYTES_MAX {
            let what = format!("{} is longer than {} MiB", path.display(), EDIT_BYTES_MAX >> 20);
            return Err(IndexError::Invalid(what));
        }
        let bytes = place::read(file, path, EDIT_BYTES_MAX + 1)?;
        let changed =
            change(&bytes).map_err(|fault| IndexError::Broken { path: path.into(), fault })?;
        if changed == bytes {
            return Ok(());
        }
        let name = name.to_str().ok_or_else(|| outside(path))?;
        dir.write(name, &changed, Over::File { mode }).map(drop)
    }

    /// Keeps other writers of existing records out until it is dropped. They
    /// are not waited for without end: whoever can write here can hold it.
    fn lock(&self) -> Result<Dir> {
        let dir = Dir::open(&self.dir)?;
        let started = Instant::now();
        loop {
            match rustix::fs::flock(dir.fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(dir),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(IndexError::io("lock", &self.dir, errno)),
            }
            if started.elapsed().as_secs() >= LOCK_SECONDS_MAX {
                return Err(IndexError::Busy { seconds: LOCK_SECONDS_MAX });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A draft as text, if its head reads back without a fault.
pub(super) fn checked(draft: &Draft) -> Result<String> {
    let head = compose(&Draft { body: String::new(), ..draft.clone() });
    match read(head.as_bytes(), "").faults.first() {
        None => Ok(compose(draft)),
        Some(fault) => {
            Err(IndexError::Invalid(format!("this record cannot be written: {}", fault.what)))
        }
    }
}

fn name(draft: &Draft, suffix: &str) -> Result<String> {
    const SUFFIX_BYTES_MAX: usize = 32;
    const DATE_BYTES: usize = "2026-11-19".len();
    let is_fine = (1..=SUFFIX_BYTES_MAX).contains(&suffix.len())
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_fine {
        let what = format!("`{}` is no end for a name: letters and digits", suffix.escape_debug());
        return Err(IndexError::Invalid(what));
    }
    let written = draft.record.generated.as_ref().and_then(|stamp| stamp.at_ms);
    let Some(written) = written.map(format_iso_ms).filter(|time| time.len() == 20) else {
        return Err(IndexError::Invalid("a record must say when it is written".to_owned()));
    };
    Ok(format!("{}-{}-{suffix}", &written[..DATE_BYTES], slug(&draft.record.title)))
}
