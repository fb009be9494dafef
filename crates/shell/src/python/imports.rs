//! The calls that the guest makes of its host. There are no others: what is
//! not here cannot be asked for.

use super::abi::{BASHKIT, Done, Errno, WASI};
use super::calls;
use super::guest::{End, Guest};
use super::memory::Memory;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use wasmtime::{Caller, Extern, Linker};

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

/// Makes functions of [`calls`] known as imports.
macro_rules! imports {
    ($linker:expr, $($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $linker.func_wrap(
            WASI,
            stringify!($name),
            |mut caller: Caller<'_, Guest>, $($arg: $ty),*| {
                let done = parts(&mut caller).and_then(|(memory, guest)| {
                    calls::$name(memory, guest, $($arg),*)
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
