//! An endpoint that does what endpoints do, and worse.

use fractal_index::embed::http::{Endpoint, Settings};
use fractal_index::embed::{EmbedError, Embedder};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

enum Answer {
    Says(&'static str, String),
    Hangs,
}

fn fine(json: &str) -> Answer {
    Answer::Says("200 OK", json.to_owned())
}

fn says(status: &'static str, body: &str) -> Answer {
    Answer::Says(status, body.to_owned())
}

/// Head and body of a request.
fn request(stream: &TcpStream) -> String {
    let (mut reader, mut text, mut length) = (BufReader::new(stream), String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let lower = line.to_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        text += &line;
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    text + std::str::from_utf8(&body).unwrap()
}

/// Gives these answers, one for each connection, and tells what it was asked.
fn serve(answers: Vec<Answer>) -> (Settings, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            asked.push(request(&stream));
            match answer {
                Answer::Says(status, body) => {
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                    );
                    // Who has seen enough may close before all was sent.
                    let _ = stream.write_all(format!("{head}{body}").as_bytes());
                }
                Answer::Hangs => drop(stream.read(&mut [0])),
            }
        }
        asked
    });
    let mut settings = Settings::new(base, "small");
    settings.key = Some("sk-secret".to_owned());
    settings.timeout = Duration::from_secs(5);
    (settings, server)
}

#[test]
fn texts_go_out_in_batches_and_come_back_in_order_and_of_length_one() {
    let (mut settings, server) = serve(vec![
        fine(r#"{"data":[{"embedding":[1,0]}]}"#),
        fine(r#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}]}"#),
        fine(r#"{"data":[{"embedding":[-5,0]}]}"#),
    ]);
    settings.batch_texts = 2;
    let endpoint = Endpoint::open(settings).unwrap();
    assert_eq!(endpoint.dimensions(), 2);
    assert!(endpoint.name().starts_with("small@http://127.0.0.1:"));
    let vectors = endpoint.embed(&["a", "b\"", ""]).unwrap();
    assert_eq!(vectors, [[0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]]);
    assert_eq!(endpoint.embed(&[]).unwrap(), Vec::<Vec<f32>>::new());
    let asked = server.join().unwrap();
    assert!(asked[1].starts_with("POST /v1/embeddings HTTP/1.1\r\n"));
    assert!(asked[1].contains("authorization: Bearer sk-secret\r\n"), "{}", asked[1]);
    assert!(asked[1].ends_with(r#"{"input":["a","b\""],"model":"small"}"#), "{}", asked[1]);
    assert!(asked[2].ends_with(r#"{"input":[" "],"model":"small"}"#), "{}", asked[2]);
}

/// What is said about an answer to one text, of which two numbers are expected.
fn check(answer: Answer, expect: &str) {
    let (mut settings, server) = serve(vec![answer]);
    settings.dimensions = Some(2);
    let error = Endpoint::open(settings).unwrap().embed(&["text"]).unwrap_err();
    let shown = error.to_string();
    assert!(matches!(error, EmbedError::Endpoint { .. }));
    assert!(shown.starts_with("http://127.0.0.1:") && shown.contains(expect), "{shown}\n{expect}");
    assert!(!shown.contains("sk-secret") && !format!("{error:?}").contains("sk-secret"));
    server.join().unwrap();
}

#[test]
fn answers_that_are_no_vectors_are_refused_with_their_reason() {
    let one = |numbers: &str| fine(&format!(r#"{{"data":[{{"embedding":{numbers}}}]}}"#));
    check(one("[1,2,3]"), "it gives a vector of 3 numbers, not 2");
    check(one("[]"), "it gives a vector without a direction");
    check(one("[0,0]"), "it gives a vector without a direction");
    check(one("[1e39,1]"), "it gives a vector without a direction");
    check(one(r#"["a"]"#), "a vector has no numbers");
    check(one("7"), "a vector is missing");
    check(fine("<html>"), "it answers no JSON");
    check(fine("{}"), "its answer has no data");
    check(fine(r#"{"data":[]}"#), "it gives 0 vectors for 1 texts");
    check(
        fine(r#"{"data":[{"index":7,"embedding":[1,2]}]}"#),
        "it gives vector 7 twice or of no text",
    );
    check(fine(&" ".repeat(1 << 20)), "body");
    check(says("302 Found", ""), "status 302");
}

#[test]
fn complaints_name_the_status_and_never_the_key() {
    let body = r#"{"error":{"message":"Incorrect API key\nsk-secret"}}"#;
    check(says("401 Unauthorized", body), "status 401: Incorrect API key [key]");
    check(says("404 Not Found", &"x".repeat(1000)), &format!("status 404: {}", "x".repeat(300)));
}

#[test]
fn what_passes_is_tried_again_and_what_does_not_is_not() {
    let good = || fine(r#"{"data":[{"embedding":[1,0]}]}"#);
    let (settings, server) = serve(vec![says("429 Too Many", ""), says("503 Busy", ""), good()]);
    assert_eq!(Endpoint::open(settings).unwrap().dimensions(), 2);
    assert_eq!(server.join().unwrap().len(), 3);
    let always = || (0..4).map(|_| says("500 Broken", "down")).collect();
    let (settings, server) = serve(always());
    let error = Endpoint::open(settings).err().unwrap();
    assert!(matches!(error, EmbedError::Endpoint { status: Some(500), .. }), "{error}");
    assert_eq!(server.join().unwrap().len(), 4);
}

#[test]
fn an_endpoint_that_hangs_is_left_after_the_given_time() {
    let (mut settings, server) = serve(vec![Answer::Hangs]);
    settings.timeout = Duration::from_millis(200);
    let start = Instant::now();
    let error = Endpoint::open(settings).err().unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{error}");
    assert!(error.to_string().contains("timeout"), "{error}");
    server.join().unwrap();
}

#[test]
fn addresses_that_could_show_a_key_are_refused_without_being_shown() {
    for base in [
        "https://me:sk-secret@host/v1",
        "https://host/v1?key=sk-secret",
        "ftp://sk-secret",
        "http://",
    ] {
        let error = Endpoint::open(Settings::new(base, "small")).err().unwrap().to_string();
        assert!(!error.contains("sk-secret") && error.contains("address"), "{error}");
    }
}
