//! Everything that a run needs, as data that can cross to another process.
//!
//! A [`Request`] is what the caller decided; the [`Descriptors`] travel beside
//! it. Whoever splits off the monitor, the caller itself or its spawner, makes
//! a [`Prepared`] of both first, because after the split nothing may allocate.

use crate::child::{Prepared, Ready};
use crate::living::Living;
use crate::plan::Plan;
use crate::run::own;
use crate::spec::{Spec, Top};
use crate::step::Step;
use crate::sys::{fd, process};
use crate::{JailError, seccomp};
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// What to run and how, all decided.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub plan: Plan,
    /// Bytes of memory at which init stops the run, without a controller.
    pub memory_watch: Option<u64>,
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    deadline_ms: Option<u64>,
    locked_dirs: Vec<CString>,
    living_file: Option<CString>,
    last_words: Option<Parting>,
    /// The marker that says "not yet on disk", and the directory to sync.
    dirty: Option<(CString, CString)>,
}

/// A caller's last words, for whoever may not allocate.
#[derive(Debug, Serialize, Deserialize)]
pub struct Parting {
    /// Where they are written, so that they appear whole.
    pub draft: CString,
    pub path: CString,
    pub text: Vec<u8>,
}

/// What the monitor inherits.
pub struct Descriptors {
    pub control: OwnedFd,
    pub sync: (OwnedFd, OwnedFd),
    pub stdio: Option<[OwnedFd; 3]>,
    pub gate: Option<OwnedFd>,
    pub door: Option<(OwnedFd, OwnedFd)>,
    pub join: Option<Living>,
    /// The caller's terminal, to be set back should the caller die.
    pub screen: Option<OwnedFd>,
}

impl Request {
    pub fn new(spec: &Spec, plan: Plan) -> Result<Request, JailError> {
        let living_file = spec.living_file().map(|path| c_string(path.as_os_str())).transpose()?;
        Ok(Request {
            programs: candidates(spec)?,
            argv: spec.command.iter().map(|word| c_string(word)).collect::<Result<_, _>>()?,
            env: spec
                .env
                .iter()
                .map(|(key, value)| env_entry(key, value))
                .collect::<Result<_, _>>()?,
            cwd: c_string(spec.cwd.as_os_str())?,
            deadline_ms: spec.limits.time_ms.map(|ms| process::monotonic_ms().saturating_add(ms)),
            memory_watch: spec.limits.memory_bytes.filter(|_| !plan.cgroup.limits_memory),
            locked_dirs: locked_dirs(spec, &plan)?,
            living_file,
            last_words: last_words(spec)?,
            dirty: dirty_marker(spec)?,
            plan,
        })
    }

    /// Calls `job` with everything ready for a split.
    pub fn with_prepared<R>(
        &self,
        fds: &Descriptors,
        ready: Ready,
        job: impl FnOnce(&Prepared<'_>) -> R,
    ) -> R {
        let argv = pointers(&self.argv);
        let envp = pointers(&self.env);
        let shell = [c"sh".to_owned(), c"".to_owned()];
        let mut shell_argv: Vec<*const libc::c_char> =
            shell.iter().map(|text| text.as_ptr()).collect();
        shell_argv.extend(argv.iter().skip(1));
        let special = self.plan.copied.map(|copied| seccomp::program(Some(copied)));
        let mut keep = fds.list();
        keep.extend(ready.fds());
        keep.sort_unstable();
        job(&Prepared {
            plan: &self.plan,
            filter: special.as_ref().unwrap_or_else(|| usual_filter()),
            programs: &self.programs,
            argv: &argv,
            shell_argv: &shell_argv,
            envp: &envp,
            cwd: &self.cwd,
            control: fds.control.as_raw_fd(),
            sync: (fds.sync.0.as_raw_fd(), fds.sync.1.as_raw_fd()),
            stdio: fds.stdio.as_ref().map(|stdio| stdio.each_ref().map(AsRawFd::as_raw_fd)),
            gate: fds.gate.as_ref().map(AsRawFd::as_raw_fd),
            door: fds.door.as_ref().map(|door| (door.0.as_raw_fd(), door.1.as_raw_fd())),
            join: fds.join.as_ref().map(Living::raw),
            screen: fds.screen.as_ref().map(AsRawFd::as_raw_fd),
            ready,
            keep: &keep,
            deadline_ms: self.deadline_ms,
            memory_watch: self.memory_watch,
            locked_dirs: &self.locked_dirs,
            dirty_marker: self.dirty.as_ref().map(|(marker, _)| marker.as_c_str()),
            living_file: self.living_file.as_deref(),
            last_words: self.last_words.as_ref(),
            sync_dir: self.dirty.as_ref().map(|(_, dir)| dir.as_c_str()),
        })
    }
}

static FILTER: OnceLock<Vec<libc::sock_filter>> = OnceLock::new();

/// The filter of all tiers with namespaces. A spawner needs it made before it
/// is split off: what another thread was just making would never be ready in
/// the copy.
pub fn usual_filter() -> &'static Vec<libc::sock_filter> {
    FILTER.get_or_init(|| seccomp::program(None))
}

impl Descriptors {
    /// All of them, in the order in which [`Descriptors::from_list`] takes
    /// them.
    pub fn list(&self) -> Vec<RawFd> {
        let mut list =
            vec![self.control.as_raw_fd(), self.sync.0.as_raw_fd(), self.sync.1.as_raw_fd()];
        list.extend(self.stdio.iter().flatten().map(AsRawFd::as_raw_fd));
        list.extend(self.gate.iter().map(AsRawFd::as_raw_fd));
        let door = self.door.iter().flat_map(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()]);
        list.extend(door);
        list.extend(self.join.iter().flat_map(Living::raw));
        list.extend(self.screen.iter().map(AsRawFd::as_raw_fd));
        list
    }

    /// Which of the optional ones there are, a bit each.
    pub fn shape(&self) -> u8 {
        u8::from(self.stdio.is_some())
            | u8::from(self.gate.is_some()) << 1
            | u8::from(self.join.is_some()) << 2
            | u8::from(self.door.is_some()) << 3
            | u8::from(self.screen.is_some()) << 4
    }

    /// The inverse of `shape` and `list`; `None` when they do not fit.
    pub fn from_list(shape: u8, list: Vec<OwnedFd>) -> Option<Descriptors> {
        let mut list = list.into_iter();
        let has = |bit: u8| shape >> bit & 1 == 1;
        let control = list.next()?;
        let sync = (list.next()?, list.next()?);
        let stdio = if has(0) { Some(take_array(&mut list)?) } else { None };
        let gate = if has(1) { Some(list.next()?) } else { None };
        let door = if has(3) { Some((list.next()?, list.next()?)) } else { None };
        let join = if has(2) { Some(Living::from(take_array(&mut list)?)) } else { None };
        let screen = if has(4) { Some(list.next()?) } else { None };
        let complete = list.next().is_none();
        complete.then_some(Descriptors { control, sync, stdio, gate, door, join, screen })
    }
}

fn take_array<const N: usize>(list: &mut impl Iterator<Item = OwnedFd>) -> Option<[OwnedFd; N]> {
    list.take(N).collect::<Vec<_>>().try_into().ok()
}

/// Copies of three descriptors with numbers above 2, so that putting them in
/// place cannot overwrite one that is still needed.
pub fn raise_all(fds: &[OwnedFd; 3]) -> Result<[OwnedFd; 3], JailError> {
    let failed = |errno| JailError::System { what: "copy descriptors".into(), errno };
    let raise = |fd: &OwnedFd| fd::dup_above(fd.as_raw_fd(), 10).map(own).map_err(failed);
    Ok([raise(&fds[0])?, raise(&fds[1])?, raise(&fds[2])?])
}

fn c_string(text: &OsStr) -> Result<CString, JailError> {
    CString::new(text.as_bytes()).map_err(|_| JailError::NulInPath)
}

fn env_entry(key: &OsStr, value: &OsStr) -> Result<CString, JailError> {
    CString::new([key.as_bytes(), b"=", value.as_bytes()].concat())
        .map_err(|_| JailError::NulInPath)
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Where the program may be: its own path, or each directory of `PATH`.
fn candidates(spec: &Spec) -> Result<Vec<CString>, JailError> {
    let Some(program) = spec.command.first().filter(|program| !program.is_empty()) else {
        return Ok(Vec::new());
    };
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let default = OsStr::new("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let path = spec.env.iter().find(|(key, _)| key == "PATH").map_or(default, |(_, value)| value);
    let dirs = path.as_bytes().split(|byte| *byte == b':');
    dirs.map(|dir| c_string(Path::new(OsStr::from_bytes(dir)).join(program).as_os_str())).collect()
}

/// What a `volatile` overlay leaves in its work directory, with no rights for
/// anybody; outermost first.
const LOCKED_IN_WORK: [&str; 3] = ["work", "work/incompat", "work/incompat/volatile"];

/// The kernel's part of each overlay's work directory, outside the sandbox.
fn locked_dirs(spec: &Spec, plan: &Plan) -> Result<Vec<CString>, JailError> {
    let mut dirs = Vec::new();
    for step in &plan.steps {
        let Step::Overlay(overlay) = step else { continue };
        let work = overlay.upper.as_ref().map(|(_, work)| work.to_bytes());
        let Some(inside) = work.and_then(|work| work.strip_prefix(b"layers/")) else { continue };
        let work = spec.stack.layers_dir.join(OsStr::from_bytes(inside));
        for path in LOCKED_IN_WORK {
            dirs.push(c_string(work.join(path).as_os_str())?);
        }
    }
    Ok(dirs)
}

fn last_words(spec: &Spec) -> Result<Option<Parting>, JailError> {
    let Some(words) = &spec.last_words else { return Ok(None) };
    let mut draft = words.path.clone().into_os_string();
    draft.push(".new");
    let (draft, path) = (c_string(&draft)?, c_string(words.path.as_os_str())?);
    Ok(Some(Parting { draft, path, text: words.text.clone() }))
}

/// The marker that says "not yet on disk", and the directory to sync.
fn dirty_marker(spec: &Spec) -> Result<Option<(CString, CString)>, JailError> {
    let Top::Disk(name) = &spec.stack.top else { return Ok(None) };
    let layer = spec.stack.layers_dir.join(name);
    let marker = layer.join(format!("dirty-{}", spec.label));
    Ok(Some((c_string(marker.as_os_str())?, c_string(layer.as_os_str())?)))
}
