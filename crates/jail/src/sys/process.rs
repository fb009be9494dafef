//! Processes: clone, wait, signals, limits, identity.

use super::{Sys, check, check_int};
use std::ffi::CStr;
use std::os::fd::RawFd;

/// A child as its parent sees it.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    /// Its pid in our namespace.
    pub pid: i32,
    /// A descriptor that stays right when the pid is reused.
    pub pidfd: RawFd,
}

#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Splits this process in two, with new namespaces for the child by `flags`.
/// Returns `None` in the child.
///
/// The child has one thread and a copy of the caller's memory in whatever
/// state other threads left it: until it calls `exec` or `exit_now` it may use
/// nothing that allocates or locks. That is the rule of the `child` module.
pub fn split(flags: u64, exit_signal: i32) -> Sys<Option<Child>> {
    let mut pidfd: libc::c_int = -1;
    let args = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        // Mostly none: an embedding program's SIGCHLD handler must not see our
        // children. They are waited for with `__WALL`.
        exit_signal: exit_signal as u64,
        ..CloneArgs::default()
    };
    // SAFETY: `args` is a live `clone_args` of the size we pass; without
    // CLONE_VM the child works on its own copy of this stack.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&args), size_of::<CloneArgs>())
    });
    let pid = match pid {
        // Containers refuse what their filter cannot look into.
        Err(libc::ENOSYS) => old_clone(&args)?,
        other => other?,
    };
    Ok((pid != 0).then_some(Child { pid: pid as i32, pidfd }))
}

/// The same by the older call, which returns the pidfd where it would put the
/// child's id.
fn old_clone(args: &CloneArgs) -> Sys<libc::c_long> {
    let flags = args.flags | args.exit_signal;
    // SAFETY: the pidfd's place is live; a null stack means a copy of ours,
    // and the other arguments are not asked for by the flags.
    check(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, args.pidfd, 0usize, 0usize) })
}

/// Runs `job` in a process of its own that is nobody's child to wait for.
///
/// Unlike after [`split`], the new process may allocate, whatever threads we
/// have: the C library's `fork` brings its allocator into order. It must not
/// touch other locks.
pub fn fork_detached(job: impl FnOnce() -> std::convert::Infallible) -> Sys<()> {
    // SAFETY: see above; neither child returns from here.
    let middle = check_int(unsafe { libc::fork() })?;
    if middle == 0 {
        // SAFETY: this process has a single thread.
        if unsafe { libc::fork() } == 0 {
            job();
        }
        exit_now(0);
    }
    let _ = wait(middle, true);
    Ok(())
}

/// Lets children vanish when they end, or not.
pub fn ignore_children(ignore: bool) {
    let what = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: both are valid for this signal.
    unsafe { libc::signal(libc::SIGCHLD, what) };
}

/// Stack of a child that shares our memory; what runs on it is shallow.
const CHILD_STACK_BYTES: usize = 128 * 1024;

/// Starts a child that runs `job` on a stack of its own but in our memory, as
/// `vfork` does: we sleep until it executes a program or ends. Copying the
/// page tables for it would be the larger part of the cost.
pub fn start_sharing_memory(job: &mut dyn FnMut() -> i32, exit_signal: i32) -> Sys<i32> {
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `argument` points at the fat reference below, which lives
        // on the parent's stack while the parent sleeps.
        let job = unsafe { &mut *argument.cast::<&mut dyn FnMut() -> i32>() };
        job()
    }
    // Mapped rather than on our own stack: only the pages that the child
    // touches are ever made.
    // SAFETY: a fresh private mapping, in nobody's way.
    let stack = unsafe {
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), CHILD_STACK_BYTES, rights, kind, -1, 0)
    };
    if stack == libc::MAP_FAILED {
        return Err(libc::ENOMEM);
    }
    let mut argument = job;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | exit_signal;
    // SAFETY: the stack outlives the child's use of it, because CLONE_VFORK
    // keeps us asleep until the child has left our memory; it grows down from
    // the end, which is aligned to a page. Nobody uses it afterwards.
    unsafe {
        let top = stack.cast::<u8>().add(CHILD_STACK_BYTES);
        let argument = std::ptr::from_mut(&mut argument);
        let started = check_int(libc::clone(enter, top.cast(), flags, argument.cast()));
        libc::munmap(stack, CHILD_STACK_BYTES);
        started
    }
}

/// Calls `job` with the pid of a child in new namespaces that does nothing,
/// and ends the child afterwards, if `job` has not. It shares our memory, which
/// makes it cheap.
pub fn with_sleeper<R>(flags: i32, job: impl FnOnce(i32) -> R) -> Sys<R> {
    extern "C" fn sleep(parent: *mut libc::c_void) -> libc::c_int {
        // Should the parent end before it can end us. Raw calls, because
        // `errno` is the parent's too.
        // SAFETY: plain integers.
        unsafe {
            libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            while libc::syscall(libc::SYS_getppid) == parent as libc::c_long {
                libc::syscall(libc::SYS_ppoll, 0usize, 0usize, 0usize, 0usize);
            }
        }
        0
    }
    let parent = std::process::id() as usize as *mut libc::c_void;
    let mut stack = [0u64; 512];
    // SAFETY: the stack outlives the child, which is dead before we return;
    // the child loops in a system call and touches nothing else of ours.
    let pid = check_int(unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(sleep, top.cast(), libc::CLONE_VM | flags, parent)
    })?;
    let result = job(pid);
    let _ = kill(pid, libc::SIGKILL);
    let _ = wait(pid, true);
    Ok(result)
}

/// Ends this process at once, without destructors.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(status) }
}

/// Moves this process into new namespaces.
pub fn unshare(flags: i32) -> Sys<()> {
    // SAFETY: plain integer.
    check_int(unsafe { libc::unshare(flags) }).map(|_| ())
}

/// Moves this process into an existing namespace.
pub fn enter_namespace(fd: RawFd, kind: i32) -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::setns(fd, kind) }).map(|_| ())
}

/// A child that ended: its pid and wait status.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its pid.
    pub pid: i32,
    /// As `wait` reports it.
    pub status: i32,
}

/// Reaps any child (`pid` -1) or one child. `None` when none has ended and
/// `block` is false.
pub fn wait(pid: i32, block: bool) -> Sys<Option<(Ended, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: both out-pointers are live.
        match check_int(unsafe { libc::wait4(pid, &mut status, flags, &mut usage) }) {
            Err(libc::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((Ended { pid, status }, usage))),
        }
    }
}

/// Whether a wait status tells of a stop, and of which.
pub fn stop_of(status: i32) -> Option<Stop> {
    libc::WIFSTOPPED(status).then(|| Stop::of(status >> 8))
}

/// Why a traced thread stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// A signal that it was about to get; 0 for none.
    pub signal: i32,
}

impl Stop {
    /// The kernel puts the event, if it was one, above the signal.
    fn of(code: i32) -> Stop {
        Stop { signal: if code >> 8 == 0 { code & 0x7f } else { 0 } }
    }
}

/// Begins to trace a thread, which neither it nor its parent can see. What it
/// forks is traced too.
pub fn trace(thread: i32) -> Sys<()> {
    let options = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    ptrace(libc::PTRACE_SEIZE as libc::c_long, thread, options as usize)
}

/// Lets a traced thread stand still as soon as its system call is over.
pub fn interrupt(thread: i32) -> Sys<()> {
    ptrace(libc::PTRACE_INTERRUPT as libc::c_long, thread, 0)
}

/// Ends tracing; the thread goes on with the signal it was about to get.
pub fn untrace(thread: i32, stop: Stop) -> Sys<()> {
    ptrace(libc::PTRACE_DETACH as libc::c_long, thread, stop.signal as usize)
}

fn ptrace(request: libc::c_long, thread: i32, data: usize) -> Sys<()> {
    // SAFETY: none of the three requests above takes a pointer.
    check(unsafe { libc::syscall(libc::SYS_ptrace, request, libc::c_long::from(thread), 0, data) })
        .map(|_| ())
}

/// Why a thread that we trace stands still; `None` when it does not. Leaves an
/// end to be reaped by others.
pub fn stopped(thread: i32) -> Sys<Option<Stop>> {
    // SAFETY: all-zero bytes are a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    // SAFETY: `info` is live and written by the call.
    check_int(unsafe { libc::waitid(libc::P_PID, thread as libc::id_t, &mut info, flags) })?;
    // SAFETY: the call above filled the fields that these read.
    let (pid, code) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then(|| Stop::of(code)))
}

/// What all reaped children used together.
pub fn children_usage() -> libc::rusage {
    // SAFETY: all-zero bytes are a valid `rusage`; the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    }
}

/// Sends a signal to a process or, if negative, to a group.
pub fn kill(pid: i32, signal: i32) -> Sys<()> {
    // SAFETY: plain integers.
    check_int(unsafe { libc::kill(pid, signal) }).map(|_| ())
}

/// Sends a signal through a pidfd.
pub fn kill_pidfd(pidfd: RawFd, signal: i32) -> Sys<()> {
    // SAFETY: a null siginfo asks for the default one.
    check(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, std::ptr::null::<u8>(), 0)
    })
    .map(|_| ())
}

/// A descriptor for a process that need not be our child.
pub fn open_pidfd(pid: i32) -> Sys<RawFd> {
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).map(|fd| fd as RawFd)
}

/// Blocks every signal and returns a descriptor that tells of `SIGCHLD`.
pub fn child_signal_fd() -> Sys<RawFd> {
    // SAFETY: the sets are live and initialised by the calls before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut one);
        libc::sigaddset(&mut one, libc::SIGCHLD);
        check_int(libc::signalfd(-1, &one, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}

/// Blocks a few signals of this thread and returns a descriptor to read them.
pub fn signal_fd(signals: &[i32]) -> Sys<RawFd> {
    // SAFETY: the set is live and emptied before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        check_int(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}

/// Takes back what [`signal_fd`] blocked.
pub fn unblock_signals(signals: &[i32]) {
    // SAFETY: the set is live and emptied before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Blocks every signal.
pub fn block_signals() {
    // SAFETY: the set is live and filled before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Gives every signal its default action and unblocks all of them, as a new
/// program expects.
pub fn reset_signals() {
    // `exec` itself resets handlers; what the caller ignores would stay so.
    // Nobody ignores real-time signals, so those are left out.
    // SAFETY: SIG_DFL is valid for every signal; KILL and STOP just fail.
    unsafe {
        for signal in 1..=31 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Starts a session of our own, away from any terminal.
pub fn new_session() -> Sys<()> {
    // SAFETY: no arguments.
    check_int(unsafe { libc::setsid() }).map(|_| ())
}

/// Makes a terminal the controlling one of our session.
pub fn take_terminal(fd: RawFd) -> Sys<()> {
    // SAFETY: TIOCSCTTY takes an int by value.
    check_int(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) }).map(|_| ())
}

/// Becomes a user and group for good, with no supplementary groups left
/// (unless `keep_groups`: rootless user namespaces forbid the call).
pub fn become_user(uid: u32, gid: u32, keep_groups: bool) -> Sys<()> {
    // SAFETY: plain integers; a null list of length 0 is valid. The raw calls
    // are used because libc's wrappers signal all threads of the process.
    unsafe {
        if !keep_groups {
            check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()))?;
        }
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Makes files as another user while keeping all capabilities, as an
/// overlay's mounter must on shifted layers.
pub fn act_as(uid: u32, gid: u32) -> Sys<()> {
    /// Changing the user does not touch capabilities.
    const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;
    // SAFETY: plain integers. The bits are set back at once: inherited, they
    // would let a program keep its capabilities after giving up root.
    unsafe {
        check_int(libc::prctl(libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0))?;
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        check_int(libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0)).map(|_| ())
    }
}

/// Sets a limit of this process, lowering to the hard limit where raising it
/// is not allowed.
pub fn set_limit(resource: u32, value: u64) -> Sys<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is a live, writable rlimit.
    check_int(unsafe { libc::getrlimit(resource as _, &mut now) })?;
    let value = value.min(now.rlim_max);
    let next = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `next` is a live rlimit.
    check_int(unsafe { libc::setrlimit(resource as _, &next) }).map(|_| ())
}

/// Replaces this program; returns only the errno of a failure.
pub fn exec(path: &CStr, argv: &[*const libc::c_char], envp: &[*const libc::c_char]) -> i32 {
    debug_assert!(argv.last().is_some_and(|last| last.is_null()));
    debug_assert!(envp.last().is_some_and(|last| last.is_null()));
    // SAFETY: both arrays end with a null pointer and point at strings that
    // live until the program is replaced.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    super::errno()
}

/// Restricts this process to the first `count` cpus it may use.
pub fn limit_cpus(count: usize) -> Sys<()> {
    // SAFETY: all-zero bytes are an empty cpu set; the calls stay in bounds.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        check_int(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed))?;
        let mut few: libc::cpu_set_t = std::mem::zeroed();
        let mut taken = 0;
        for cpu in 0..libc::CPU_SETSIZE as usize {
            if libc::CPU_ISSET(cpu, &allowed) && taken < count {
                libc::CPU_SET(cpu, &mut few);
                taken += 1;
            }
        }
        check_int(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &few)).map(|_| ())
    }
}

/// Milliseconds of a clock that only moves forward.
pub fn monotonic_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is live; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Sleeps; only for retry loops off the critical path.
pub fn sleep_ms(ms: u64) {
    let time = libc::timespec { tv_sec: (ms / 1000) as _, tv_nsec: (ms % 1000 * 1_000_000) as _ };
    // SAFETY: `time` is live; the remainder is not asked for.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

/// Our pid.
pub fn own_pid() -> i32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { libc::getpid() }
}

/// User and group ids that the kernel acts for.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments; cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}
