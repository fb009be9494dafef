//! The mount calls, old and new.

use super::{Sys, check};
use std::ffi::CStr;
use std::os::fd::RawFd;

// libc does not carry these on every target yet; the numbers are common to
// all architectures since Linux 5.2.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Read-only.
pub const ATTR_RDONLY: u64 = 0x1;
/// Ignore set-uid bits.
pub const ATTR_NOSUID: u64 = 0x2;
/// No devices.
pub const ATTR_NODEV: u64 = 0x4;
const ATTR_IDMAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Makes every mount of this namespace private, so nothing leaks out.
pub fn make_private() -> Sys<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the target is a literal; source, type and data may be null here.
    let done = unsafe {
        libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
    };
    check(done.into()).map(|_| ())
}

/// Mounts a new filesystem.
pub fn mount(fstype: &CStr, at: &CStr, flags: u64, data: &CStr) -> Sys<()> {
    // SAFETY: all strings are NUL-terminated and outlive the call.
    let done = unsafe {
        libc::mount(
            fstype.as_ptr(),
            at.as_ptr(),
            fstype.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    };
    check(done.into()).map(|_| ())
}

/// A detached copy of the mount at `path` (of all below it, if `recursive`).
pub fn open_tree(path: &CStr, recursive: bool) -> Sys<RawFd> {
    let mut flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
    if recursive {
        flags |= libc::AT_RECURSIVE as libc::c_uint;
    }
    // SAFETY: `path` is NUL-terminated and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    check(fd).map(|fd| fd as RawFd)
}

/// Attaches a detached mount.
pub fn attach(tree: RawFd, at: &CStr) -> Sys<()> {
    // SAFETY: both strings are NUL-terminated and outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            c"".as_ptr(),
            libc::AT_FDCWD,
            at.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(done).map(|_| ())
}

fn set_attr(fd: RawFd, path: &CStr, flags: i32, attr: &MountAttr) -> Sys<()> {
    // SAFETY: `attr` is a live `mount_attr` of the size we pass.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    check(done).map(|_| ())
}

/// Shifts the owners of a detached mount by the maps of a user namespace.
pub fn idmap(tree: RawFd, user_namespace: RawFd) -> Sys<()> {
    let attr = MountAttr {
        attr_set: ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace as u64,
    };
    set_attr(tree, c"", libc::AT_EMPTY_PATH, &attr)
}

/// Adds attributes (read-only, nosuid …) to a mount and all below it.
pub fn restrict(at: &CStr, set: u64, recursive: bool) -> Sys<()> {
    let attr = MountAttr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    set_attr(libc::AT_FDCWD, at, flags, &attr)
}

/// Mounts an overlay through the new calls, one `lowerdir+` per layer, which
/// has no bound on the length of the stack. Needs Linux 6.8 for `lowerdir+`.
pub fn overlay(
    lowers: &[std::ffi::CString],
    options: &[(&CStr, &CStr)],
    flags: &[&CStr],
    at: &CStr,
) -> Sys<()> {
    // SAFETY: the name is a literal.
    let context =
        check(unsafe { libc::syscall(libc::SYS_fsopen, c"overlay".as_ptr(), FSOPEN_CLOEXEC) })?
            as RawFd;
    let result = overlay_in(context, lowers, options, flags, at);
    super::fd::close(context);
    result
}

fn overlay_in(
    context: RawFd,
    lowers: &[std::ffi::CString],
    options: &[(&CStr, &CStr)],
    flags: &[&CStr],
    at: &CStr,
) -> Sys<()> {
    for (key, value) in options {
        configure(context, FSCONFIG_SET_STRING, Some(key), Some(value))?;
    }
    for flag in flags {
        configure(context, FSCONFIG_SET_FLAG, Some(flag), None)?;
    }
    for lower in lowers {
        configure(context, FSCONFIG_SET_STRING, Some(c"lowerdir+"), Some(lower))?;
    }
    configure(context, FSCONFIG_CMD_CREATE, None, None)?;
    // SAFETY: plain integers.
    let mount =
        check(unsafe { libc::syscall(libc::SYS_fsmount, context, FSMOUNT_CLOEXEC, 0) })? as RawFd;
    let result = attach(mount, at);
    super::fd::close(mount);
    result
}

fn configure(
    context: RawFd,
    command: libc::c_uint,
    key: Option<&CStr>,
    value: Option<&CStr>,
) -> Sys<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: both pointers are null or NUL-terminated strings that outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_fsconfig, context, command, pointer(key), pointer(value), 0)
    };
    check(done).map(|_| ())
}

/// Makes `.` the root and drops the old one.
pub fn pivot_here() -> Sys<()> {
    // SAFETY: both names are literals. With "." for both, the old root lies
    // on top of the new one and is detached by the next call.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: the name is a literal.
    check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }.into()).map(|_| ())
}
