//! Everything between `clone` and `exec`.
//!
//! Three processes, each a copy of the caller: the **monitor** stays on the
//! host, enforces the deadline, notices when the caller dies and cleans up;
//! **init** is pid 1 inside, builds the sandbox, reaps and reports; the
//! **program** puts up the last fences and becomes the command. Nothing here
//! allocates, locks or unwinds: all data was prepared before the first clone.

mod copied;
mod deputy;
mod freeze;
mod init;
mod monitor;
mod namespaces;
mod program;
mod screen;
mod text;
mod visitors;

pub use monitor::monitor;
pub use namespaces::{Ready, map_users, new_network};
pub(crate) use text::PathBuffer;

use crate::plan::Plan;
use crate::request::Parting;
use crate::sys::Errno;
use crate::wire::Fence;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

/// Why the monitor ended a run.
pub const WHY_ENDED: i32 = 0;
/// The deadline passed.
pub const WHY_TIME: i32 = 1;
/// The caller asked, with its own reason added to this.
pub const WHY_ASKED: i32 = 100;

/// All that the three processes need, made ready by the caller.
pub struct Prepared<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// The seccomp program.
    pub filter: &'a [libc::sock_filter],
    /// Places where the program may be, in the order of `PATH`.
    pub programs: &'a [CString],
    /// Arguments, ending with null.
    pub argv: &'a [*const libc::c_char],
    /// `sh`, a free place for the script, and the arguments, ending with null.
    pub shell_argv: &'a [*const libc::c_char],
    /// Environment, ending with null.
    pub envp: &'a [*const libc::c_char],
    /// Where the program starts.
    pub cwd: &'a CStr,
    /// Our end of the channel to the caller.
    pub control: RawFd,
    /// Channel between monitor and init: their ends.
    pub sync: (RawFd, RawFd),
    /// The program's descriptors 0, 1 and 2; none means a terminal.
    pub stdio: Option<[RawFd; 3]>,
    /// Namespaces of a living run to join.
    pub join: Option<Held>,
    /// The caller's terminal, for the monitor alone.
    pub screen: Option<RawFd>,
    /// Where a message says that the program may start.
    pub gate: Option<RawFd>,
    /// Channel through which the program hands init the calls that it must
    /// answer: init's end, the program's end.
    pub door: Option<(RawFd, RawFd)>,
    /// Namespaces that need not be made any more.
    pub ready: Ready,
    /// Sorted descriptors that outlive the first clone.
    pub keep: &'a [RawFd],
    /// When the run must be over, on the monotonic clock.
    pub deadline_ms: Option<u64>,
    /// Bytes of memory at which init stops the run, without a controller.
    pub memory_watch: Option<u64>,
    /// Directories that the kernel made with no rights for anybody, which
    /// would keep an unprivileged user from deleting a layer.
    pub locked_dirs: &'a [CString],
    /// A marker to remove once the top layer has reached the disk.
    pub dirty_marker: Option<&'a CStr>,
    /// Where the run can be reached while it lives.
    pub living_file: Option<&'a CStr>,
    /// What to write down should the caller die.
    pub last_words: Option<&'a Parting>,
    /// The layer's directory: to sync before the marker goes, and to listen in.
    pub sync_dir: Option<&'a CStr>,
}

/// Which fence could not be put up, and why.
type Failure = (Fence, Errno);

/// Descriptors of the namespaces in [`crate::living::NAMESPACES`], held while
/// the run lives.
pub type Held = [RawFd; 5];

fn usage_cpu_us(usage: &libc::rusage) -> u64 {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    micros(usage.ru_utime) + micros(usage.ru_stime)
}
