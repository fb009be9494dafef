//! A run by a server, with our own input and output.
//!
//! Descriptors travel over `run.sock`, so what the program reads and writes
//! passes no protocol. We stay as long as it runs: signals that come to us are
//! passed on, and the server ends the run when we are gone. What the messages
//! look like stands in the server's `handed` module.

use super::{Facts, Refused, http, lost, peer};
use fractal::{Code, Error, Run, RunReply, Signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Deserialize;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

const GREETING_BYTES_MAX: u32 = 4 << 10;
/// Kept output and a list of changes; both have bounds of their own.
const ANSWER_BYTES_MAX: u32 = 1 << 30;
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A server that takes runs, and is ours.
pub struct Runs {
    stream: UnixStream,
    facts: Facts,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Reply(Box<RunReply>),
    Error(Error),
    Unused,
}

impl Runs {
    /// The server of a state directory, or why there is none for us.
    pub fn find(home: &Path, facts: Facts) -> Result<Runs, String> {
        let stream = peer::reach(&home.join("run.sock"))?;
        if !peer::is_alike(&stream) {
            return Err("the server has other limits, groups or processors".to_owned());
        }
        let late = |error: io::Error| format!("the server does not answer: {error}");
        // It speaks first: until now nothing was asked.
        let greeting = read_frame(&stream, GREETING_BYTES_MAX).map_err(late)?;
        peer::check_version(&greeting)?;
        peer::settle(&stream).map_err(late)?;
        Ok(Runs { stream, facts })
    }

    /// Has a program run with this input, output and errors; where output is
    /// captured it stands in the reply instead.
    pub fn run(
        &self,
        run: &Run,
        stdio: &[OwnedFd; 3],
        is_captured: bool,
    ) -> Result<RunReply, Refused> {
        let json = serde_json::to_vec(run)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        let mut text = self.facts.headers().to_vec();
        text.extend_from_slice(if is_captured { b"Fractal-Capture: yes\r\n\r\n" } else { b"\r\n" });
        text.extend_from_slice(&json);
        if text.len() > REQUEST_BYTES_MAX {
            return Err(Refused::Unused);
        }
        // From here on signals are the program's.
        let signals = Signals::take();
        let answer = match self.exchange(&text, stdio, signals.as_ref()) {
            Err(error) if http::is_unread(&error) => {
                if let Some(signals) = signals {
                    signals.give_back();
                }
                return Err(Refused::Unused);
            }
            answer => answer.map_err(lost)?,
        };
        let answer: Answer = serde_json::from_slice(&answer).map_err(|error| {
            Error::internal(format!("the server's answer does not read: {error}"))
        })?;
        match answer {
            Answer::Reply(reply) => Ok(*reply),
            // It cannot, and has begun nothing; perhaps we can.
            Answer::Error(Error { code: Code::Unsupported, .. }) | Answer::Unused => {
                if let Some(signals) = signals {
                    signals.give_back();
                }
                Err(Refused::Unused)
            }
            Answer::Error(error) => Err(error.into()),
        }
    }

    fn exchange(
        &self,
        text: &[u8],
        stdio: &[OwnedFd; 3],
        signals: Option<&Signals>,
    ) -> io::Result<Vec<u8>> {
        send(&self.stream, text, stdio).map_err(http::unread)?;
        // A signal that nobody read says nothing about the request.
        let has_passed_on = signals.map(|signals| self.pass_on(signals)).transpose()? == Some(true);
        let answer = read_frame(&self.stream, ANSWER_BYTES_MAX);
        if has_passed_on { answer } else { answer.map_err(http::unread) }
    }

    /// Passes signals on until there is an answer; whether there were any.
    fn pass_on(&self, signals: &Signals) -> io::Result<bool> {
        let mut has_passed_on = false;
        loop {
            let mut ready = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            if !ready[0].revents().is_empty() {
                return Ok(has_passed_on);
            }
            if let Some(signal) = signals.ending().and_then(|signal| u8::try_from(signal).ok()) {
                has_passed_on = true;
                // A server that is gone is seen by the next poll.
                let _ = (&self.stream).write_all(&[signal]);
            }
        }
    }
}

/// One frame, with the descriptors beside its first bytes.
fn send(mut stream: &UnixStream, text: &[u8], stdio: &[OwnedFd; 3]) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes();
    let descriptors = [stdio[0].as_fd(), stdio[1].as_fd(), stdio[2].as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&length[sent..])?;
    stream.write_all(text)
}

fn read_frame(mut stream: &UnixStream, bytes_max: u32) -> io::Result<Vec<u8>> {
    let mut length = [0u8; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
    }
    let mut text = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut text)?;
    match text.len() == length as usize {
        true => Ok(text),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
