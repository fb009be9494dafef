//! Our side of a shell's terminal.

use rustix::fs::OFlags;
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize,
};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use tokio::net::unix::pipe::{Receiver, Sender};

/// The size that terminals have where nobody says another one.
const WINDOW: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

/// A terminal that shows nothing of what is typed. It is waited for like a pipe:
/// both are descriptors that become ready.
pub struct Tty {
    shown: Receiver,
    typed: Sender,
    master: OwnedFd,
    /// How it is when a shell waits for a line.
    plain: Termios,
}

impl Tty {
    /// A new one, and what its shell gets as its descriptors.
    pub fn open() -> io::Result<(Tty, [Stdio; 3])> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let noctty = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
        let theirs = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path)?;
        tcsetwinsize(&master, WINDOW)?;
        let mut plain = tcgetattr(&theirs)?;
        plain.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&theirs, OptionalActions::Now, &plain)?;
        rustix::fs::fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
        let shown = Receiver::from_owned_fd_unchecked(master.try_clone()?)?;
        let typed = Sender::from_owned_fd_unchecked(master.try_clone()?)?;
        let stdio = [theirs.try_clone()?.into(), theirs.try_clone()?.into(), theirs.into()];
        Ok((Tty { shown, typed, master, plain }, stdio))
    }

    /// As it was at first, whatever programs have made of it.
    pub fn restore(&self) {
        // One that is gone is seen by who reads from it.
        let _ = tcsetattr(&self.master, OptionalActions::Now, &self.plain);
    }

    /// The group of processes that what is typed goes to.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.master).ok()
    }

    pub async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.typed.writable().await?;
            match self.typed.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => bytes = &bytes[written?..],
            }
        }
        Ok(())
    }

    /// What was shown; nothing once nobody can show any more.
    pub async fn read(&self, chunk: &mut [u8]) -> usize {
        loop {
            if self.shown.readable().await.is_err() {
                return 0;
            }
            match self.shown.try_read(chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A terminal whose last process is gone fails instead of ending.
                read => return read.unwrap_or_default(),
            }
        }
    }
}
