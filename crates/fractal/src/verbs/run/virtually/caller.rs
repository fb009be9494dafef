//! Whoever asked for a script, seen by a connection: when it ends, and at each
//! byte that comes by it, the script is stopped, as a program would be.

use fractal_shell::Canceller;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::PipeWriter;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

/// A script that is just beginning may not hear that it is to stop, so it is
/// told again and again.
const AGAIN: Duration = Duration::from_millis(20);

/// Looked after until dropped.
pub(super) struct Attended {
    over: Option<PipeWriter>,
    watcher: Option<JoinHandle<()>>,
}

impl Attended {
    pub(super) fn watch(connection: OwnedFd, canceller: Canceller) -> std::io::Result<Attended> {
        let (until, over) = std::io::pipe()?;
        let watcher = std::thread::Builder::new()
            .name("fractal-caller".to_owned())
            .spawn(move || while !is_asked_to_stop(&connection, &until, &canceller) {})?;
        Ok(Attended { over: Some(over), watcher: Some(watcher) })
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// Waits for one thing to happen; true when there is nothing more to wait for.
fn is_asked_to_stop(connection: &OwnedFd, until: &impl AsFd, canceller: &Canceller) -> bool {
    let mut ends = [PollFd::new(connection, PollFlags::IN), PollFd::new(until, PollFlags::IN)];
    match poll(&mut ends, None) {
        Err(Errno::INTR) => return false,
        Err(_) => return true,
        Ok(_) if !ends[1].revents().is_empty() => return true,
        Ok(_) => {}
    }
    // Signals that ask nicely are all the same to a script.
    let mut signals = [0; 16];
    canceller.cancel();
    match rustix::io::read(connection, &mut signals) {
        Ok(1..) => false,
        Ok(0) | Err(_) => {
            tell_again(until, canceller);
            true
        }
    }
}

fn tell_again(until: &impl AsFd, canceller: &Canceller) {
    let pause = Timespec { tv_sec: 0, tv_nsec: AGAIN.as_nanos() as i64 };
    let mut over = [PollFd::new(until, PollFlags::IN)];
    while !matches!(poll(&mut over, Some(&pause)), Ok(1..)) {
        canceller.cancel();
    }
}
