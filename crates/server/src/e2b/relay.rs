//! Requests to a sandbox, handed on to the program inside or to a port of it.
//!
//! The sandbox stands in a header, or, in a signed link, is the one whose token
//! made the signature. What proves who asks stays here: the sandbox never sees
//! it. What it answers is its own affair, and goes to whoever asked.

use super::book::{Entry, Phase, private};
use super::lifecycle;
use crate::agents::Agent;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::state::Shared;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use fractal::{Code, Error};
use fractal_envd::Arrival;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

const SANDBOX: &str = "e2b-sandbox-id";
const PORT: &str = "e2b-sandbox-port";
const TOKEN: &str = "x-access-token";
/// The same for contexts of code, whose clients send this one only.
const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
/// The program inside, as clients number its parts.
const PROGRAM: [u16; 2] = [49983, 49999];
/// How long the head of an answer may take; services may think for a while.
const HEAD_TIME: Duration = Duration::from_secs(120);
const SENDING_TIME: Duration = Duration::from_secs(3600);
/// What is said of one that is not there; clients look for these words.
const GONE: &str = "The sandbox was not found";

/// What stays with us of a request's headers.
const OURS: [&str; 8] = [
    SANDBOX,
    PORT,
    TOKEN,
    TRAFFIC_TOKEN,
    "x-api-key",
    "connection",
    "keep-alive",
    "proxy-authorization",
];

/// Takes requests that are meant for a sandbox out of the others' way.
pub async fn divert(State(state): State<Shared>, request: Request, next: Next) -> Response {
    let is_inside = state.inside.is_some();
    let named = request.headers().contains_key(SANDBOX);
    let signed = request.uri().path() == "/files" && parameter(&request, "signature").is_some();
    match !is_inside && (named || signed) {
        true => hand_on(&state, request).await.unwrap_or_else(IntoResponse::into_response),
        false => next.run(request).await,
    }
}

/// Why a request was not handed on.
enum Stopped {
    Gone(String),
    Denied(&'static str),
    Failed(Failure),
    NoPort(u16),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

impl IntoResponse for Stopped {
    fn into_response(self) -> Response {
        let say = |status: StatusCode, message: String, more: Value| {
            let mut body = json!({ "code": status.as_u16(), "message": message });
            if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
                body.extend(more);
            }
            (status, axum::Json(body)).into_response()
        };
        match self {
            Stopped::Gone(id) => {
                say(StatusCode::BAD_GATEWAY, GONE.to_owned(), json!({ "sandboxId": id }))
            }
            Stopped::Denied(why) => say(StatusCode::UNAUTHORIZED, why.to_owned(), json!({})),
            Stopped::Failed(failure) => super::Refused(failure).into_response(),
            Stopped::NoPort(port) => {
                let message = format!("The sandbox is running but port is not open: {port}");
                say(StatusCode::BAD_GATEWAY, message, json!({ "port": port }))
            }
        }
    }
}

async fn hand_on(state: &Shared, request: Request) -> Result<Response, Stopped> {
    let entry = addressed(state, &request)?;
    let port = match request.headers().get(PORT) {
        None => PROGRAM[0],
        Some(value) => value
            .to_str()
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .filter(|port| *port > 0)
            .ok_or_else(|| Failure::from(Error::invalid("the port is no number")))?,
    };
    send(state, &entry, port, request).await
}

/// The sandbox that a request is for, if it may.
fn addressed(state: &Shared, request: &Request) -> Result<Entry, Stopped> {
    let Some(value) = request.headers().get(SANDBOX) else { return signed(state, request) };
    let text = value.to_str().unwrap_or_default();
    let gone = || Stopped::Gone(text.chars().take(64).collect());
    let id = private(text).ok_or_else(gone)?;
    let entry = state.e2b.book.get(id).filter(|entry| entry.phase != Phase::Snapshot);
    let token = request.headers().get(TOKEN).or_else(|| request.headers().get(TRAFFIC_TOKEN));
    let token = token.and_then(|value| value.to_str().ok());
    let is_right = match token {
        Some(token) => state.e2b.tokens.is_of(token, id)?,
        None => false,
    };
    match (entry, is_right) {
        (Some(entry), true) => Ok(entry),
        // Tells who asks nothing that their token does not.
        (None, true) => Err(gone()),
        // A link may be followed by who has this one's id: it must be its own.
        (Some(entry), false) if parameter(request, "signature").is_some() => {
            match signed(state, request) {
                Ok(found) if found.id == entry.id => Ok(found),
                Ok(_) => Err(Stopped::Denied("the signature does not hold")),
                Err(stopped) => Err(stopped),
            }
        }
        (Some(_), false) => Err(Stopped::Denied("the access token is missing or wrong")),
        (None, false) => Err(gone()),
    }
}

/// The sandbox whose token made the signature of a link.
fn signed(state: &Shared, request: &Request) -> Result<Entry, Stopped> {
    let bad = || Stopped::Denied("the signature does not hold");
    // It is for one file, and for nothing else that is asked with it.
    let verb = match (request.method().as_str(), request.uri().path()) {
        ("GET", "/files") => "read",
        ("POST", "/files") => "write",
        _ => return Err(bad()),
    };
    let port = request.headers().get(PORT).map(|value| value.as_bytes());
    if port.is_some_and(|port| port != PROGRAM[0].to_string().as_bytes()) {
        return Err(bad());
    }
    let signature = parameter(request, "signature").ok_or_else(bad)?;
    let path = parameter(request, "path").unwrap_or_default();
    let user = parameter(request, "username").unwrap_or_default();
    let until = parameter(request, "signature_expiration");
    if let Some(until) = &until {
        let until: u64 = until.parse().map_err(|_| bad())?;
        if until.saturating_mul(1000) < super::book::now_ms() {
            return Err(Stopped::Denied("the signature has expired"));
        }
    }
    for entry in state.e2b.book.all().into_iter().filter(|one| one.phase != Phase::Snapshot) {
        let token = state.e2b.tokens.of(entry.id)?;
        let mut text = format!("{path}:{verb}:{user}:{token}");
        if let Some(until) = &until {
            text.push_str(&format!(":{until}"));
        }
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let expect = format!("v1_{}", STANDARD_NO_PAD.encode(digest.as_ref()));
        // Digests of both, so that the time it takes tells nothing.
        let mark = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        if mark(&expect).as_ref() == mark(&signature).as_ref() {
            return Ok(entry);
        }
    }
    Err(bad())
}

/// A parameter of the query, decoded.
fn parameter(request: &Request, name: &str) -> Option<String> {
    let query: axum::extract::Query<Vec<(String, String)>> =
        axum::extract::Query::try_from_uri(request.uri()).ok()?;
    query.0.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The program inside, if the sandbox runs or may be woken by being used.
async fn program(state: &Shared, entry: &Entry) -> Result<Arc<Agent>, Stopped> {
    let asker = maker(state, entry).await?;
    if entry.phase == Phase::Paused {
        if !entry.auto_resume {
            return Err(Stopped::Gone(entry.public_id()));
        }
        let time = super::asked::time_ms(None).map_err(Failure::from)?;
        lifecycle::resume(state, &asker, entry.id, time).await?;
    }
    match lifecycle::wake(state, &asker, entry.id).await {
        Err(failure) if failure.error().code == Code::NotFound => {
            // Dropped by another door, it is gone here, too. One that is
            // paused just now is not.
            let found = state.e2b.book.get(entry.id);
            if found.is_some_and(|entry| entry.phase == Phase::Running) {
                state.e2b.book.forget(entry.id);
            }
            Err(Stopped::Gone(entry.public_id()))
        }
        woken => Ok(woken?),
    }
}

/// Whoever made the sandbox, as long as they may come in themselves.
async fn maker(state: &Shared, entry: &Entry) -> Result<Asker, Stopped> {
    let asker = Asker::new(entry.key.clone(), state.project.directory.clone());
    if let Some(key) = entry.key.clone() {
        // It counts like a request with the key itself.
        state.doorkeeper.gauges.request(&key)?;
        let shared = state.clone();
        let ended = tokio::task::spawn_blocking(move || shared.engine.has_ended(&key)).await;
        let broken = |_| Failure::from(Error::internal("looking up a key failed"));
        if ended.map_err(broken)?.map_err(Failure::from)? {
            return Err(Stopped::Denied("the key that made this sandbox has ended"));
        }
    }
    Ok(asker)
}

/// A connection to the program or a port, once more if it turned out to be the
/// program's last moment.
async fn connection(
    state: &Shared,
    entry: &Entry,
    arrival: Arrival,
) -> Result<(UnixStream, OwnedSemaphorePermit), Stopped> {
    for is_last in [false, true] {
        let agent = program(state, entry).await?;
        match agent.connect(arrival) {
            Ok(connected) => return Ok(connected),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let error = Error::new(Code::Busy, "the sandbox has too many connections");
                return Err(Failure::busy(error.hint("close some"), 1).into());
            }
            Err(error) if is_last => {
                let error = Error::internal(format!("the sandbox cannot be reached: {error}"));
                return Err(Failure::from(error).into());
            }
            Err(_) => agent.wait_over().await,
        }
    }
    Err(Stopped::Gone(entry.public_id()))
}

async fn send(
    state: &Shared,
    entry: &Entry,
    port: u16,
    mut request: Request,
) -> Result<Response, Stopped> {
    let is_program = PROGRAM.contains(&port);
    let arrival = if is_program { Arrival::Requests } else { Arrival::Port(port) };
    let (stream, permit) = connection(state, entry, arrival).await?;
    let broken = |error: &dyn std::fmt::Display| match is_program {
        true => Stopped::Failed(Error::internal(format!("the sandbox broke off: {error}")).into()),
        false => Stopped::NoPort(port),
    };
    let late = |_| {
        let error = Error::new(Code::Timeout, "the sandbox did not answer in time");
        Stopped::Failed(Failure::with_status(StatusCode::GATEWAY_TIMEOUT, error))
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    let working = tokio::spawn(async move {
        let _permit = permit;
        // What breaks here is seen by who reads the answer.
        let _ = connection.with_upgrades().await;
    });
    // Whoever goes away takes it along.
    let guard = Guard(Some(working.abort_handle()));
    let upgrade = request.headers().contains_key(header::UPGRADE);
    let upgrade = upgrade.then(|| hyper::upgrade::on(&mut request));
    // Files and input may take their time to be sent; the answer comes after.
    let patience = match request.uri().path() {
        "/files" | "/process.Process/StreamInput" if is_program => SENDING_TIME,
        _ => HEAD_TIME,
    };
    prepare(&mut request, is_program);
    let answer = tokio::time::timeout(patience, sender.send_request(request)).await;
    let mut answer = answer.map_err(late)?.map_err(|error| broken(&error))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(upgrade) = upgrade else { return Err(broken(&"it changed the protocol")) };
        join(upgrade, hyper::upgrade::on(&mut answer));
        guard.release();
        let mut answer = answer.map(Body::new);
        without_hops(answer.headers_mut(), true);
        return Ok(answer);
    }
    let (parts, body) = answer.into_parts();
    let chunks = Body::new(body).into_data_stream().map(move |chunk| {
        let _ = &guard;
        chunk
    });
    let mut answer = Response::from_parts(parts, Body::from_stream(chunks));
    without_hops(answer.headers_mut(), false);
    Ok(answer)
}

/// Ends the work on a connection when dropped.
struct Guard(Option<tokio::task::AbortHandle>);

impl Guard {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(working) = &self.0 {
            working.abort();
        }
    }
}

/// Leaves out what is between the client and us.
fn prepare(request: &mut Request, is_program: bool) {
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let headers = request.headers_mut();
    let basic = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.to_ascii_lowercase().starts_with("basic "))
    };
    // The name of a user for the program; everything for a port.
    if is_program && !headers.get(header::AUTHORIZATION).is_some_and(basic) {
        headers.remove(header::AUTHORIZATION);
    }
    for name in OURS {
        headers.remove(name);
    }
    if upgrades {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
}

fn without_hops(headers: &mut HeaderMap, keeps_upgrade: bool) {
    let upgrades = keeps_upgrade && headers.contains_key(header::UPGRADE);
    for name in ["keep-alive", "proxy-connection", "transfer-encoding"] {
        headers.remove(HeaderName::from_static(name));
    }
    if !upgrades {
        headers.remove(header::CONNECTION);
    }
}

/// Lets two that have agreed on another protocol speak it.
fn join(client: hyper::upgrade::OnUpgrade, inside: hyper::upgrade::OnUpgrade) {
    tokio::spawn(async move {
        let (Ok(client), Ok(inside)) = (client.await, inside.await) else { return };
        let (mut client, mut inside) = (TokioIo::new(client), TokioIo::new(inside));
        let _ = tokio::io::copy_bidirectional(&mut client, &mut inside).await;
    });
}

/// What the program inside answers to a question of ours, as JSON.
pub async fn ask(state: &Shared, entry: &Entry, path: &str) -> Result<Value, Failure> {
    const ANSWER_BYTES_MAX: usize = 1 << 20;
    let broken = || Failure::from(Error::internal("the sandbox gave no answer that reads"));
    let request = Request::builder().uri(path).header(header::HOST, "sandbox").body(Body::empty());
    let request = request.map_err(|_| broken())?;
    let answer = send(state, entry, PROGRAM[0], request).await.map_err(|_| broken())?;
    let reading = axum::body::to_bytes(answer.into_body(), ANSWER_BYTES_MAX);
    let body = tokio::time::timeout(HEAD_TIME, reading).await.map_err(|_| broken())?;
    serde_json::from_slice(&body.map_err(|_| broken())?).map_err(|_| broken())
}
