//! Watching what no controller limits: memory of all processes inside, and
//! bytes in a layer.

use crate::sys::fd;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// Sums the resident memory of all processes that pid 1 sees, in bytes.
pub fn memory_of_all() -> u64 {
    let Ok(proc) = fd::open(c"/proc", libc::O_RDONLY | libc::O_DIRECTORY, 0) else { return 0 };
    let mut total_pages = 0u64;
    each_number(proc, &mut |name| {
        total_pages += resident_pages(proc, name);
    });
    fd::close(proc);
    total_pages * 4096
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
    let digits = words.next().unwrap_or_default().iter();
    digits.fold(0, |sum, byte| sum * 10 + u64::from(byte.wrapping_sub(b'0') % 10))
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_of_this_machine_is_more_than_nothing() {
        assert!(super::memory_of_all() > 1 << 20);
    }
}
