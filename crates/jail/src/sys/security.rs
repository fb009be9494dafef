//! prctl, capabilities, seccomp, landlock and keyrings.

use super::{Sys, check, check_int};
use std::os::fd::RawFd;

/// This process and its children can never gain privileges by `exec`.
pub fn no_new_privileges() -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(|_| ())
}

/// Nobody without privileges over our first user namespace may look into this
/// process's memory.
pub fn hide_memory() {
    // SAFETY: plain integers; cannot fail with these.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Asks for a signal when the parent dies.
pub fn die_with_parent() -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(|_| ())
}

/// Takes back the wish to die with the parent.
pub fn outlive_parent() {
    // SAFETY: plain integers; cannot fail with these.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0) };
}

/// Descendants whose parent ends become our children, not those of the host's
/// init.
pub fn adopt_orphans() -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(|_| ())
}

/// Names this process for `ps`.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: `name` is NUL-terminated and outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

/// Keeps only the capabilities of `mask` (a bit each), also for programs
/// executed later.
pub fn keep_capabilities(mask: u64) -> Sys<()> {
    for capability in 0..64 {
        if mask >> capability & 1 == 0 {
            // SAFETY: plain integers; EPERM where we hold none is fine: there
            // is nothing to drop.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            if dropped == -1 && super::errno() == libc::EINVAL {
                break; // past the last one that this kernel knows
            }
        }
    }
    // SAFETY: plain integers; clearing the ambient set cannot fail.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    set_capabilities(mask)
}

/// Sets effective and permitted capabilities to those of `mask` we hold.
pub fn set_capabilities(mask: u64) -> Sys<()> {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: header and data have the sizes that version 3 prescribes.
    check(unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) })?;
    for (index, word) in data.iter_mut().enumerate() {
        let wanted = (mask >> (32 * index)) as u32 & word.permitted;
        *word = CapData { effective: wanted, permitted: wanted, inheritable: 0 };
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) }).map(|_| ())
}

/// Whether this process holds a capability now.
pub fn has_capability(capability: u32) -> bool {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: header and data have the sizes that version 3 prescribes.
    let got = unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) };
    got == 0 && data[capability as usize / 32].effective >> (capability % 32) & 1 == 1
}

/// Installs a filter for all system calls from here on.
pub fn install_filter(program: &[libc::sock_filter]) -> Sys<()> {
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` describes a live slice that the kernel copies.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) })
        .map(|_| ())
}

/// Leaves the caller's session keyring for an empty one.
pub fn new_keyring() -> Sys<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;
    // SAFETY: a null name asks for an anonymous keyring.
    check(unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<u8>())
    })
    .map(|_| ())
}

/// What a landlock ruleset governs.
#[repr(C)]
pub struct LandlockRuleset {
    /// Filesystem rights that need a rule.
    pub handled_access_fs: u64,
    /// Network rights that need a rule.
    pub handled_access_net: u64,
    /// Kinds of communication with the outside that are cut.
    pub scoped: u64,
}

#[repr(C, packed)]
struct LandlockPathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// The kernel's landlock version; an error where there is none.
pub fn landlock_version() -> Sys<u32> {
    // SAFETY: a null ruleset of size 0 with flag 1 asks for the version.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) })
        .map(|version| version as u32)
}

/// Starts a ruleset; `size` is what the kernel's version knows of the struct.
pub fn landlock_ruleset(ruleset: &LandlockRuleset, size: usize) -> Sys<RawFd> {
    let size = size.min(size_of::<LandlockRuleset>());
    // SAFETY: `ruleset` is live and at least `size` bytes long.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::from_ref(ruleset), size, 0)
    })
    .map(|fd| fd as RawFd)
}

/// Allows `access` at and below a directory or on a file.
pub fn landlock_allow(ruleset: RawFd, parent: RawFd, access: u64) -> Sys<()> {
    const PATH_BENEATH: i32 = 1;
    let rule = LandlockPathBeneath { allowed_access: access, parent_fd: parent };
    // SAFETY: `rule` is live and of the type the number names.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset,
            PATH_BENEATH,
            std::ptr::from_ref(&rule),
            0,
        )
    })
    .map(|_| ())
}

/// Puts this process under a ruleset for good.
pub fn landlock_restrict(ruleset: RawFd) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) }).map(|_| ())
}
