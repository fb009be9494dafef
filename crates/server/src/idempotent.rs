//! Requests that are safe to repeat.
//!
//! A client that lost the connection does not know whether its request was
//! carried out. With an `Idempotency-Key` it can send it again: the answer
//! that was given comes back, and nothing happens twice. Only answers are
//! kept that say what happened; a refusal for lack of room is not one.

use crate::asker::Asker;
use crate::extract;
use crate::failure::Failure;
use crate::routes;
use crate::state::Shared;
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fractal::model::Given;
use fractal::{Code, Error};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The name of a request that may be repeated.
pub const HEADER: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 200;
/// Longer answers are given once and not kept.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Marks an answer that holds a secret: it is given once and never stored.
#[derive(Clone, Copy)]
pub struct Unkept;

/// Requests that are on their way, by asker and key.
#[derive(Default)]
pub struct Answers(Mutex<HashSet<(String, String)>>);

/// On its way until dropped.
struct OnItsWay<'a> {
    answers: &'a Answers,
    name: (String, String),
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.answers.set().remove(&self.name);
    }
}

impl Answers {
    fn set(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, name: (String, String)) -> Result<OnItsWay<'_>, Failure> {
        if !self.set().insert(name.clone()) {
            let error = Error::new(Code::Busy, "a request with this key is on its way");
            return Err(Failure::busy(error, 1));
        }
        Ok(OnItsWay { answers: self, name })
    }
}

/// Gives a kept answer again, or keeps the one that is given now.
pub async fn once(State(state): State<Shared>, request: Request, next: Next) -> Response {
    let key = request.headers().get(HEADER).cloned();
    match key {
        Some(key) if request.method() == Method::POST && !is_import(&request) => {
            // It goes on when the client is gone: it will come back and ask.
            let job = async move { carry_out_once(&state, key, request, next).await };
            match tokio::spawn(job).await {
                Ok(Ok(response)) => response,
                Ok(Err(failure)) => failure.into_response(),
                Err(_) => Failure::from(Error::internal("a request broke off")).into_response(),
            }
        }
        _ => next.run(request).await,
    }
}

/// An archive is not kept to be compared; its route refuses the header.
fn is_import(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>();
    route.is_some_and(|route| route.as_str() == routes::IMPORT)
}

async fn carry_out_once(
    state: &Shared,
    key: HeaderValue,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let key = read_key(&key)?;
    let nobody = || Error::internal("a request came from nobody");
    let asked_by = request.extensions().get::<Asker>().cloned().ok_or_else(nobody)?;
    let asker = asked_by.id();
    let (parts, body) = request.into_parts();
    let body = extract::read(body, extract::BODY_BYTES_MAX).await?;
    let asked = format!("{} {}\n", parts.method, parts.uri);
    let print = fractal::fingerprint(&[asked.as_bytes(), &body]);
    let _on_its_way = state.answers.begin((asker.clone(), key.clone()))?;
    let given = state.engine.given(&asker, &key);
    if let Some(given) = given.map_err(|error| asked_by.may_read(state, error))? {
        return again(given, &print);
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    keep(state, (asker, key), print, response).await
}

fn read_key(key: &HeaderValue) -> Result<String, Failure> {
    let text = key.to_str().unwrap_or_default();
    let is_good = !text.is_empty()
        && text.len() <= KEY_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_good {
        true => Ok(text.to_owned()),
        false => Err(Error::invalid("`Idempotency-Key` is 1 to 200 printable characters").into()),
    }
}

fn again(given: Given, print: &str) -> Result<Response, Failure> {
    if given.print != print {
        let error =
            Error::new(Code::Conflict, "this `Idempotency-Key` was used for another request")
                .hint("choose a new key for a new request");
        return Err(error.into());
    }
    let status = StatusCode::from_u16(given.status).unwrap_or(StatusCode::OK);
    let mut response = (status, given.body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    Ok(response)
}

async fn keep(
    state: &Shared,
    (asker, key): (String, String),
    print: String,
    response: Response,
) -> Result<Response, Failure> {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let is_json = kind.is_some_and(|kind| kind == "application/json");
    let is_secret = response.extensions().get::<Unkept>().is_some();
    let says_what_happened = status.is_success() || status.is_client_error();
    let may_be_better = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::UNAUTHORIZED
    );
    if is_secret || !is_json || !says_what_happened || may_be_better {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body =
        to_bytes(body, usize::MAX).await.map_err(|_| Error::internal("an answer was lost"))?;
    if body.len() <= ANSWER_BYTES_MAX {
        let text = String::from_utf8_lossy(&body).into_owned();
        let given = Given { print, status: status.as_u16(), body: text };
        // It was carried out: whoever asked must hear so, kept or not.
        if let Err(error) = state.engine.give(&asker, &key, &given) {
            tracing::warn!("an answer could not be kept: {error}");
        }
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}
