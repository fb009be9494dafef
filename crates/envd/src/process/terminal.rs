//! Terminals for processes that want one.
//!
//! A process gets a terminal as its own only by asking for it itself, between
//! its start and the program. So we start ourselves once more under another
//! name ([`TAKE_TERMINAL`]), which asks, puts on the user and becomes the
//! program.

use crate::connect::Failure;
use crate::users::User;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::process::Command;

/// The first word of a command line that is for [`take`].
pub const TAKE_TERMINAL: &str = "envd-terminal";

/// In the place of an id that stays as it is.
pub const SAME: &str = "-";

/// Columns and rows.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default)]
pub struct Size {
    cols: u32,
    rows: u32,
}

impl Default for Size {
    fn default() -> Size {
        Size { cols: 80, rows: 24 }
    }
}

impl Size {
    fn window(self) -> Winsize {
        let cells = |count: u32| u16::try_from(count.max(1)).unwrap_or(u16::MAX);
        Winsize { ws_row: cells(self.rows), ws_col: cells(self.cols), ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// Our side of a terminal. Reading and writing happen on threads that may
/// block: nothing else waits on a terminal without trusting its descriptor.
pub struct Master(tokio::fs::File);

/// The same, for changing its size.
pub struct Screen(OwnedFd);

/// A new terminal: our side twice, for what comes and what goes, and what the
/// process gets as its descriptors.
pub fn open(size: Size) -> io::Result<(Master, Master, Screen, [Stdio; 3])> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    tcsetwinsize(&master, size.window())?;
    let name = ptsname(&master, Vec::new())?;
    let path = Path::new(OsStr::from_bytes(name.as_bytes()));
    let noctty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap_or_default();
    let theirs = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path)?;
    let stdio = [theirs.try_clone()?.into(), theirs.try_clone()?.into(), theirs.into()];
    let ours = || Ok::<_, io::Error>(Master(std::fs::File::from(master.try_clone()?).into()));
    Ok((ours()?, ours()?, Screen(master), stdio))
}

/// What starts a program that takes its terminal first; the program's own
/// arguments follow.
pub fn command(user: &User, can_switch: bool, program: &str) -> Command {
    let id = |id: u32| if can_switch { id.to_string() } else { SAME.to_owned() };
    let mut command = Command::new("/proc/self/exe");
    command.args([TAKE_TERMINAL, &id(user.uid), &id(user.gid), program]);
    command
}

/// Becomes the program; only what prevents it comes back.
pub fn take(words: Vec<OsString>) -> io::Error {
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, "UID GID PROGRAM [ARGS]");
    let [uid, gid, program, args @ ..] = words.as_slice() else { return usage() };
    let taken = rustix::process::setsid()
        .and_then(|_| rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()));
    if let Err(error) = taken {
        return error.into();
    }
    let mut command = std::process::Command::new(program);
    command.args(args);
    for (word, is_user) in [(uid, true), (gid, false)] {
        if word == SAME {
            continue;
        }
        let Some(id) = word.to_str().and_then(|text| text.parse().ok()) else { return usage() };
        let _ = if is_user { command.uid(id) } else { command.gid(id) };
    }
    command.exec()
}

impl Screen {
    pub fn resize(&self, size: Size) -> Result<(), Failure> {
        tcsetwinsize(&self.0, size.window())
            .map_err(|error| Failure::of(&error.into(), "cannot resize the terminal"))
    }
}

impl Master {
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }
}

impl AsyncRead for Master {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}
