//! Who carries out what a call asks: a server that runs on the state
//! directory, or this process, which opens it when it has to.

use crate::remote::{Refused, Server, direct};
use crate::session::Session;
use fractal::{Action, Caller, Engine, Error, Reply};
use std::cell::OnceCell;

/// One call may ask several things; they go the same way.
pub struct Worker<'a> {
    session: &'a Session,
    /// Looked for when something is to be asked of it.
    server: OnceCell<Option<Server>>,
    /// The caller of a call that acts on no setting, whose broken settings
    /// are told of once.
    sound: Option<Caller>,
    own: OnceCell<(Engine, Caller)>,
}

impl<'a> Worker<'a> {
    pub fn new(session: &'a Session, needs_settings: bool) -> Worker<'a> {
        let sound = (!needs_settings).then(|| session.caller_without_settings());
        Worker { session, server: OnceCell::new(), sound, own: OnceCell::new() }
    }

    pub fn apply(&self, action: Action) -> Result<Reply, Error> {
        if let Some(door) = self.session.door() {
            return door.apply(&action);
        }
        let server = match direct::reason(&action) {
            None => self.server.get_or_init(|| self.session.server().ok()).as_ref(),
            Some(_) => None,
        };
        match server.map(|server| server.apply(&action)) {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(Refused::Error(error))) => Err(error),
            Some(Err(Refused::Unused)) | None => self.apply_here(action),
        }
    }

    fn apply_here(&self, action: Action) -> Result<Reply, Error> {
        if self.own.get().is_none() {
            let caller = self.sound.clone().map_or_else(|| self.session.caller(), Ok)?;
            let _ = self.own.set((self.session.late_engine()?, caller));
        }
        let (engine, caller) = self.own.get().expect("it was set above");
        engine.apply(caller, action)
    }
}
