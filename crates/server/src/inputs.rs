//! What runs read that are told as events: pipes into which their clients
//! write by requests of their own.
//!
//! An input has an id that its client alone is told, and belongs to the key
//! that began the run. It is forgotten when the run is over. Nobody's thread
//! waits for a program that does not read.

use crate::asker::Asker;
use fractal::{Code, Error, Result};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::unix::pipe::Sender;

/// How long one request waits for a program that does not read.
const PATIENCE: Duration = Duration::from_secs(20);

/// All inputs that can be written to.
#[derive(Clone, Default)]
pub struct Inputs(Arc<Mutex<BTreeMap<String, Input>>>);

#[derive(Clone)]
struct Input {
    asker: String,
    /// One request writes at a time; none when there is no more to come.
    pipe: Arc<tokio::sync::Mutex<Option<Sender>>>,
}

/// An input until dropped.
pub struct Open {
    inputs: Inputs,
    /// What its client calls it.
    pub id: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.inputs.all().remove(&self.id);
    }
}

impl Inputs {
    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Input>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an input, and the end that the program reads.
    pub fn open(&self, asker: &Asker) -> Result<(Open, OwnedFd)> {
        let failed = |error: std::io::Error| Error::internal(format!("no input: {error}"));
        let (read, write) = std::io::pipe().map_err(failed)?;
        let pipe = Sender::from_owned_fd(write.into()).map_err(failed)?;
        let id = name()?;
        let pipe = Arc::new(tokio::sync::Mutex::new(Some(pipe)));
        self.all().insert(id.clone(), Input { asker: asker.id(), pipe });
        Ok((Open { inputs: self.clone(), id }, read.into()))
    }

    /// Writes as much as the program takes in a while, and tells how much that
    /// was; with `end` there is no more to come.
    pub async fn write(&self, asker: &Asker, id: &str, bytes: &[u8], end: bool) -> Result<usize> {
        let gone = || Error::not_found("nothing reads this input any more");
        let input = self.all().get(id).filter(|input| input.asker == asker.id()).cloned();
        let input = input.ok_or_else(gone)?;
        let written = Arc::new(AtomicUsize::new(0));
        let work = write(&input, bytes, end, &written);
        match tokio::time::timeout(PATIENCE, work).await {
            Err(_) => Ok(written.load(Ordering::Relaxed)),
            Ok(Err(error)) if error.kind() == ErrorKind::BrokenPipe => Err(gone()),
            Ok(Err(error)) => {
                Err(Error::new(Code::Failed, format!("the input cannot be written: {error}")))
            }
            Ok(Ok(())) => Ok(bytes.len()),
        }
    }
}

async fn write(
    input: &Input,
    bytes: &[u8],
    end: bool,
    written: &AtomicUsize,
) -> std::io::Result<()> {
    let mut pipe = input.pipe.lock().await;
    let open = pipe.as_ref().ok_or(ErrorKind::BrokenPipe)?;
    let mut left = bytes;
    while !left.is_empty() {
        open.writable().await?;
        match open.try_write(left) {
            Ok(count) => {
                left = &left[count..];
                written.store(bytes.len() - left.len(), Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if end {
        pipe.take();
    }
    Ok(())
}

/// A name that nobody guesses.
fn name() -> Result<String> {
    let mut dice = [0; 16];
    let rolled = SystemRandom::new().fill(&mut dice);
    rolled.map_err(|_| Error::internal("the system gives no random numbers"))?;
    Ok(dice.iter().map(|byte| format!("{byte:02x}")).collect())
}
