//! Carries out what landlock cannot judge, inside the copy only.
//!
//! Modes, owners and times of files can be changed by whoever owns them, and
//! in the tier `copied` the program is the same user as everybody. A filter
//! cannot see paths, so those calls wait here: the target is opened without
//! touching it, looked at where it lies, and changed through that very
//! descriptor. What a program changes in its memory meanwhile changes nothing,
//! because the arguments are read once and the kernel never sees them.

use super::text::PathBuffer;
use crate::landlock::Rules;
use crate::sys::notify::{self, Notice};
use crate::sys::{Sys, fd, process};
use crate::watch;
use std::ffi::CStr;
use std::os::fd::RawFd;

const PATH_BYTES_MAX: usize = 4096;
/// The copy and the scratch directory.
const ROOTS: usize = 2;
/// Not in libc yet.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Answers system calls of the program and all it starts.
pub(super) struct Deputy {
    /// Where they are heard; -1 when there is nothing to hear.
    pub listener: RawFd,
    roots: [Root; ROOTS],
}

/// Where a directory that may be changed lies.
struct Root {
    path: [u8; PATH_BYTES_MAX],
    length: usize,
}

/// Which object a call is about.
#[derive(Clone, Copy)]
struct Target {
    directory: i32,
    /// Address of the path; none is the descriptor itself.
    path: Option<u64>,
    flags: i32,
}

impl Target {
    fn path(path: u64) -> Target {
        Target { directory: libc::AT_FDCWD, path: Some(path), flags: 0 }
    }

    fn descriptor(fd: u64) -> Target {
        Target { directory: fd as i32, path: None, flags: 0 }
    }

    fn at(directory: u64, path: u64, flags: u64) -> Target {
        Target { directory: directory as i32, path: Some(path), flags: flags as i32 }
    }
}

impl Deputy {
    pub fn new(listener: RawFd, rules: &Rules) -> Deputy {
        const EMPTY: Root = Root { path: [0; PATH_BYTES_MAX], length: 0 };
        let mut roots = [EMPTY; ROOTS];
        for (root, (base, below, _)) in roots.iter_mut().zip(&rules.own) {
            let opened = fd::open(base.as_c(), libc::O_PATH | libc::O_DIRECTORY, 0);
            let Ok(base) = opened else { continue };
            if let Ok(dir) = fd::open_beneath(base, below.as_c()) {
                root.length = place_of(dir, &mut root.path).unwrap_or(0);
                fd::close(dir);
            }
            fd::close(base);
        }
        Deputy { listener, roots }
    }

    /// Takes one call and answers it.
    pub fn answer_one(&mut self, events: i16) {
        if events & libc::POLLIN == 0 {
            // Everybody who could ask is gone.
            fd::close(self.listener);
            self.listener = -1;
            return;
        }
        let Ok(notice) = notify::receive(self.listener) else { return };
        let call = libc::c_long::from(notice.call);
        if crate::seccomp::copied::SIGNALS.contains(&call) {
            return match self.may_signal(call, &notice.args) {
                true => notify::let_pass(self.listener, notice.id),
                false => notify::answer(self.listener, notice.id, Err(libc::EPERM)),
            };
        }
        let done = self.change(call, &notice);
        notify::answer(self.listener, notice.id, done);
    }

    /// Signals stay in the family. Groups do too: a group lies in one session,
    /// and the program started a session of its own.
    fn may_signal(&self, call: libc::c_long, args: &[u64; 6]) -> bool {
        let own = process::own_pid();
        match args[0] as i32 {
            0 => call == libc::SYS_kill,
            -1 => false,
            pid => watch::descends(pid.saturating_abs(), own),
        }
    }

    fn change(&self, call: libc::c_long, notice: &Notice) -> Sys<()> {
        let args = &notice.args;
        match call {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => self.mode(notice, Target::path(args[0]), args[1]),
            libc::SYS_fchmod => self.mode(notice, Target::descriptor(args[0]), args[1]),
            libc::SYS_fchmodat => self.mode(notice, Target::at(args[0], args[1], 0), args[2]),
            SYS_FCHMODAT2 => self.mode(notice, Target::at(args[0], args[1], args[3]), args[2]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => self.owner(notice, Target::path(args[0]), args[1], args[2]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => {
                let flags = libc::AT_SYMLINK_NOFOLLOW;
                let target = Target { flags, ..Target::path(args[0]) };
                self.owner(notice, target, args[1], args[2])
            }
            libc::SYS_fchown => self.owner(notice, Target::descriptor(args[0]), args[1], args[2]),
            libc::SYS_fchownat => {
                self.owner(notice, Target::at(args[0], args[1], args[4]), args[2], args[3])
            }
            libc::SYS_utimensat => {
                let target = match args[1] {
                    0 => Target::descriptor(args[0]),
                    path => Target::at(args[0], path, args[3]),
                };
                self.times(notice, target, args[2], Times::Nano)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => self.times(notice, Target::path(args[0]), args[1], Times::Micro),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => self.times(notice, Target::path(args[0]), args[1], Times::Seconds),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => {
                self.times(notice, Target::at(args[0], args[1], 0), args[2], Times::Micro)
            }
            _ => Err(libc::EPERM),
        }
    }

    fn mode(&self, notice: &Notice, target: Target, mode: u64) -> Sys<()> {
        let mode = mode as u32 & 0o7777;
        if mode & libc::S_ISUID != 0 {
            return Err(libc::EPERM);
        }
        let file = self.open(notice, target)?;
        let mut link = PathBuffer::new();
        // Set-gid gives rights to files; to directories it gives a group.
        let done = match mode & libc::S_ISGID {
            0 => fd::chmod(link.own_descriptor(file), mode),
            _ => fd::chmod(link.own_directory(file), mode).map_err(|_| libc::EPERM),
        };
        fd::close(file);
        done
    }

    fn owner(&self, notice: &Notice, target: Target, uid: u64, gid: u64) -> Sys<()> {
        let file = self.open(notice, target)?;
        let done = notify::change_owner(file, uid as u32, gid as u32);
        fd::close(file);
        done
    }

    fn times(&self, notice: &Notice, target: Target, at: u64, unit: Times) -> Sys<()> {
        let times = match at {
            0 => None,
            at => Some(unit.read(notice.pid as i32, at)?),
        };
        let file = self.open(notice, target)?;
        let done = notify::change_times(file, times.as_ref());
        fd::close(file);
        done
    }

    /// Opens what a call is about, if it lies where the program may write.
    fn open(&self, notice: &Notice, target: Target) -> Sys<RawFd> {
        let file = open_target(notice, target)?;
        let mut place = [0u8; PATH_BYTES_MAX];
        let inside = match place_of(file, &mut place) {
            Ok(length) => self.roots.iter().any(|root| root.holds(&place[..length])),
            Err(_) => false,
        };
        // A pid says whom we looked at only while that one waits.
        if inside && notify::is_valid(self.listener, notice.id) {
            return Ok(file);
        }
        fd::close(file);
        Err(libc::EPERM)
    }
}

impl Root {
    fn holds(&self, place: &[u8]) -> bool {
        let root = &self.path[..self.length];
        self.length > 0
            && place.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }
}

fn open_target(notice: &Notice, target: Target) -> Sys<RawFd> {
    let pid = notice.pid as i32;
    let start = open_start(pid, target.directory)?;
    let Some(path) = target.path else { return Ok(start) };
    let mut text = [0u8; PATH_BYTES_MAX + 32];
    let opened = read_path(pid, path, &mut text).and_then(|path| {
        if path.is_empty() {
            let itself = target.flags & libc::AT_EMPTY_PATH != 0;
            return if itself { Ok(None) } else { Err(libc::ENOENT) };
        }
        let follow = target.flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        let flags = libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW };
        fd::openat(start, path, flags, 0).map(Some)
    });
    match opened {
        Ok(None) => Ok(start),
        Ok(Some(file)) => {
            fd::close(start);
            Ok(file)
        }
        Err(errno) => {
            fd::close(start);
            Err(errno)
        }
    }
}

/// Where a relative path starts in the other process.
fn open_start(pid: i32, directory: i32) -> Sys<RawFd> {
    let mut path = PathBuffer::new();
    let start = match directory {
        libc::AT_FDCWD => path.proc(pid, b"cwd"),
        fd if fd >= 0 => path.proc_descriptor(pid, fd),
        _ => return Err(libc::EBADF),
    };
    fd::open(start, libc::O_PATH, 0).map_err(|_| libc::EBADF)
}

/// A path from the other process's memory. `/proc/self` means that process
/// and not us.
fn read_path(pid: i32, address: u64, text: &mut [u8]) -> Sys<&CStr> {
    const SELF: &[u8] = b"/proc/self/";
    const PAGE: usize = 4096;
    let mut raw = [0u8; PATH_BYTES_MAX];
    let mut count = 0;
    // Page by page: the next one may not be there.
    while count < raw.len() && !raw[..count].contains(&0) {
        let at = address.wrapping_add(count as u64);
        let room = (PAGE - at as usize % PAGE).min(raw.len() - count);
        match notify::read_memory(pid, at, &mut raw[count..count + room]) {
            Ok(got) if got > 0 => count += got,
            _ => return Err(libc::EFAULT),
        }
    }
    let path = CStr::from_bytes_until_nul(&raw[..count]).map_err(|_| libc::ENAMETOOLONG)?;
    let path = path.to_bytes();
    let mut own = PathBuffer::new();
    let (start, rest) = match path.strip_prefix(SELF) {
        Some(rest) => (own.proc(pid, b"").to_bytes(), rest),
        None => (&b""[..], path),
    };
    let length = start.len() + rest.len();
    if length >= text.len() {
        return Err(libc::ENAMETOOLONG);
    }
    text[..start.len()].copy_from_slice(start);
    text[start.len()..length].copy_from_slice(rest);
    text[length] = 0;
    CStr::from_bytes_until_nul(&text[..=length]).map_err(|_| libc::ENAMETOOLONG)
}

fn place_of(file: RawFd, buffer: &mut [u8]) -> Sys<usize> {
    let mut link = PathBuffer::new();
    let length = notify::descriptor_path(link.own_descriptor(file), buffer)?;
    // A path that fills the buffer may have been cut.
    if length < buffer.len() { Ok(length) } else { Err(libc::ENAMETOOLONG) }
}

/// How a call gives two times.
enum Times {
    Nano,
    #[cfg(target_arch = "x86_64")]
    Micro,
    #[cfg(target_arch = "x86_64")]
    Seconds,
}

impl Times {
    fn read(&self, pid: i32, at: u64) -> Sys<[libc::timespec; 2]> {
        let mut bytes = [0u8; 32];
        let (length, step, scale) = match self {
            Times::Nano => (32, 16, 1),
            #[cfg(target_arch = "x86_64")]
            Times::Micro => (32, 16, 1000),
            #[cfg(target_arch = "x86_64")]
            Times::Seconds => (16, 8, 0),
        };
        if notify::read_memory(pid, at, &mut bytes[..length])? != length {
            return Err(libc::EFAULT);
        }
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            i64::from_ne_bytes(eight)
        };
        let time = |index: usize| libc::timespec {
            tv_sec: word(index * step) as _,
            tv_nsec: match scale {
                0 => 0,
                scale => word(index * step + 8).wrapping_mul(scale) as _,
            },
        };
        Ok([time(0), time(1)])
    }
}
