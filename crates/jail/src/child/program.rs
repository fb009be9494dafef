//! The program: the last fences, then the command itself.

use super::init::give_up;
use super::{Failure, Prepared};
use crate::sys::{Errno, fd, process, security};
use crate::wire::{self, Fence, Message};
use std::os::fd::RawFd;

/// The last steps of what becomes the command.
pub(super) fn program(prepared: &Prepared<'_>, stdio: [RawFd; 3]) -> ! {
    match become_program(prepared, stdio) {
        Ok(errno) => {
            let _ = Message::with(wire::EXEC_FAILED, 0, errno).send(prepared.control, None);
            process::exit_now(if errno == libc::ENOENT { 127 } else { 126 })
        }
        Err((fence, errno)) => {
            give_up(prepared, Message::with(wire::FENCE_FAILED, fence as i32, errno))
        }
    }
}

fn become_program(prepared: &Prepared<'_>, stdio: [RawFd; 3]) -> Result<Errno, Failure> {
    let at = |fence: Fence| move |errno: Errno| (fence, errno);
    let plan = prepared.plan;
    let _ = process::new_session();
    process::reset_signals();
    if prepared.door.is_some() {
        // There is no pid namespace that would end with init.
        let _ = security::die_with_parent();
    }
    if prepared.stdio.is_none() {
        process::take_terminal(stdio[0]).map_err(at(Fence::Terminal))?;
    }
    for (target, fd) in stdio.iter().enumerate() {
        fd::dup_onto(*fd, target as RawFd).map_err(at(Fence::Terminal))?;
    }
    fd::chdir(prepared.cwd).map_err(at(Fence::WorkingDirectory))?;
    for (resource, value) in &plan.rlimits {
        process::set_limit(*resource, *value).map_err(at(Fence::Limits))?;
    }
    if let Some(cpus) = plan.cpus {
        process::limit_cpus(cpus).map_err(at(Fence::Limits))?;
    }
    security::no_new_privileges().map_err(at(Fence::Capabilities))?;
    plan.landlock.apply().map_err(at(Fence::Landlock))?;
    security::keep_capabilities(plan.capabilities).map_err(at(Fence::Capabilities))?;
    super::copied::install_filter(prepared).map_err(at(Fence::Seccomp))?;
    Ok(exec_any(prepared))
}

/// Tries every place of `PATH`, like a shell would; returns the errno that
/// tells most.
fn exec_any(prepared: &Prepared<'_>) -> Errno {
    let mut telling = libc::ENOENT;
    for path in prepared.programs {
        let errno = process::exec(path, prepared.argv, prepared.envp);
        match errno {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::ENOEXEC => {
                // A script without `#!` is one for the shell.
                let mut argv = [std::ptr::null(); 256];
                let count = prepared.shell_argv.len().min(argv.len());
                argv[..count].copy_from_slice(&prepared.shell_argv[..count]);
                argv[1] = path.as_ptr();
                argv[count - 1] = std::ptr::null();
                return process::exec(c"/bin/sh", &argv[..count], prepared.envp);
            }
            // A directory of `PATH` that we may not search says nothing.
            libc::EACCES if !fd::exists(path) => {}
            other => telling = other,
        }
    }
    telling
}
