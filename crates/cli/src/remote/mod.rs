//! A server that runs on the state directory, and how it is asked.
//!
//! Asking one saves opening the state directory; it must never be noticed
//! otherwise. So it is asked only if it is of the same version, belongs to the
//! same user and lives in the same namespaces, where a path means the same to
//! both; everything else, a dead socket first, is no error and means working
//! without it. This folder speaks HTTP by hand: builds without the feature
//! `server` have a client too.

mod answer;
pub mod direct;
mod door;
mod facts;
mod http;
mod peer;
mod run;

pub use door::Door;
pub use facts::Facts;
pub use run::Runs;

use fractal::{Action, Code, Error, Reply};
use http::Response;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What a server takes at most.
const BODY_BYTES_MAX: usize = 1 << 20;
const SERVICE_UNAVAILABLE: u16 = 503;

/// A server that said it is ours.
pub struct Server {
    stream: UnixStream,
    facts: Facts,
}

/// Why an action was not carried out by a server.
pub enum Refused {
    /// Nothing has happened, and the server is not the one to ask.
    Unused,
    /// What it answered, or that it did not.
    Error(Error),
}

impl Server {
    /// The server of a state directory, or why there is none for us.
    pub fn find(home: &Path, facts: Facts) -> Result<Server, String> {
        let stream = peer::reach(&home.join("server.sock"))?;
        let server = Server { stream, facts };
        server.greet()?;
        Ok(server)
    }

    fn greet(&self) -> Result<(), String> {
        let late = |error: std::io::Error| format!("the server does not answer: {error}");
        let response = http::get(&self.stream, "/v1/version", &self.facts).map_err(late)?;
        peer::settle(&self.stream).map_err(late)?;
        peer::check_version(&response.body)
    }

    /// Has an action carried out.
    pub fn apply(&self, action: &Action) -> Result<Reply, Refused> {
        let body = serde_json::to_vec(action)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        if body.len() > BODY_BYTES_MAX {
            return Err(Refused::Unused);
        }
        match http::post(&self.stream, "/v1/apply", &self.facts, &body) {
            Ok(response) => read(action, &response),
            // It ended between its greeting and our request.
            Err(error) if http::is_unread(&error) => Err(Refused::Unused),
            Err(error) => Err(lost(error).into()),
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

/// Nobody knows how far it came: doing it again could do it twice.
fn lost(error: std::io::Error) -> Error {
    Error::new(Code::Internal, format!("the server was lost before it answered: {error}"))
        .hint("`fractal log` tells whether it was carried out")
}

fn read(action: &Action, response: &Response) -> Result<Reply, Refused> {
    match response.status {
        200..300 => Ok(answer::reply(action, &response.body)?),
        // It is about to end and has begun nothing.
        SERVICE_UNAVAILABLE => Err(Refused::Unused),
        _ => Err(answer::error(&response.body).into()),
    }
}
