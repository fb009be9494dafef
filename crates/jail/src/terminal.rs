//! The caller's side of an interactive run: raw mode, window size, signals.

use crate::run::{Running, own};
use crate::sys::{fd, process};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The caller's terminal in raw mode; set back when dropped.
pub struct Terminal {
    caller: RawFd,
    before: libc::termios,
    inside: OwnedFd,
}

impl Terminal {
    /// Connects the caller's terminal to the one inside.
    pub fn attach(caller: Option<RawFd>, inside: &OwnedFd) -> Option<Terminal> {
        let caller = caller.filter(|caller| fd::is_terminal(*caller))?;
        let before = fd::terminal_settings(caller).ok()?;
        let terminal = Terminal { caller, before, inside: inside.try_clone().ok()? };
        terminal.resize();
        fd::set_terminal_settings(caller, &fd::raw_settings(&before)).ok()?;
        Some(terminal)
    }

    /// Copies the window's size inside.
    pub fn resize(&self) {
        if let Ok(size) = fd::window_size(self.caller) {
            let _ = fd::set_window_size(self.inside.as_raw_fd(), &size);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = fd::set_terminal_settings(self.caller, &self.before);
    }
}

/// Signals that people and init systems send to a command line.
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks them and reads them from a descriptor instead.
    pub fn take() -> Option<Signals> {
        let list = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH];
        process::signal_fd(&list).ok().map(|raw| Signals(own(raw)))
    }

    /// For polling.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Passes one on.
    pub fn forward(&self, running: &Running, screen: Option<&Terminal>) {
        let mut info = [0u8; 128];
        if fd::read(self.0.as_raw_fd(), &mut info) != Ok(info.len()) {
            return;
        }
        // The signal's number is the first field of `signalfd_siginfo`.
        let signal = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32;
        match (signal, screen) {
            (libc::SIGWINCH, Some(screen)) => screen.resize(),
            (libc::SIGWINCH, None) => {}
            (signal, _) => running.signal(signal),
        }
    }
}

/// Whether a descriptor is a terminal.
pub fn is_terminal(descriptor: &impl AsRawFd) -> bool {
    fd::is_terminal(descriptor.as_raw_fd())
}
