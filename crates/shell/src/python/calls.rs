//! What each of the guest's calls does: memory in, memory out, and one
//! operation of its files in between.

use super::abi::{APPEND, Done, Errno, MODIFIED, MODIFIED_NOW};
use super::files::{How, PIECE_BYTES_MAX, ROOT, Slot};
use super::guest::Guest;
use super::memory::{Buffer, Memory};

/// Random bytes that one call gives at most.
const RANDOM_BYTES_MAX: u32 = 1 << 20;

pub(super) fn args_sizes_get(mut memory: Memory, guest: &mut Guest, count: u32, size: u32) -> Done {
    memory.put_u32(count, guest.args.len())?;
    memory.put_u32(size, guest.args.iter().map(|text| text.len() + 1).sum())
}

pub(super) fn args_get(mut memory: Memory, guest: &mut Guest, table: u32, place: u32) -> Done {
    memory.put_texts(&guest.args, table, place)
}

pub(super) fn environ_sizes_get(
    mut memory: Memory,
    guest: &mut Guest,
    count: u32,
    size: u32,
) -> Done {
    memory.put_u32(count, guest.env.len())?;
    memory.put_u32(size, guest.env.iter().map(|text| text.len() + 1).sum())
}

pub(super) fn environ_get(mut memory: Memory, guest: &mut Guest, table: u32, place: u32) -> Done {
    memory.put_texts(&guest.env, table, place)
}

pub(super) fn clock_res_get(mut memory: Memory, _: &mut Guest, _id: u32, out: u32) -> Done {
    memory.put_u64(out, 1)
}

pub(super) fn clock_time_get(
    mut memory: Memory,
    guest: &mut Guest,
    id: u32,
    _: u64,
    out: u32,
) -> Done {
    memory.put_u64(out, guest.clock.now_ns(id))
}

pub(super) fn random_get(mut memory: Memory, _: &mut Guest, at: u32, len: u32) -> Done {
    if len > RANDOM_BYTES_MAX {
        return Err(Errno::INVAL);
    }
    getrandom::fill(memory.get_mut(at, len)?).map_err(|_| Errno::IO)
}

pub(super) fn fd_prestat_get(mut memory: Memory, _: &mut Guest, fd: u32, out: u32) -> Done {
    if fd != ROOT {
        return Err(Errno::BADF);
    }
    // A directory whose name is one byte long.
    memory.put(out, &[0, 0, 0, 0, 1, 0, 0, 0])
}

pub(super) fn fd_prestat_dir_name(
    mut memory: Memory,
    _: &mut Guest,
    fd: u32,
    out: u32,
    len: u32,
) -> Done {
    match (fd, len) {
        (ROOT, 0) => Err(Errno::INVAL),
        (ROOT, _) => memory.put(out, b"/"),
        _ => Err(Errno::BADF),
    }
}

pub(super) fn fd_fdstat_get(mut memory: Memory, guest: &mut Guest, fd: u32, out: u32) -> Done {
    memory.put(out, &guest.files.descriptor(fd)?)
}

pub(super) fn fd_fdstat_set_flags(_: Memory, guest: &mut Guest, fd: u32, flags: u32) -> Done {
    guest.files.set_append(fd, flags & APPEND != 0)
}

pub(super) fn fd_filestat_get(mut memory: Memory, guest: &mut Guest, fd: u32, out: u32) -> Done {
    memory.put(out, &guest.files.stat(fd)?.bytes())
}

pub(super) fn fd_filestat_set_size(_: Memory, guest: &mut Guest, fd: u32, size: u64) -> Done {
    guest.files.resize(fd, size)
}

/// The time of modification that a call asks for, if any. Times of reading
/// are not kept.
fn modified_ns(guest: &Guest, modified: u64, flags: u32) -> Option<i64> {
    match flags {
        flags if flags & MODIFIED_NOW != 0 => i64::try_from(guest.clock.now_ns(0)).ok(),
        flags if flags & MODIFIED != 0 => i64::try_from(modified).ok(),
        _ => None,
    }
}

pub(super) fn fd_filestat_set_times(
    _: Memory,
    guest: &mut Guest,
    fd: u32,
    _read: u64,
    modified: u64,
    flags: u32,
) -> Done {
    modified_ns(guest, modified, flags).map_or(Ok(()), |ns| guest.files.set_modified(fd, ns))
}

pub(super) fn fd_advise(_: Memory, guest: &mut Guest, fd: u32, _: u64, _: u64, _: u32) -> Done {
    guest.files.slot(fd).map(drop)
}

pub(super) fn fd_sync(_: Memory, guest: &mut Guest, fd: u32) -> Done {
    guest.files.slot(fd).map(drop)
}

pub(super) fn fd_datasync(_: Memory, guest: &mut Guest, fd: u32) -> Done {
    guest.files.slot(fd).map(drop)
}

fn total(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len as usize).sum()
}

pub(super) fn fd_read(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    at: u32,
    count: u32,
    out: u32,
) -> Done {
    let buffers = memory.buffers(at, count)?;
    let bytes = match guest.files.slot(fd)? {
        Slot::Input => guest.read_input(total(&buffers)),
        _ => guest.files.read(fd, None, total(&buffers))?,
    };
    memory.scatter(&buffers, &bytes)?;
    memory.put_u32(out, bytes.len())
}

pub(super) fn fd_pread(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    buffers: u32,
    count: u32,
    at: u64,
    out: u32,
) -> Done {
    let buffers = memory.buffers(buffers, count)?;
    if let Slot::Input = guest.files.slot(fd)? {
        return Err(Errno::SPIPE);
    }
    let bytes = guest.files.read(fd, Some(at), total(&buffers))?;
    memory.scatter(&buffers, &bytes)?;
    memory.put_u32(out, bytes.len())
}

pub(super) fn fd_write(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    at: u32,
    count: u32,
    out: u32,
) -> Done {
    let bytes = memory.gather(&memory.buffers(at, count)?, PIECE_BYTES_MAX)?;
    match guest.files.slot(fd)? {
        Slot::Output => guest.say(true, &bytes)?,
        Slot::Errors => guest.say(false, &bytes)?,
        _ => guest.files.write(fd, None, &bytes)?,
    }
    memory.put_u32(out, bytes.len())
}

pub(super) fn fd_pwrite(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    buffers: u32,
    count: u32,
    at: u64,
    out: u32,
) -> Done {
    let bytes = memory.gather(&memory.buffers(buffers, count)?, PIECE_BYTES_MAX)?;
    if let Slot::Output | Slot::Errors = guest.files.slot(fd)? {
        return Err(Errno::SPIPE);
    }
    guest.files.write(fd, Some(at), &bytes)?;
    memory.put_u32(out, bytes.len())
}

pub(super) fn fd_seek(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    by: i64,
    whence: u32,
    out: u32,
) -> Done {
    let at = guest.files.seek(fd, by, whence)?;
    memory.put_u64(out, at)
}

pub(super) fn fd_tell(mut memory: Memory, guest: &mut Guest, fd: u32, out: u32) -> Done {
    let at = guest.files.seek(fd, 0, 1)?;
    memory.put_u64(out, at)
}

pub(super) fn fd_close(_: Memory, guest: &mut Guest, fd: u32) -> Done {
    guest.files.close(fd)
}

pub(super) fn fd_readdir(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    at: u32,
    len: u32,
    place: u64,
    out: u32,
) -> Done {
    let room = memory.get(at, len)?.len().min(PIECE_BYTES_MAX);
    let bytes = guest.files.names(fd, place, room)?;
    memory.put(at, &bytes)?;
    memory.put_u32(out, bytes.len())
}

#[expect(clippy::too_many_arguments, reason = "WASI has that many")]
pub(super) fn path_open(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    lookup: u32,
    path: u32,
    len: u32,
    open: u32,
    rights: u64,
    _inherited: u64,
    flags: u32,
    out: u32,
) -> Done {
    let path = guest.files.path(fd, &memory.path(path, len)?)?;
    let fd = guest.files.open(&path, &How { lookup, open, rights, flags })?;
    memory.put_u32(out, fd as usize)
}

pub(super) fn path_filestat_get(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    lookup: u32,
    path: u32,
    len: u32,
    out: u32,
) -> Done {
    let path = guest.files.path(fd, &memory.path(path, len)?)?;
    memory.put(out, &guest.files.stat_at(&path, lookup)?.bytes())
}

#[expect(clippy::too_many_arguments, reason = "WASI has that many")]
pub(super) fn path_filestat_set_times(
    memory: Memory,
    guest: &mut Guest,
    fd: u32,
    lookup: u32,
    path: u32,
    len: u32,
    _read: u64,
    modified: u64,
    flags: u32,
) -> Done {
    let path = guest.files.path(fd, &memory.path(path, len)?)?;
    match modified_ns(guest, modified, flags) {
        Some(ns) => guest.files.set_modified_at(&path, lookup, ns),
        None => guest.files.stat_at(&path, lookup).map(drop),
    }
}

pub(super) fn path_create_directory(
    memory: Memory,
    guest: &mut Guest,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    guest.files.make_dir(&guest.files.path(fd, &memory.path(path, len)?)?)
}

pub(super) fn path_remove_directory(
    memory: Memory,
    guest: &mut Guest,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    guest.files.remove_dir(&guest.files.path(fd, &memory.path(path, len)?)?)
}

pub(super) fn path_unlink_file(
    memory: Memory,
    guest: &mut Guest,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    let path = guest.files.path(fd, &memory.path(path, len)?)?;
    guest.files.remove_file(&path)
}

#[expect(clippy::too_many_arguments, reason = "WASI has that many")]
pub(super) fn path_rename(
    memory: Memory,
    guest: &mut Guest,
    fd: u32,
    path: u32,
    len: u32,
    to_fd: u32,
    to: u32,
    to_len: u32,
) -> Done {
    let from = guest.files.path(fd, &memory.path(path, len)?)?;
    let to = guest.files.path(to_fd, &memory.path(to, to_len)?)?;
    guest.files.rename(&from, &to)
}

#[expect(clippy::too_many_arguments, reason = "WASI has that many")]
pub(super) fn path_link(
    memory: Memory,
    guest: &mut Guest,
    fd: u32,
    lookup: u32,
    path: u32,
    len: u32,
    to_fd: u32,
    to: u32,
    to_len: u32,
) -> Done {
    let from = guest.files.path(fd, &memory.path(path, len)?)?;
    let to = guest.files.path(to_fd, &memory.path(to, to_len)?)?;
    guest.files.link(&from, lookup, &to)
}

pub(super) fn path_symlink(
    memory: Memory,
    guest: &mut Guest,
    target: u32,
    target_len: u32,
    fd: u32,
    path: u32,
    len: u32,
) -> Done {
    let path = guest.files.path(fd, &memory.path(path, len)?)?;
    guest.files.symlink(&memory.path(target, target_len)?, &path)
}

#[expect(clippy::too_many_arguments, reason = "WASI has that many")]
pub(super) fn path_readlink(
    mut memory: Memory,
    guest: &mut Guest,
    fd: u32,
    path: u32,
    len: u32,
    at: u32,
    room: u32,
    out: u32,
) -> Done {
    let target = guest.files.read_link(&guest.files.path(fd, &memory.path(path, len)?)?)?;
    let told = &target[..target.len().min(room as usize)];
    memory.put(at, told)?;
    memory.put_u32(out, told.len())
}
