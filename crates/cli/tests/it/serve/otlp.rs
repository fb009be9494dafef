//! What a collector is told: spans and numbers, without what nobody else may
//! know, and without anybody waiting for it.

use super::client::{Server, wait_until};
use crate::world::{FRACTAL, World, able};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// What came in one request.
#[derive(Clone)]
struct Told {
    path: String,
    headers: String,
    body: String,
}

/// Takes what it is told, after refusing as often as it was made to.
struct Collector {
    port: u16,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Collector {
    fn start(refusals: &'static [u16]) -> Collector {
        Collector::serve(refusals, Some)
    }

    /// Over connections that `greet` makes of those that come.
    fn serve<S: Read + Write>(
        refusals: &'static [u16],
        greet: impl Fn(TcpStream) -> Option<S> + Send + 'static,
    ) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has one").port();
        let told = Arc::<Mutex<Vec<Told>>>::default();
        let shared = told.clone();
        std::thread::spawn(move || {
            let mut refusals = refusals.iter();
            for stream in listener.incoming().map_while(Result::ok).filter_map(greet) {
                let mut stream = BufReader::new(stream);
                let Some(one) = read(&mut stream) else { continue };
                let status = match one.path.as_str() {
                    "/v1/traces" => *refusals.next().unwrap_or(&200),
                    _ => 200,
                };
                if status == 200 {
                    shared.lock().expect("nobody broke it").push(one);
                }
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nRetry-After: 0\r\n\
                     Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
                );
                let _ = stream.get_mut().write_all(answer.as_bytes());
                let _ = stream.get_mut().flush();
            }
        });
        Collector { port, told }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().expect("nobody broke it").clone()
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Value> {
        let told = self.told();
        let bodies = told.iter().filter(|one| one.path == "/v1/traces");
        let bodies = bodies.map(|one| serde_json::from_str::<Value>(&one.body).expect("JSON"));
        bodies.flat_map(|body| list(&body["resourceSpans"][0]["scopeSpans"][0]["spans"])).collect()
    }

    /// The span of this name, once it is there.
    fn span(&self, name: &str) -> Value {
        wait_until(|| self.spans().iter().any(|span| span["name"] == name));
        self.spans().into_iter().find(|span| span["name"] == name).expect("it was there")
    }
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().expect("a list").clone()
}

fn read(stream: &mut impl BufRead) -> Option<Told> {
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") {
        if stream.read_line(&mut headers).ok()? == 0 {
            return None;
        }
    }
    let path = headers.split(' ').nth(1)?.to_owned();
    let lower = headers.to_ascii_lowercase();
    let length = lower.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Told { path, headers, body: String::from_utf8(body).ok()? })
}

fn attribute(of: &Value, key: &str) -> Value {
    let found = list(&of["attributes"]).into_iter().find(|one| one["key"] == key);
    found.map_or(Value::Null, |one| {
        let value = one["value"].as_object().expect("a value");
        value.values().next().cloned().expect("one kind of it")
    })
}

fn took_ms(span: &Value) -> u64 {
    let time = |name: &str| span[name].as_str().and_then(|text| text.parse::<u64>().ok());
    let (start, end) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
    (end.expect("an end") - start.expect("a start")) / 1_000_000
}

#[test]
fn a_run_is_two_spans_in_its_clients_trace() {
    if !able() {
        return;
    }
    let world = World::new();
    let collector = Collector::start(&[]);
    let mut command = world.command(FRACTAL);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=let%20me%20in");
    command.env("OTEL_SERVICE_NAME", "boxes");
    let server = Server::start_as(command, &["--otlp", &collector.url()]);
    let key = server.key(r#"{"role":"runner","name":"ci"}"#);
    let body = json!({
        "name": "traced", "stdin": "hunter2-typed",
        "command": ["sh", "-c", "sleep 0.2; echo hunter2-argument; cat > hunter2-file; exit 3"],
    });
    let bearer = format!("Authorization: Bearer {key}");
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let began = std::time::Instant::now();
    let ran = server.by_port("POST", "/v1/run", &[&bearer, &parent], &body.to_string());
    let whole_ms = u64::try_from(began.elapsed().as_millis()).expect("it is short");
    assert_eq!(ran.json()["exit"], 3, "{}", ran.body);
    let (request, run) = (collector.span("POST /v1/run"), collector.span("run"));
    assert_eq!((&request["traceId"], &request["parentSpanId"]), (&json!(TRACE), &json!(SPAN)));
    assert_eq!((&run["traceId"], &run["parentSpanId"]), (&json!(TRACE), &request["spanId"]));
    assert_eq!((&request["kind"], &run["kind"]), (&json!(2), &json!(1)));
    assert_eq!(attribute(&request, "http.response.status_code"), "200");
    assert_eq!(attribute(&request, "http.route"), "/v1/run");
    assert_eq!(attribute(&request, "fractal.door"), "port");
    assert_eq!(attribute(&run, "fractal.exit"), "3");
    assert_eq!(attribute(&run, "fractal.outcome"), "exited");
    assert_eq!(attribute(&run, "fractal.sandbox"), "traced");
    // A program that fails is a run that was carried out.
    assert_eq!((&request["status"], &run["status"]), (&Value::Null, &Value::Null));
    let (outer, inner) = (took_ms(&request), took_ms(&run));
    assert!(200 <= inner && inner <= outer && outer <= whole_ms, "{inner} {outer} {whole_ms}");
    // One that says not to look is not looked at; one that reads as nothing
    // is a trace of its own.
    server.own_with("GET", "/readyz", &[&format!("traceparent: 00-{TRACE}-{SPAN}-00")], "");
    server.own_with("GET", "/healthz", &["traceparent: nonsense"], "");
    let alone = collector.span("GET /healthz");
    assert_eq!(alone["parentSpanId"], Value::Null);
    assert_ne!(alone["traceId"], TRACE);
    assert!(!collector.spans().iter().any(|span| span["name"] == "GET /readyz"));
    assert_eq!(server.stop(), 0);
    for told in collector.told() {
        assert!(told.headers.contains("api-key: let me in\r\n"), "{}", told.headers);
        assert!(told.body.contains("boxes"), "{}", told.body);
        for secret in ["hunter2", key.as_str(), "let me in", "sleep 0.2"] {
            assert!(!told.body.contains(secret), "{secret} is in {}", told.body);
        }
    }
}

#[test]
fn what_happens_behind_a_door_is_told_too() {
    if !able() {
        return;
    }
    let world = World::new();
    let collector = Collector::start(&[]);
    let server = Server::start_with(&world, &["--otlp", &collector.url()]);
    let run = json!({ "name": "own", "door": true,
        "command": ["sh", "-c", "\"$0\" fork hunter2 x >/dev/null 2>&1; \"$0\" fork own kid", FRACTAL] });
    let ran = server.own("POST", "/v1/run", &run.to_string());
    assert_eq!(ran.json()["exit"], 0, "{}", ran.body);
    let fork = collector.span("fork");
    wait_until(|| collector.spans().iter().filter(|span| span["name"] == "fork").count() == 2);
    let spans = collector.spans();
    let request = spans.iter().find(|span| span["spanId"] == fork["parentSpanId"]);
    let request = request.expect("the request that it was asked for by");
    assert_eq!(attribute(request, "fractal.door"), "inside");
    assert_eq!(attribute(request, "http.route"), "/v1/apply");
    assert_eq!(request["traceId"], fork["traceId"]);
    let errors: Vec<_> = spans.iter().filter(|span| span["name"] == "fork").collect();
    assert!(errors.iter().any(|span| attribute(span, "error.type") == "not_found"), "{errors:?}");
    assert!(errors.iter().any(|span| attribute(span, "fractal.sandbox") == "kid"), "{errors:?}");
    assert_eq!(server.stop(), 0);
    for told in collector.told() {
        assert!(!told.body.contains("hunter2"), "{}", told.body);
    }
}

#[test]
fn errors_have_their_code_and_nothing_of_what_was_sent() {
    let world = World::new();
    let collector = Collector::start(&[]);
    let server = Server::start_with(&world, &["--otlp", &collector.url()]);
    server.own("GET", "/v1/sandboxes/hunter2", "").refusal(404, "not_found");
    server.own("GET", "/v1/hunter2?hunter2=1", "").refusal(404, "not_found");
    server.by_port("GET", "/v1/sandboxes", &["X-API-Key: hunter2"], "").refusal(401, "denied");
    let show = collector.span("show");
    assert_eq!(show["status"]["code"], 2, "{show}");
    assert_eq!(attribute(&show, "error.type"), "not_found");
    let request = collector.span("GET /v1/sandboxes/{sandbox}");
    assert_eq!(request["status"], Value::Null, "it is the client's mistake");
    assert_eq!(show["parentSpanId"], request["spanId"]);
    assert_eq!(attribute(&collector.span("GET"), "http.response.status_code"), "404");
    let unknown = collector.span("GET /v1/sandboxes");
    assert_eq!(attribute(&unknown, "http.response.status_code"), "401");
    for told in collector.told() {
        assert!(!told.body.contains("hunter2"), "{}", told.body);
    }
}

#[cfg(feature = "tools")]
#[test]
fn a_call_of_a_tool_is_told_by_its_kind_and_outcome() {
    if !able() {
        return;
    }
    let world = World::new();
    let collector = Collector::start(&[]);
    let server = Server::start_with(&world, &["--otlp", &collector.url()]);
    assert_eq!(server.own("POST", "/v1/sandboxes", r#"{"name":"t"}"#).status, 201);
    let write = r#"{"sandbox":"t","input":{"path":"hunter2","content":"x"}}"#;
    let called = server.own("POST", "/v1/tools/write", write);
    assert_eq!(called.status, 200, "{}", called.body);
    let tool = collector.span("tool");
    assert_eq!(attribute(&tool, "fractal.tool_kind"), "verb", "{tool}");
    assert_eq!(attribute(&tool, "fractal.outcome"), "ok", "{tool}");
    assert!(collector.told().iter().all(|told| !told.body.contains("hunter2")));
}

#[test]
fn the_last_spans_and_the_numbers_come_before_the_end() {
    let world = World::new();
    let collector = Collector::start(&[]);
    let server = Server::start_with(&world, &["--otlp", &collector.url()]);
    server.own("GET", "/v1/sandboxes", "");
    assert_eq!(server.stop(), 0);
    assert!(collector.spans().iter().any(|span| span["name"] == "list"));
    let told = collector.told();
    let numbers = told.iter().find(|one| one.path == "/v1/metrics").expect("numbers");
    let numbers: Value = serde_json::from_str(&numbers.body).expect("JSON");
    let numbers = list(&numbers["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]);
    let of = |name: &str| numbers.iter().find(|one| one["name"] == name).expect("it is there");
    let requests = list(&of("fractal_requests")["sum"]["dataPoints"]);
    let listed = requests.iter().find(|point| attribute(point, "route") == "/v1/sandboxes");
    assert_eq!(listed.expect("it was counted")["asInt"], "1");
    let time = &of("fractal_request_seconds")["histogram"]["dataPoints"][0];
    assert_eq!((&time["count"], list(&time["bucketCounts"]).len()), (&json!("1"), 15), "{time}");
}

#[test]
fn a_collector_that_is_busy_is_asked_again_and_one_that_refuses_is_not() {
    let world = World::new();
    let end = |server: &Server, end: &str, least: u64| {
        let line = format!("fractal_otlp_spans_total{{end=\"{end}\"}} ");
        let page = server.own("GET", "/metrics", "").body;
        let value = page.split(&line).nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        value.is_some_and(|value: u64| value >= least)
    };
    let busy = Collector::start(&[503, 429]);
    let server = Server::start_with(&world, &["--otlp", &busy.url()]);
    server.own("GET", "/healthz", "");
    busy.span("GET /healthz");
    wait_until(|| end(&server, "sent", 1));
    assert!(end(&server, "lost", 0) && !end(&server, "lost", 1));
    let named = |span: &&Value| span["name"] == "GET /healthz";
    assert_eq!(busy.spans().iter().filter(named).count(), 1);
    server.stop();
    let strict = Collector::start(&[400]);
    let server = Server::start_with(&world, &["--otlp", &strict.url()]);
    server.own("GET", "/healthz", "");
    wait_until(|| end(&server, "refused", 1));
    wait_until(|| server.log().contains("it answered 400"));
}

#[test]
fn a_collector_that_is_away_or_silent_harms_nobody() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = listener.local_addr().expect("it has one").port();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let away = closed.local_addr().expect("it has one").port();
    drop(closed);
    for port in [away, silent] {
        let url = format!("http://127.0.0.1:{port}");
        let server = Server::start_with(&world, &["--otlp", &url]);
        // More than have room in the queue.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..400 {
                        assert_eq!(server.own("GET", "/healthz", "").status, 200);
                    }
                });
            }
        });
        let page = server.own("GET", "/metrics", "").body;
        let crowded = page.split("{end=\"crowded_out\"} ").nth(1).expect("it is counted");
        let crowded: u64 = crowded.lines().next().and_then(|n| n.parse().ok()).expect("a number");
        assert!(crowded > 0, "{page}");
        let pid = server.pid();
        assert_eq!(server.stop(), 0, "{port} of {pid}");
    }
}

#[test]
fn a_collector_elsewhere_is_told_by_tls_alone() {
    use rustls::pki_types::PrivateKeyDer;
    let world = World::new();
    let refused = world.fractal(&["serve", "--otlp", "http://192.0.2.1:4318"]);
    assert_eq!(refused.status, 4, "{}", refused.err);
    assert!(refused.err.contains("https://"), "{}", refused.err);
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let trusted = world.root().join("trusted.pem");
    std::fs::write(&trusted, pair.cert.pem()).expect("it is written");
    let key = PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![pair.cert.der().clone()], key)
        .expect("they belong together");
    let config = Arc::new(config);
    let collector = Collector::serve(&[], move |stream| {
        let connection = rustls::ServerConnection::new(config.clone()).ok()?;
        Some(rustls::StreamOwned::new(connection, stream))
    });
    let url = format!("https://localhost:{}", collector.port);
    let mut command = world.command(FRACTAL);
    command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", &trusted).env("FRACTAL_OTLP", &url);
    let server = Server::start_as(command, &[]);
    server.own("GET", "/healthz", "");
    collector.span("GET /healthz");
    server.stop();
    // Whom nobody vouches for is told nothing.
    let server = Server::start_with(&world, &["--otlp", &url]);
    let before = collector.told().len();
    server.own("GET", "/healthz", "");
    wait_until(|| server.log().contains("no TLS"));
    server.stop();
    assert_eq!(collector.told().len(), before);
}
