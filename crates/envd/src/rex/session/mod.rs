//! Sessions: shells by name that live on between requests.

mod bash;
mod screen;
mod script;
mod start;
mod syntax;
mod tty;

pub use bash::Bash;

use super::Thrown;
use super::asked::NewSession;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shells at once.
const SESSIONS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 256;

/// All of them; a name is taken from when somebody begins to start one.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<String, Option<Arc<Bash>>>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<Arc<Bash>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one and gives what its files wrote that it read first.
    pub async fn create(&self, asked: NewSession) -> Result<String, Thrown> {
        let place = self.reserve(&asked.session)?;
        let (shell, output) = Bash::start(&asked.startup_source, asked.startup_timeout).await?;
        place.fill(Arc::new(shell));
        Ok(output)
    }

    fn reserve(&self, name: &str) -> Result<Place<'_>, Thrown> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Thrown::of("builtins.ValueError", "the name of the session is too long"));
        }
        let mut all = self.lock();
        if all.contains_key(name) {
            let why = format!("there is already a session `{}`", name.escape_debug());
            return Err(Thrown::new("SessionExistsError", why));
        }
        if all.len() >= SESSIONS_MAX {
            let why = format!("there are {SESSIONS_MAX} sessions, which are all there may be");
            return Err(Thrown::new("SwerexException", format!("{why}: close one")));
        }
        all.insert(name.to_owned(), None);
        Ok(Place { sessions: self, name: name.to_owned(), is_filled: false })
    }

    pub fn find(&self, name: &str) -> Result<Arc<Bash>, Thrown> {
        let found = self.lock().get(name).cloned();
        match found {
            Some(Some(shell)) => Ok(shell),
            Some(None) => {
                let why = format!("the session `{}` is still starting", name.escape_debug());
                Err(Thrown::new("SessionNotInitializedError", why))
            }
            None => Err(missing(name)),
        }
    }

    /// Ends one with all that it waits for.
    pub async fn close(&self, name: &str) -> Result<(), Thrown> {
        let shell = self.find(name)?;
        self.lock().remove(name);
        shell.end().await;
        Ok(())
    }
}

fn missing(name: &str) -> Thrown {
    let why = format!("there is no session `{}`: create it first", name.escape_debug());
    Thrown::new("SessionDoesNotExistError", why)
}

/// A name that is taken; free again if nothing comes of it.
struct Place<'a> {
    sessions: &'a Sessions,
    name: String,
    is_filled: bool,
}

impl Place<'_> {
    fn fill(mut self, shell: Arc<Bash>) {
        self.is_filled = true;
        self.sessions.lock().insert(self.name.clone(), Some(shell));
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_filled {
            self.sessions.lock().remove(&self.name);
        }
    }
}
