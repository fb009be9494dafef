//! The caller's side of an interactive run: raw mode, window size, signals.

use crate::JailError;
use crate::run::{Running, own};
use crate::sys::{fd, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

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

/// Whoever sits at a terminal from afar: bytes that were typed, and apart from
/// them words about the window. Closing the latter hangs up.
#[derive(Debug)]
pub struct FarEnd {
    typed: OwnedFd,
    words: OwnedFd,
    size: libc::winsize,
    inside: Option<OwnedFd>,
}

/// What came of listening to a far end.
#[derive(PartialEq, Eq)]
pub(crate) enum Heard {
    Word,
    Gone,
}

/// A window's size: columns, rows.
pub type Size = (u16, u16);

impl FarEnd {
    /// Bytes of one word on the second descriptor.
    pub const WORD_BYTES: usize = 4;

    /// Typed bytes come from the first descriptor, words from the second.
    pub fn new(typed: OwnedFd, words: OwnedFd, size: Size) -> FarEnd {
        FarEnd { typed, words, size: winsize(size), inside: None }
    }

    /// The word that says how large the window is now.
    pub fn word((columns, rows): Size) -> [u8; FarEnd::WORD_BYTES] {
        let ([a, b], [c, d]) = (columns.to_be_bytes(), rows.to_be_bytes());
        [a, b, c, d]
    }

    /// Where typed bytes come from.
    pub(crate) fn typed(&self) -> Result<Option<OwnedFd>, JailError> {
        let copy = self.typed.try_clone();
        copy.map(Some).map_err(|error| JailError::System {
            what: "copy a descriptor".into(),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }

    /// Takes the terminal inside, and gives it its size.
    pub(crate) fn attach(&mut self, inside: &OwnedFd) {
        let _ = fd::set_window_size(inside.as_raw_fd(), &self.size);
        self.inside = inside.try_clone().ok();
    }

    /// For polling.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.words.as_raw_fd()
    }

    /// Takes in the next word. They are sent whole and are read whole.
    pub(crate) fn hear(&mut self) -> Heard {
        let mut word = [0; FarEnd::WORD_BYTES];
        match fd::read(self.words.as_raw_fd(), &mut word) {
            Ok(FarEnd::WORD_BYTES) => {
                let [a, b, c, d] = word;
                self.size = winsize((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
                if let Some(inside) = &self.inside {
                    let _ = fd::set_window_size(inside.as_raw_fd(), &self.size);
                }
                Heard::Word
            }
            Err(libc::EAGAIN) => Heard::Word,
            _ => Heard::Gone,
        }
    }
}

fn winsize((columns, rows): Size) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Signals that people and init systems send to a command line.
pub struct Signals(OwnedFd);

impl Signals {
    const TAKEN: [i32; 5] =
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH];

    /// Blocks them in this thread and those that it starts from now on, and
    /// reads them from a descriptor instead.
    pub fn take() -> Option<Signals> {
        process::signal_fd(&Signals::TAKEN).ok().map(|raw| Signals(own(raw)))
    }

    /// For polling.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Passes one on.
    pub fn forward(&self, running: &Running, screen: Option<&Terminal>) {
        match (self.next(), screen) {
            (Some(libc::SIGWINCH), Some(screen)) => screen.resize(),
            (None | Some(libc::SIGWINCH), _) => {}
            (Some(signal), _) => running.signal(signal),
        }
    }

    /// A signal that has come and wants us to end; does not wait for one.
    pub fn ending(&self) -> Option<i32> {
        std::iter::from_fn(|| self.next()).find(|signal| *signal != libc::SIGWINCH)
    }

    /// Lets signals do again what they usually do.
    pub fn give_back(self) {
        Signals::unblock();
    }

    /// Stops holding signals back in this thread.
    pub fn unblock() {
        process::unblock_signals(&Signals::TAKEN);
    }

    fn next(&self) -> Option<i32> {
        let mut info = [0u8; 128];
        if fd::read(self.0.as_raw_fd(), &mut info) != Ok(info.len()) {
            return None;
        }
        // The signal's number is the first field of `signalfd_siginfo`.
        Some(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a descriptor is a terminal.
pub fn is_terminal(descriptor: &impl AsRawFd) -> bool {
    fd::is_terminal(descriptor.as_raw_fd())
}
