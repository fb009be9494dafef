//! Sessions belong to whoever opened them, who can have only so many.
//!
//! The protocol's session id is all that a stream is found by. Ours carries a
//! mark made from a secret of this server, the id and who asked, so that an id
//! which got about is worth nothing to another key. Sessions that nobody ends
//! stay for minutes: without a bound one key could fill the memory with them.

use crate::asker::Asker;
use crate::failure::Failure;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fractal::{Code, Error};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Sessions of one key at once.
const OPEN_MAX: usize = 256;

pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What marks are made with.
#[derive(Clone)]
pub struct Seal(Arc<str>);

impl Seal {
    /// Another one for each server.
    pub fn new() -> fractal::Result<Seal> {
        let mut bytes = [0; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(
            |error| Error::internal(format!("the kernel gave no random bytes: {error}")),
        )?;
        Ok(Seal(fractal::fingerprint(&[&bytes]).into()))
    }

    fn mark(&self, session: &str, asker: &Asker) -> String {
        let asker = asker.id();
        let pieces = [self.0.as_bytes(), session.as_bytes(), asker.as_bytes()];
        fractal::fingerprint(&pieces)[..32].to_owned()
    }

    /// The protocol's own id, if the session is this asker's.
    fn open(&self, marked: &str, asker: &Asker) -> Option<String> {
        let (session, mark) = marked.rsplit_once('.')?;
        (mark == self.mark(session, asker)).then(|| session.to_owned())
    }
}

/// Open sessions, by who opened them.
#[derive(Clone)]
pub struct Sessions {
    seal: Seal,
    /// Where the protocol keeps them, and forgets those that ended.
    pub open: Arc<LocalSessionManager>,
    by: Arc<Mutex<HashMap<String, Vec<Arc<str>>>>>,
}

impl Sessions {
    /// None yet.
    pub fn new() -> fractal::Result<Sessions> {
        Ok(Sessions { seal: Seal::new()?, open: Arc::default(), by: Arc::default() })
    }

    /// Refuses to open one more for somebody who has many.
    async fn require_room(&self, asker: &Asker) -> Result<(), Failure> {
        let open = self.open.sessions.read().await;
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        by.retain(|_, list| {
            list.retain(|session| open.contains_key(session));
            !list.is_empty()
        });
        if by.get(&asker.id()).is_none_or(|list| list.len() < OPEN_MAX) {
            return Ok(());
        }
        let error = Error::new(Code::Busy, format!("{OPEN_MAX} sessions of this key are open"))
            .hint("end some with `DELETE /mcp` and their `Mcp-Session-Id`");
        Err(Failure::busy(error, 60))
    }

    fn opened(&self, session: &HeaderValue, asker: &Asker) {
        let Ok(session) = session.to_str() else { return };
        let mut by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        by.entry(asker.id()).or_default().push(session.into());
    }
}

/// Takes the mark off on the way in and puts it on on the way out.
pub async fn keep(
    State(sessions): State<Sessions>,
    Extension(asker): Extension<Asker>,
    mut request: Request,
    next: Next,
) -> Response {
    let seal = &sessions.seal;
    let is_new = !request.headers().contains_key(SESSION);
    if is_new && let Err(failure) = sessions.require_room(&asker).await {
        return failure.into_response();
    }
    if let Err(failure) = replace(request.headers_mut(), |marked| seal.open(marked, &asker)) {
        return failure.into_response();
    }
    let mut response = next.run(request).await;
    if let (true, Some(session)) = (is_new, response.headers().get(SESSION)) {
        sessions.opened(session, &asker);
    }
    let mark = |session: &str| Some(format!("{session}.{}", seal.mark(session, &asker)));
    match replace(response.headers_mut(), mark) {
        Ok(()) => response,
        Err(failure) => failure.into_response(),
    }
}

/// Other people's sessions look like those that ended.
fn replace(
    headers: &mut HeaderMap,
    change: impl Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    let Some(value) = headers.get(SESSION) else { return Ok(()) };
    let changed = value.to_str().ok().and_then(change);
    let header = changed.and_then(|text| HeaderValue::from_str(&text).ok());
    let Some(header) = header else {
        let error = Error::not_found("there is no such session")
            .hint("begin a new one with an `initialize` request without `Mcp-Session-Id`");
        return Err(Failure::with_status(StatusCode::NOT_FOUND, error));
    };
    headers.insert(SESSION, header);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_opens_for_its_own_asker_at_its_own_server() {
        let (seal, other) = (Seal::new().expect("a seal"), Seal::new().expect("a seal"));
        let owner = Asker::new(None, "/".into());
        let marked = format!("id.{}", seal.mark("id", &owner));
        assert_eq!(seal.open(&marked, &owner).as_deref(), Some("id"));
        for wrong in ["id", "id.", "", ".", "other", &marked[1..], &marked[..marked.len() - 1]] {
            assert_eq!(seal.open(wrong, &owner), None, "{wrong}");
        }
        assert_eq!(other.open(&marked, &owner), None);
    }
}
