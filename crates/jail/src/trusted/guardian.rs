//! Who ends a program's family when we are gone before it: a process of ours
//! that waits at a pipe, of which we hold the other end.
//!
//! The kernel closes our end however we die. A death signal
//! (`PR_SET_PDEATHSIG`) would reach the program itself and nobody that it
//! started, and is sent when a *thread* of ours ends; a process group would
//! keep a key that interrupts us from reaching the program.

use super::family;
use crate::sys::{Sys, fd, process, security};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Ends what it watches when it is dropped, unless it was told that all is
/// over.
pub(super) struct Guardian(OwnedFd);

impl Guardian {
    /// Made before the program, which waits until it is watched.
    pub fn new() -> Sys<Guardian> {
        let (theirs, ours) = fd::pipe()?;
        let (theirs, ours) = (fd::own(theirs), fd::own(ours));
        process::fork_detached(|| stand(theirs.as_raw_fd()))?;
        Ok(Guardian(ours))
    }

    /// Tells whom to watch: a child that was not waited for yet.
    pub fn watch(&self, child: u32) -> Sys<()> {
        // So few bytes go into a pipe in one piece.
        fd::write(self.0.as_raw_fd(), &child.to_ne_bytes()).map(drop)
    }

    /// The child has ended, and was waited for.
    pub fn dismiss(self) {
        let _ = fd::write(self.0.as_raw_fd(), b".");
    }
}

/// The guardian itself. It may allocate: the C library's `fork` saw to that.
fn stand(pipe: RawFd) -> ! {
    process::block_signals();
    let _ = process::new_session();
    let _ = fd::chdir(c"/");
    security::set_name(c"fractal-guard");
    // The other end of the pipe is among what is closed.
    fd::close_all_except(&[pipe]);
    let mut child = [0; 4];
    if fd::read_whole(pipe, &mut child).is_ok() {
        watch(pipe, u32::from_ne_bytes(child));
    }
    process::exit_now(0)
}

fn watch(pipe: RawFd, child: u32) {
    let Ok(pid) = i32::try_from(child) else { return };
    // Opened while nobody has waited for it: the number is still the child's.
    let Ok(pidfd) = process::open_pidfd(pid) else { return };
    if matches!(fd::read(pipe, &mut [0]), Ok(1)) {
        return;
    }
    let mut ended = [libc::pollfd { fd: pidfd, events: libc::POLLIN, revents: 0 }];
    let lives = fd::poll(&mut ended, 0) == Ok(0);
    // Once it is stopped it keeps its number until we are done.
    if lives && process::kill_pidfd(pidfd, libc::SIGSTOP).is_ok() {
        family::end(child);
    }
}
