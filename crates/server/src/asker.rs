//! Who asks: by the socket that only the owner can open, or by a key.
//!
//! Coming from this machine proves nothing: every program here, and every
//! page in a browser here, can reach a loopback port. So a port always wants
//! a key, answers only to its own names (a page whose name was rebound to
//! this address sends another one), and refuses pages of other sites.

use crate::failure::Failure;
use crate::limits::Gauges;
use crate::mcp;
use crate::otlp::Context;
use crate::owner::{self, Owner};
use crate::state::Shared;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fractal::model::Key;
use fractal::{Caller, Config, Error};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What is said to those whose key ended while they were here.
pub const KEY_ENDED: &str = "the key has ended";

/// How often a stream asks whether its key still holds.
const LOOK: Duration = Duration::from_secs(1);

/// How a connection came in.
#[derive(Clone, Copy, Debug)]
pub enum Door {
    /// The socket in the state directory, and who is at its other end.
    Socket { is_owner: bool },
    /// A port.
    Port { peer: IpAddr },
    /// The door of a run, from inside.
    Inside,
}

/// Finds out to whom a token belongs. The engine's keys are one way, signed
/// tokens ([`crate::Tokens`]) another; an embedding program may add its own.
pub trait Authenticate: Send + Sync {
    /// `None` when the token is none of its kind, an error when it is and
    /// does not hold: its message is for the log and the journal, and never
    /// for whoever sent the token.
    fn authenticate(&self, token: &str) -> Option<fractal::Result<Key>>;
}

/// What the server knows of its names and of those who ask.
pub struct Doorkeeper {
    /// Names by which the port may be called, without port numbers.
    pub hosts: BTreeSet<String>,
    /// Sites whose pages may ask.
    pub origins: BTreeSet<String>,
    pub providers: Vec<Arc<dyn Authenticate>>,
    pub gauges: Gauges,
}

/// Who asks, within which bounds.
#[derive(Clone)]
pub struct Asker {
    pub key: Option<Key>,
    /// Where they work and, of the owner, what else they told.
    owner: Arc<Owner>,
    /// The span of the request, where there is one.
    pub span: Option<Context>,
}

impl Asker {
    /// The owner, or whoever holds a key, in a directory.
    pub fn new(key: Option<Key>, directory: PathBuf) -> Asker {
        let owner = Owner { directory, who: None, environment: None, user_file: None };
        Asker { key, owner: Arc::new(owner), span: None }
    }

    /// The owner, with what they told.
    pub fn owner(owner: Owner) -> Asker {
        Asker { key: None, owner: Arc::new(owner), span: None }
    }

    /// An error as they may read it: a key does not learn where things lie.
    pub fn may_read(&self, state: &crate::state::State, error: Error) -> Error {
        match self.key {
            Some(_) => state.engine.without_home(error),
            None => error,
        }
    }

    /// Whether who came in would not come in any more: streams outlast keys.
    pub async fn has_ended(&self, state: &Shared) -> bool {
        let Some(key) = self.key.clone() else { return false };
        let shared = state.clone();
        let look = move || match &shared.inside {
            Some(door) => shared.engine.has_ended_at(&key, door),
            None => shared.engine.has_ended(&key),
        };
        // Who cannot be looked up is not let in either.
        !matches!(tokio::task::spawn_blocking(look).await, Ok(Ok(false)))
    }

    /// Comes back once they have.
    pub async fn ended(&self, state: &Shared) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.has_ended(state).await {
                return;
            }
        }
    }

    /// The name under which work counts against limits and answers are kept.
    pub fn id(&self) -> String {
        self.key.as_ref().map_or_else(|| "owner".to_owned(), |key| key.id.to_string())
    }

    /// The caller for the engine, with the settings as they are now. What acts
    /// on no setting goes on without those that do not read.
    pub fn caller(
        &self,
        state: &crate::state::State,
        needs_settings: bool,
    ) -> fractal::Result<Caller> {
        if let Some(grant) = &state.inside {
            return Ok(grant.caller());
        }
        let Owner { directory, who, environment, user_file } = &*self.owner;
        let user_file = user_file.as_deref().or(state.project.user_file.as_deref());
        let config = match needs_settings {
            true => Config::load(directory, user_file)?,
            false => Config::load_sound(directory, user_file).0,
        };
        if let Some(key) = &self.key {
            // Nothing of the environment of whoever started the server.
            return Ok(Caller::of_key(key, directory, config));
        }
        let owner = Caller::owner(directory);
        Ok(Caller {
            who: who.clone().unwrap_or_else(|| owner.who.clone()),
            config,
            environment: environment.as_ref().unwrap_or(&state.project.environment).clone(),
            ..owner
        })
    }
}

/// Lets requests pass whose asker is known; hangs the [`Asker`] on them.
pub async fn identify(State(state): State<Shared>, mut request: Request, next: Next) -> Response {
    let door = request.extensions().get::<Door>().copied();
    // A body cannot be shared between threads; headers can.
    let headers = request.headers().clone();
    let admitted = match state.mcp_fixtures && request.uri().path() == "/mcp" {
        true => Ok(Asker::new(Some(mcp::suite()), state.project.directory.clone())),
        false => admit(&state, door, &headers).await,
    };
    match admitted {
        Ok(mut asker) => {
            asker.span = request.extensions().get::<Context>().copied();
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

pub async fn admit(
    state: &Shared,
    door: Option<Door>,
    headers: &HeaderMap,
) -> Result<Asker, Failure> {
    let door = door.ok_or_else(|| Error::internal("a request came through no door"))?;
    let token = token(headers)?;
    match (door, token) {
        // The owner may work anywhere; a key works in the server's directory.
        (Door::Socket { is_owner: true }, None) => {
            Owner::read(headers, &state.project).map(Asker::owner)
        }
        (_, None) => Err(Failure::unknown_asker("there is no key in the request")),
        (door, Some(token)) => {
            let asker = by_key(state, door, token).await?;
            owner::refuse(headers).map(|()| asker)
        }
    }
}

async fn by_key(state: &Shared, door: Door, token: String) -> Result<Asker, Failure> {
    let peer = match door {
        Door::Port { peer } => Some(peer),
        Door::Socket { .. } | Door::Inside => None,
    };
    let gauges = &state.doorkeeper.gauges;
    let shared = state.clone();
    let found = tokio::task::spawn_blocking(move || look_up(&shared, &token)).await;
    let found = found.map_err(|_| Error::internal("looking up a key failed"))?;
    match found {
        Ok(key) => {
            gauges.request(&key)?;
            Ok(Asker::new(Some(key), state.project.directory.clone()))
        }
        Err(error) => {
            state.metrics.count_bad_key();
            let often = gauges.bad_key(peer);
            Err(often.unwrap_or_else(|| Failure::unknown_asker(&error.message)))
        }
    }
}

fn look_up(state: &Shared, token: &str) -> fractal::Result<Key> {
    if let Some(door) = &state.inside {
        return state.engine.authenticate_at(token, door);
    }
    let mut others = state.doorkeeper.providers.iter();
    match others.find_map(|provider| provider.authenticate(token)) {
        None => state.engine.authenticate(token),
        Some(Ok(key)) => Ok(key),
        Some(Err(why)) => {
            tracing::debug!("a token was refused: {}", why.message);
            state.engine.record_unknown(&why.message);
            // In one voice, whatever was wrong with it.
            Err(Error::denied("this token does not hold"))
        }
    }
}

/// The secret in `Authorization: Bearer …` or `X-API-Key: …`.
fn token(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let twice = headers.get_all(header::AUTHORIZATION).iter().count() > 1;
    let bearer = headers.get(header::AUTHORIZATION);
    let plain = headers.get("x-api-key");
    if twice || (bearer.is_some() && plain.is_some()) {
        return Err(Failure::unknown_asker("there is more than one key in the request"));
    }
    let text = |value: &axum::http::HeaderValue| value.to_str().map(str::to_owned).ok();
    if let Some(value) = bearer {
        let text = text(value).unwrap_or_default();
        let secret = text.split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        let secret = secret.map(|(_, secret)| secret.trim().to_owned());
        let missing = || Failure::unknown_asker("`Authorization` holds no bearer key");
        return secret.filter(|secret| !secret.is_empty()).map(Some).ok_or_else(missing);
    }
    Ok(plain.and_then(text))
}

/// Refuses requests that were meant for another name or come from a page of
/// another site, before anything else looks at them.
pub async fn check_names(State(state): State<Shared>, request: Request, next: Next) -> Response {
    let door = request.extensions().get::<Door>().copied();
    if let Some(Door::Port { .. }) = door
        && let Err(failure) = state.doorkeeper.check(request.headers())
    {
        return failure.into_response();
    }
    next.run(request).await
}

impl Doorkeeper {
    fn check(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
        if hosts.next().is_some() || !self.hosts.contains(&name_of(host)) {
            let error = Error::denied(format!("this server is not `{}`", host.escape_debug()))
                .hint("start it with `--host NAME` to have it answer to that name");
            return Err(Failure::with_status(StatusCode::MISDIRECTED_REQUEST, error));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        if own || self.origins.contains(origin) {
            return Ok(());
        }
        let error = Error::denied(format!("pages of `{}` may not ask", origin.escape_debug()))
            .hint("start the server with `--origin URL` to let them");
        Err(Failure::with_status(StatusCode::FORBIDDEN, error))
    }
}

/// A host without its port, in lower case.
fn name_of(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_compared_without_its_port() {
        for (host, name) in [
            ("127.0.0.1:80", "127.0.0.1"),
            ("LOCALHOST", "localhost"),
            ("[::1]:4000", "::1"),
            ("a.b:1", "a.b"),
            ("", ""),
        ] {
            assert_eq!(name_of(host), name);
        }
    }

    #[test]
    fn a_key_is_taken_from_one_place_only() {
        let headers = |pairs: &[(&str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in pairs {
                let name: header::HeaderName = name.parse().expect("a header");
                map.append(name, value.parse().expect("a value"));
            }
            map
        };
        let read = |pairs: &[(&str, &str)]| token(&headers(pairs)).map_err(|_| ());
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("authorization", "bearer x")]), Ok(Some("x".to_owned())));
        assert_eq!(read(&[("x-api-key", "y")]), Ok(Some("y".to_owned())));
        assert_eq!(read(&[("authorization", "Basic x")]), Err(()));
        assert_eq!(read(&[("authorization", "Bearer ")]), Err(()));
        assert_eq!(read(&[("authorization", "Bearer x"), ("x-api-key", "y")]), Err(()));
        assert_eq!(read(&[("authorization", "Bearer x"), ("authorization", "Bearer x")]), Err(()));
    }
}
