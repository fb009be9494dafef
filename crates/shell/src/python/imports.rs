//! The calls that the guest makes of its host. There are no others: what is
//! not here cannot be asked for.

use super::abi::{APPEND, BASHKIT, Done, Errno, MODIFIED, MODIFIED_NOW, WASI};
use super::files::{How, PIECE_BYTES_MAX, ROOT, Slot};
use super::guest::{End, Guest};
use super::memory::{Buffer, Memory};
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use wasmtime::{Caller, Extern, Linker};

/// Random bytes that one call gives at most.
const RANDOM_BYTES_MAX: u32 = 1 << 20;

/// The longest that one call waits; no program runs for so long.
const WAIT_MAX: Duration = Duration::from_secs(1 << 30);

/// How the guest's side of the network names an error of the connection.
const NETWORK_ERROR: u32 = 1;
const NO_NETWORK: &[u8] = b"there is no network in the virtual world";

/// The guest and its memory.
fn parts<'a>(caller: &'a mut Caller<'_, Guest>) -> Done<(Memory<'a>, &'a mut Guest)> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(Errno::FAULT);
    };
    let (bytes, guest) = memory.data_and_store_mut(caller);
    Ok((Memory(bytes), guest))
}

/// The number that a call answers with; none if the program ends with it.
fn answer(caller: &Caller<'_, Guest>, done: Done) -> wasmtime::Result<u32> {
    match caller.data().end {
        Some(end) => Err(wasmtime::Error::new(end)),
        None => Ok(done.map_or_else(|errno| u32::from(errno.0), |()| 0)),
    }
}

/// Makes functions of a memory and a guest known as imports.
macro_rules! imports {
    ($linker:expr, $($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $linker.func_wrap(
            WASI,
            stringify!($name),
            |mut caller: Caller<'_, Guest>, $($arg: $ty),*| {
                let done = parts(&mut caller).and_then(|(memory, guest)| {
                    $name(memory, guest, $($arg),*)
                });
                answer(&caller, done)
            },
        )?;
    )*};
}

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    imports!(linker,
        args_sizes_get(count: u32, size: u32);
        args_get(table: u32, place: u32);
        environ_sizes_get(count: u32, size: u32);
        environ_get(table: u32, place: u32);
        clock_res_get(id: u32, out: u32);
        clock_time_get(id: u32, precision: u64, out: u32);
        random_get(at: u32, len: u32);
        fd_prestat_get(fd: u32, out: u32);
        fd_prestat_dir_name(fd: u32, out: u32, len: u32);
        fd_fdstat_get(fd: u32, out: u32);
        fd_fdstat_set_flags(fd: u32, flags: u32);
        fd_filestat_get(fd: u32, out: u32);
        fd_filestat_set_size(fd: u32, size: u64);
        fd_filestat_set_times(fd: u32, read: u64, modified: u64, flags: u32);
        fd_advise(fd: u32, at: u64, len: u64, advice: u32);
        fd_sync(fd: u32);
        fd_datasync(fd: u32);
        fd_read(fd: u32, buffers: u32, count: u32, out: u32);
        fd_pread(fd: u32, buffers: u32, count: u32, at: u64, out: u32);
        fd_write(fd: u32, buffers: u32, count: u32, out: u32);
        fd_pwrite(fd: u32, buffers: u32, count: u32, at: u64, out: u32);
        fd_seek(fd: u32, by: i64, whence: u32, out: u32);
        fd_tell(fd: u32, out: u32);
        fd_close(fd: u32);
        fd_readdir(fd: u32, at: u32, len: u32, place: u64, out: u32);
        path_open(fd: u32, lookup: u32, path: u32, len: u32, open: u32, rights: u64,
                  inherited: u64, flags: u32, out: u32);
        path_filestat_get(fd: u32, lookup: u32, path: u32, len: u32, out: u32);
        path_filestat_set_times(fd: u32, lookup: u32, path: u32, len: u32, read: u64,
                                modified: u64, flags: u32);
        path_create_directory(fd: u32, path: u32, len: u32);
        path_remove_directory(fd: u32, path: u32, len: u32);
        path_unlink_file(fd: u32, path: u32, len: u32);
        path_rename(fd: u32, path: u32, len: u32, to_fd: u32, to: u32, to_len: u32);
        path_link(fd: u32, lookup: u32, path: u32, len: u32, to_fd: u32, to: u32, to_len: u32);
        path_symlink(target: u32, target_len: u32, fd: u32, path: u32, len: u32);
        path_readlink(fd: u32, path: u32, len: u32, at: u32, room: u32, out: u32);
    );
    waiting_and_ending(linker)?;
    no_network(linker)
}

fn waiting_and_ending(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "sched_yield", || 0u32)?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(End::Exit(code)))
    })?;
    linker.func_wrap_async(
        WASI,
        "poll_oneoff",
        |mut caller: Caller<'_, Guest>, (asked, events, count, out): (u32, u32, u32, u32)| {
            Box::new(async move {
                let done = poll_oneoff(&mut caller, asked, events, count, out).await;
                answer(&caller, done)
            })
        },
    )?;
    Ok(())
}

async fn poll_oneoff(
    caller: &mut Caller<'_, Guest>,
    asked: u32,
    events: u32,
    count: u32,
    out: u32,
) -> Done {
    let (memory, guest) = parts(caller)?;
    let waiting = guest.clock.waiting(&memory, asked, count)?;
    let wake = guest.clock.wake.clone();
    let until = Instant::now() + waiting.time().min(WAIT_MAX);
    poll_fn(|_| match Instant::now() >= until {
        true => Poll::Ready(()),
        false => {
            wake.set(Some(until));
            Poll::Pending
        }
    })
    .await;
    wake.set(None);
    let (mut memory, _) = parts(caller)?;
    let told = waiting.tell(&mut memory, events)?;
    memory.put_u32(out, told)
}

/// Sockets and requests are refused.
fn no_network(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    const REFUSED: u32 = Errno::NOTSUP.0 as u32;
    linker.func_wrap(WASI, "sock_accept", |_: u32, _: u32, _: u32| REFUSED)?;
    linker.func_wrap(WASI, "sock_shutdown", |_: u32, _: u32| REFUSED)?;
    linker.func_wrap(WASI, "sock_send", |_: u32, _: u32, _: u32, _: u32, _: u32| REFUSED)?;
    linker
        .func_wrap(WASI, "sock_recv", |_: u32, _: u32, _: u32, _: u32, _: u32, _: u32| REFUSED)?;
    linker.func_wrap(
        BASHKIT,
        "http_request",
        |mut caller: Caller<'_, Guest>, _: u32, _: u32, _: i64, out: u32| {
            let Ok((mut memory, guest)) = parts(&mut caller) else { return u32::MAX };
            guest.refusal = Some(NO_NETWORK);
            memory.put_u32(out, NO_NETWORK.len()).map_or(u32::MAX, |()| NETWORK_ERROR)
        },
    )?;
    linker.func_wrap(
        BASHKIT,
        "http_take",
        |mut caller: Caller<'_, Guest>, at: u32, len: u32| {
            let Ok((mut memory, guest)) = parts(&mut caller) else { return u32::MAX };
            match guest.refusal.take() {
                Some(text) if text.len() == len as usize => {
                    memory.put(at, text).map_or(u32::MAX, |()| 0)
                }
                _ => u32::MAX,
            }
        },
    )?;
    Ok(())
}

fn args_sizes_get(mut memory: Memory, guest: &mut Guest, count: u32, size: u32) -> Done {
    memory.put_u32(count, guest.args.len())?;
    memory.put_u32(size, guest.args.iter().map(|text| text.len() + 1).sum())
}

fn args_get(mut memory: Memory, guest: &mut Guest, table: u32, place: u32) -> Done {
    memory.put_texts(&guest.args, table, place)
}

fn environ_sizes_get(mut memory: Memory, guest: &mut Guest, count: u32, size: u32) -> Done {
    memory.put_u32(count, guest.env.len())?;
    memory.put_u32(size, guest.env.iter().map(|text| text.len() + 1).sum())
}

fn environ_get(mut memory: Memory, guest: &mut Guest, table: u32, place: u32) -> Done {
    memory.put_texts(&guest.env, table, place)
}

fn clock_res_get(mut memory: Memory, _: &mut Guest, _id: u32, out: u32) -> Done {
    memory.put_u64(out, 1)
}

fn clock_time_get(mut memory: Memory, guest: &mut Guest, id: u32, _: u64, out: u32) -> Done {
    memory.put_u64(out, guest.clock.now_ns(id))
}

fn random_get(mut memory: Memory, _: &mut Guest, at: u32, len: u32) -> Done {
    if len > RANDOM_BYTES_MAX {
        return Err(Errno::INVAL);
    }
    getrandom::fill(memory.get_mut(at, len)?).map_err(|_| Errno::IO)
}

fn fd_prestat_get(mut memory: Memory, _: &mut Guest, fd: u32, out: u32) -> Done {
    if fd != ROOT {
        return Err(Errno::BADF);
    }
    // A directory whose name is one byte long.
    memory.put(out, &[0, 0, 0, 0, 1, 0, 0, 0])
}

fn fd_prestat_dir_name(mut memory: Memory, _: &mut Guest, fd: u32, out: u32, len: u32) -> Done {
    match (fd, len) {
        (ROOT, 0) => Err(Errno::INVAL),
        (ROOT, _) => memory.put(out, b"/"),
        _ => Err(Errno::BADF),
    }
}

fn fd_fdstat_get(mut memory: Memory, guest: &mut Guest, fd: u32, out: u32) -> Done {
    memory.put(out, &guest.files.descriptor(fd)?)
}

fn fd_fdstat_set_flags(_: Memory, guest: &mut Guest, fd: u32, flags: u32) -> Done {
    guest.files.set_append(fd, flags & APPEND != 0)
}

fn fd_filestat_get(mut memory: Memory, guest: &mut Guest, fd: u32, out: u32) -> Done {
    memory.put(out, &guest.files.stat(fd)?.bytes())
}

fn fd_filestat_set_size(_: Memory, guest: &mut Guest, fd: u32, size: u64) -> Done {
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

fn fd_filestat_set_times(
    _: Memory,
    guest: &mut Guest,
    fd: u32,
    _read: u64,
    modified: u64,
    flags: u32,
) -> Done {
    modified_ns(guest, modified, flags).map_or(Ok(()), |ns| guest.files.set_modified(fd, ns))
}

fn fd_advise(_: Memory, guest: &mut Guest, fd: u32, _: u64, _: u64, _: u32) -> Done {
    guest.files.slot(fd).map(drop)
}

fn fd_sync(_: Memory, guest: &mut Guest, fd: u32) -> Done {
    guest.files.slot(fd).map(drop)
}

fn fd_datasync(_: Memory, guest: &mut Guest, fd: u32) -> Done {
    guest.files.slot(fd).map(drop)
}

fn total(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len as usize).sum()
}

fn fd_read(mut memory: Memory, guest: &mut Guest, fd: u32, at: u32, count: u32, out: u32) -> Done {
    let buffers = memory.buffers(at, count)?;
    let bytes = match guest.files.slot(fd)? {
        Slot::Input => guest.read_input(total(&buffers)),
        _ => guest.files.read(fd, None, total(&buffers))?,
    };
    memory.scatter(&buffers, &bytes)?;
    memory.put_u32(out, bytes.len())
}

fn fd_pread(
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

fn fd_write(mut memory: Memory, guest: &mut Guest, fd: u32, at: u32, count: u32, out: u32) -> Done {
    let bytes = memory.gather(&memory.buffers(at, count)?, PIECE_BYTES_MAX)?;
    match guest.files.slot(fd)? {
        Slot::Output => guest.say(true, &bytes)?,
        Slot::Errors => guest.say(false, &bytes)?,
        _ => guest.files.write(fd, None, &bytes)?,
    }
    memory.put_u32(out, bytes.len())
}

fn fd_pwrite(
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

fn fd_seek(mut memory: Memory, guest: &mut Guest, fd: u32, by: i64, whence: u32, out: u32) -> Done {
    let at = guest.files.seek(fd, by, whence)?;
    memory.put_u64(out, at)
}

fn fd_tell(mut memory: Memory, guest: &mut Guest, fd: u32, out: u32) -> Done {
    let at = guest.files.seek(fd, 0, 1)?;
    memory.put_u64(out, at)
}

fn fd_close(_: Memory, guest: &mut Guest, fd: u32) -> Done {
    guest.files.close(fd)
}

fn fd_readdir(
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
fn path_open(
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

fn path_filestat_get(
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
fn path_filestat_set_times(
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

fn path_create_directory(memory: Memory, guest: &mut Guest, fd: u32, path: u32, len: u32) -> Done {
    guest.files.make_dir(&guest.files.path(fd, &memory.path(path, len)?)?)
}

fn path_remove_directory(memory: Memory, guest: &mut Guest, fd: u32, path: u32, len: u32) -> Done {
    guest.files.remove_dir(&guest.files.path(fd, &memory.path(path, len)?)?)
}

fn path_unlink_file(memory: Memory, guest: &mut Guest, fd: u32, path: u32, len: u32) -> Done {
    let path = guest.files.path(fd, &memory.path(path, len)?)?;
    guest.files.remove_file(&path)
}

#[expect(clippy::too_many_arguments, reason = "WASI has that many")]
fn path_rename(
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
fn path_link(
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

fn path_symlink(
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
fn path_readlink(
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
