//! Bodies on their way. A request may be refused before its body was read; who
//! sends the body at that moment would hear of a broken connection instead of
//! the refusal. So small ones are let in first, and where the rest of a larger
//! one is not wanted the client is told that the connection ends.

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use std::time::Duration;

const SMALL_BYTES: u64 = 64 << 10;
/// A client that takes longer to send so little gets its answer meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

pub async fn let_in(request: Request, next: Next) -> Response {
    let length = length(request.headers());
    let version = request.version();
    let (parts, body) = request.into_parts();
    let (body, is_here) = match length {
        Length::Known(0) => (body, true),
        Length::Known(1..=SMALL_BYTES) => gather(body.into_data_stream()).await,
        Length::Known(_) | Length::Unknown => (body, false),
    };
    let mut response = next.run(Request::from_parts(parts, body)).await;
    let status = response.status();
    if !is_here
        && version <= Version::HTTP_11
        && (status.is_client_error() || status.is_server_error())
    {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

enum Length {
    Known(u64),
    Unknown,
}

fn length(headers: &HeaderMap) -> Length {
    let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match told.and_then(|text| text.parse().ok()) {
        Some(bytes) => Length::Known(bytes),
        None if headers.contains_key(header::TRANSFER_ENCODING) => Length::Unknown,
        None => Length::Known(0),
    }
}

/// What comes in time, and whether that is all of it.
async fn gather(mut chunks: BodyDataStream) -> (Body, bool) {
    let mut come: Vec<Result<Bytes, axum::Error>> = Vec::new();
    let reading = async {
        while let Some(chunk) = chunks.next().await {
            come.push(chunk);
        }
    };
    let is_here = tokio::time::timeout(PATIENCE, reading).await.is_ok();
    // Nearly always it is one piece, which is handed on as it is.
    match come.as_slice() {
        [] if is_here => return (Body::empty(), true),
        [Ok(only)] if is_here => return (Body::from(only.clone()), true),
        _ if is_here => return (Body::from_stream(stream::iter(come)), true),
        _ => {}
    }
    (Body::from_stream(stream::iter(come).chain(chunks)), false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(head: &str, body: &[u8]) -> String {
        let take = async |body: Bytes| body.len().to_string();
        let router = Router::new().route("/take", post(take));
        let refuse = async || (StatusCode::UNAUTHORIZED, "no");
        let router = router.route("/refuse", post(refuse)).layer(from_fn(let_in));
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let service = hyper_util::service::TowerToHyperService::new(router);
        let io = hyper_util::rt::TokioIo::new(theirs);
        let serving = tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        });
        let (mut read, mut write) = tokio::io::split(ours);
        write.write_all(head.as_bytes()).await.expect("it is sent");
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The head of a second request follows the first one's body.
        let _ = write.write_all(body).await;
        let second =
            "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = write.write_all(second.as_bytes()).await;
        let mut heard = String::new();
        let _ = read.read_to_string(&mut heard).await;
        serving.abort();
        heard.to_lowercase()
    }

    #[tokio::test]
    async fn a_refusal_waits_for_a_small_body_and_the_connection_stays() {
        let head = "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
        let heard = ask(head, b"12345").await;
        assert_eq!(heard.matches("http/1.1").count(), 2, "{heard}");
        let first = heard.split("http/1.1 200").next().expect("an answer");
        assert!(first.contains(" 401 ") && !first.contains("connection: close"), "{heard}");
    }

    #[tokio::test]
    async fn where_a_large_body_is_not_wanted_the_connection_ends_and_says_so() {
        let length = SMALL_BYTES + 1;
        let head = format!("POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        let heard = ask(&head, b"").await;
        assert!(heard.contains(" 401 ") && heard.contains("connection: close"), "{heard}");
    }

    #[tokio::test]
    async fn a_body_arrives_as_it_was_sent() {
        let head = "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(ask(head, b"3\r\nabc\r\n0\r\n\r\n").await.contains("\r\n\r\n3"));
        let head = "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n";
        assert!(ask(head, b"abcd").await.contains("\r\n\r\n4"));
        // In two pieces.
        let head = "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab";
        assert!(ask(head, b"cd").await.contains("\r\n\r\n4"));
    }
}
