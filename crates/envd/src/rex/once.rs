//! A request that is sent twice under one name is carried out once.
//!
//! Clients name their requests so that they may ask again when a connection
//! broke. Whoever asks again gets the answer of the first, also while that is
//! still at work, and work that has begun goes on when its client goes away.

use super::{BODY_BYTES_MAX, Shared};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Here};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

const HEADER: &str = "x-request-id";
const NAME_BYTES_MAX: usize = 128;
/// Answers that are kept, and their bytes; the last one always is.
const ANSWERS_MAX: usize = 16;
const ANSWERS_BYTES_MAX: usize = 8 << 20;

/// An answer, once there is one.
type Told = Option<(StatusCode, Bytes)>;

/// The last answers, and those to come.
#[derive(Default)]
pub struct Answers(Mutex<VecDeque<(String, watch::Receiver<Told>)>>);

impl Answers {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, watch::Receiver<Told>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of this name; with what it is to be told by, if nobody has
    /// begun it.
    fn of(&self, name: &str) -> (watch::Receiver<Told>, Option<watch::Sender<Told>>) {
        let mut all = self.lock();
        if let Some((_, told)) = all.iter().find(|(other, _)| other == name) {
            return (told.clone(), None);
        }
        let (tell, told) = watch::channel(None);
        all.push_back((name.to_owned(), told.clone()));
        (told, Some(tell))
    }

    /// Forgets the oldest that are more than there is room for.
    fn trim(&self) {
        let mut all = self.lock();
        let bytes =
            |told: &watch::Receiver<Told>| told.borrow().as_ref().map(|(_, body)| body.len());
        loop {
            let finished: Vec<usize> = all.iter().filter_map(|(_, told)| bytes(told)).collect();
            let is_much =
                finished.len() > ANSWERS_MAX || finished.iter().sum::<usize>() > ANSWERS_BYTES_MAX;
            let oldest = all.iter().position(|(_, told)| bytes(told).is_some());
            let Some(oldest) = oldest.filter(|_| is_much && finished.len() > 1) else { return };
            all.remove(oldest);
        }
    }
}

pub async fn once(Here(state): Here<Shared>, request: Request, next: Next) -> Response {
    let name = request.headers().get(HEADER).and_then(|value| value.to_str().ok());
    let name = name.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
    let Some(name) = name.map(|name| format!("{} {name}", request.uri().path())) else {
        return next.run(request).await;
    };
    // Whole first: half a request must not become the answer to the next one.
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        let detail = format!("a request is at most {BODY_BYTES_MAX} bytes, and whole");
        return say(StatusCode::PAYLOAD_TOO_LARGE, &detail);
    };
    let (mut told, tell) = state.answers.of(&name);
    if let Some(tell) = tell {
        let request = Request::from_parts(parts, Body::from(body));
        tokio::spawn(async move {
            let answer = next.run(request).await;
            let status = answer.status();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            let _ = tell.send(Some((status, body.unwrap_or_default())));
            state.answers.trim();
        });
    }
    let answer = told.wait_for(Option::is_some).await.map(|told| told.clone());
    match answer {
        Ok(Some((status, body))) => {
            let json = HeaderValue::from_static("application/json");
            (status, [(header::CONTENT_TYPE, json)], body).into_response()
        }
        _ => say(StatusCode::INTERNAL_SERVER_ERROR, "the request broke off"),
    }
}

fn say(status: StatusCode, detail: &str) -> Response {
    (status, axum::Json(json!({ "detail": detail }))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answers_are_kept_and_those_to_come() {
        let answers = Answers::default();
        let (_, unfinished) = answers.of("unfinished");
        for number in 0..40 {
            let (_, tell) = answers.of(&number.to_string());
            let body = Bytes::from(vec![b'x'; 1 << 20]);
            let _ = tell.expect("it is new").send(Some((StatusCode::OK, body)));
            answers.trim();
        }
        assert!(answers.of("39").1.is_none(), "the last one is there");
        assert!(answers.of("unfinished").1.is_none(), "what is at work is there");
        assert!(answers.of("0").1.is_some(), "old ones are not");
        drop(unfinished);
    }
}
