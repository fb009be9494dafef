//! Watching what no controller limits: memory of all processes inside, and
//! bytes in a layer.

use crate::sys::fd;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Sums the resident memory of all processes that pid 1 sees but its own, in
/// bytes: what init holds was its caller's and is not the program's doing.
pub fn memory_of_all() -> u64 {
    let mut total_pages = 0;
    each_process(&mut |proc, name, pid| {
        if pid != 1 {
            total_pages += resident_pages(proc, name);
        }
    });
    total_pages * 4096
}

/// The same of those processes that descend from `root`.
pub fn memory_below(root: i32) -> u64 {
    let mut total_pages = 0;
    each_process(&mut |proc, name, pid| {
        if descends(pid, root) {
            total_pages += resident_pages(proc, name);
        }
    });
    total_pages * 4096
}

/// Calls `visit` with `/proc`, name and number of every process.
pub fn each_process(visit: &mut dyn FnMut(RawFd, &[u8], i32)) {
    let Ok(proc) = fd::open(c"/proc", libc::O_RDONLY | libc::O_DIRECTORY, 0) else { return };
    each_number(proc, &mut |name| visit(proc, name, number(name) as i32));
    fd::close(proc);
}

/// Calls `job` with every name in a directory that starts with a digit, NUL
/// included: the processes of `/proc`, or the threads of one. Runs in init, so
/// it reads into a fixed buffer and allocates nothing.
pub fn each_number(dir: RawFd, job: &mut dyn FnMut(&[u8])) {
    let mut buffer = [0u8; 4096];
    while let Ok(count) = fd::read_directory(dir, &mut buffer) {
        if count == 0 {
            return;
        }
        let mut at = 0;
        while at + 19 < count {
            let length = usize::from(u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]));
            let name = &buffer[at + 19..at + length];
            if name[0].is_ascii_digit() {
                job(name);
            }
            at += length;
        }
    }
}

/// Whether a process has `root` among its parents.
pub fn descends(pid: i32, root: i32) -> bool {
    /// A longer line than this is no family but a race.
    const GENERATIONS_MAX: usize = 8192;
    let mut at = pid;
    for _ in 0..GENERATIONS_MAX {
        match parent_of(at) {
            Some(parent) if parent == root => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

/// The second field after the name in `/proc/<pid>/stat`. The name may hold
/// anything, so its end is the last bracket.
fn parent_of(pid: i32) -> Option<i32> {
    let mut path = crate::child::PathBuffer::new();
    let mut text = [0u8; 512];
    let count = fd::read_file(path.proc(pid, b"stat"), &mut text).ok()?;
    let text = &text[..count];
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut words = text[end..].split(|byte| *byte == b' ').skip(2);
    Some(number(words.next()?) as i32)
}

/// The digits at the start of a text.
fn number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0'))
}

/// The second number of `/proc/<pid>/statm`.
fn resident_pages(proc: i32, name: &[u8]) -> u64 {
    let mut path = [0u8; 32];
    let Some(end) = name.iter().position(|byte| *byte == 0) else { return 0 };
    if end + 7 > path.len() {
        return 0;
    }
    path[..end].copy_from_slice(&name[..end]);
    path[end..end + 6].copy_from_slice(b"/statm");
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return 0 };
    let Ok(file) = fd::openat(proc, path, libc::O_RDONLY, 0) else { return 0 };
    let mut text = [0u8; 128];
    let count = fd::read(file, &mut text).unwrap_or(0);
    fd::close(file);
    let mut words = text[..count].split(|byte| *byte == b' ').skip(1);
    number(words.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_of_this_machine_is_more_than_nothing() {
        assert!(super::memory_of_all() > 1 << 20);
    }

    #[test]
    fn families_are_told_by_their_parents() {
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("9").spawn().expect("sleep");
        assert!(super::descends(child.id() as i32, own));
        assert!(!super::descends(own, child.id() as i32));
        assert!(!super::descends(own, own));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
}
