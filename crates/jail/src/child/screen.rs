//! The terminal of a caller that died, as it was before.
//!
//! An interactive caller puts its terminal into raw mode and sets it back in
//! the end. Killed with `kill -9` it cannot, and its user would be left with a
//! terminal that shows nothing of what is typed. The monitor remembers.

use super::Prepared;
use crate::sys::fd;
use std::os::fd::RawFd;

/// The terminal, and its settings from before the caller touched them.
pub(super) struct Screen(Option<(RawFd, libc::termios)>);

impl Screen {
    pub fn remember(prepared: &Prepared<'_>) -> Screen {
        Screen(prepared.screen.and_then(|fd| Some((fd, fd::terminal_settings(fd).ok()?))))
    }

    /// Called when the caller died. Many shells set the terminal back by
    /// themselves, and may have gone on to settings of their own: only those
    /// that the caller made are undone.
    pub fn restore(&self) {
        let Some((screen, before)) = &self.0 else { return };
        let raw = fd::raw_settings(before);
        if fd::terminal_settings(*screen).is_ok_and(|now| is_same(&now, &raw)) {
            let _ = fd::set_terminal_settings_now(*screen, before);
        }
    }

    /// Whoever waits for the terminal's last user must not wait for us.
    pub fn close(&mut self) {
        self.0.take().into_iter().for_each(|(screen, _)| fd::close(screen));
    }
}

fn is_same(a: &libc::termios, b: &libc::termios) -> bool {
    (a.c_iflag, a.c_oflag, a.c_cflag, a.c_lflag) == (b.c_iflag, b.c_oflag, b.c_cflag, b.c_lflag)
        && a.c_cc == b.c_cc
}
