//! Namespaces that a run does not have to make itself in order to be in them:
//! made by its monitor on the way, or by a spawner ahead.

use super::Failure;
use super::text::{PathBuffer, TextBuffer};
use crate::plan::{Mapping, SHIFT_BASE, SHIFT_COUNT};
use crate::step::{Slots, Step};
use crate::sys::{Sys, fd, process};
use crate::wire::Fence;
use std::os::fd::RawFd;

/// Namespaces that were made ahead for one run; -1 for what was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub user: RawFd,
    pub network: RawFd,
}

impl Ready {
    pub const NOTHING: Ready = Ready { user: -1, network: -1 };

    /// Those that there are.
    pub fn fds(self) -> impl Iterator<Item = RawFd> {
        [self.user, self.network].into_iter().filter(|fd| *fd >= 0)
    }
}

/// Moves this process into a new network namespace, furnishes and opens it.
pub fn new_network(steps: &[Step]) -> Sys<RawFd> {
    process::unshare(libc::CLONE_NEWNET)?;
    let mut slots = Slots::new(-1, -1, [-1; 5]);
    steps.iter().try_for_each(|step| step.execute(&mut slots))?;
    fd::open(c"/proc/self/ns/net", libc::O_RDONLY, 0)
}

/// Writes the maps of the user namespace that a process is in, and opens it.
pub fn map_users(pid: i32, mapping: Mapping) -> Result<RawFd, Failure> {
    write_maps(pid, mapping).map_err(|errno| (Fence::Maps, errno))?;
    let mut path = PathBuffer::new();
    let opened = fd::open(path.proc(pid, b"ns/user"), libc::O_RDONLY, 0);
    opened.map_err(|errno| (Fence::UserNamespace, errno))
}

pub fn write_maps(pid: i32, mapping: Mapping) -> Sys<()> {
    let mut path = PathBuffer::new();
    let (uids, gids) = match mapping {
        Mapping::Shifted => ((0, SHIFT_BASE, SHIFT_COUNT), (0, SHIFT_BASE, SHIFT_COUNT)),
        Mapping::Same => ((0, 0, u32::MAX), (0, 0, u32::MAX)),
        Mapping::Own { uid, gid } => {
            // Without this an unprivileged process may not map groups.
            fd::write_file(path.proc(pid, b"setgroups"), b"deny")?;
            ((uid, uid, 1), (gid, gid, 1))
        }
        Mapping::None => return Ok(()),
    };
    let mut line = TextBuffer::<64>::new();
    fd::write_file(path.proc(pid, b"uid_map"), line.map_line(uids))?;
    fd::write_file(path.proc(pid, b"gid_map"), line.map_line(gids))
}
