//! The door of the sandbox that we are in, found by two variables.
//!
//! Here nothing is carried out by this process: there is no state directory
//! inside, and no way to make mounts. So everything goes through the door, and
//! what does not fit through it is refused.

use super::http::{self, Response};
use super::{Facts, Refused, Server, answer, lost, peer};
use fractal::{Action, Code, DOOR_VARIABLE, Error, KEY_VARIABLE, Reply};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Where it is, and what opens it.
#[derive(Clone)]
pub struct Door {
    path: PathBuf,
    key: String,
}

impl Door {
    /// The door that this process was given, if it was.
    pub fn find() -> Option<Door> {
        let path = std::env::var_os(DOOR_VARIABLE).filter(|path| !path.is_empty())?;
        let key = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty())?;
        Some(Door { path: path.into(), key })
    }

    /// Has an action carried out on the other side.
    pub fn apply(&self, action: &Action) -> Result<Reply, Error> {
        let server = self.server()?;
        server.apply(action).map_err(|refused| match refused {
            Refused::Error(error) => error,
            Refused::Unused => {
                Error::new(Code::Busy, "the other side of the door takes nothing now")
                    .hint("the run is about to end, or this was too long: ask for less at once")
            }
        })
    }

    /// What a sandbox changed, as a patch.
    pub fn patch(&self, sandbox: &str, since: Option<&str>) -> Result<Vec<u8>, Error> {
        let encode = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let one = |byte: u8| match plain(byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            };
            text.bytes().map(one).collect::<String>()
        };
        let since = since.map_or(String::new(), |since| format!("?since={}", encode(since)));
        let path = format!("/v1/sandboxes/{}/patch{since}", encode(sandbox));
        let server = self.server()?;
        let Response { status, body } =
            http::get(&server.stream, &path, &server.facts).map_err(lost)?;
        match status {
            200..300 => Ok(body),
            _ => Err(answer::error(&body)),
        }
    }

    fn server(&self) -> Result<Server, Error> {
        let closed = |why: String| {
            Error::new(Code::Unsupported, format!("the door of this sandbox is closed: {why}"))
                .hint(format!("it ends with the run it was made for; `env -u {DOOR_VARIABLE}` works without it"))
        };
        let facts = Facts::of_key(&self.key).ok_or_else(|| closed("its key is none".to_owned()))?;
        let stream = UnixStream::connect(&self.path).map_err(|error| closed(error.to_string()))?;
        let late = |error: std::io::Error| closed(error.to_string());
        stream.set_read_timeout(Some(peer::GREETING_TIME)).map_err(late)?;
        let greeting = http::get(&stream, "/v1/version", &facts).map_err(late)?;
        if greeting.status >= 400 {
            return Err(answer::error(&greeting.body));
        }
        peer::check_version(&greeting.body).map_err(closed)?;
        peer::settle(&stream).map_err(late)?;
        Ok(Server { stream, facts })
    }
}
