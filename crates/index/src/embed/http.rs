//! Vectors from an endpoint that speaks OpenAI's protocol.
//!
//! Texts go out in batches and come back as vectors of one length, or as an
//! error that names the endpoint and its status. The key goes into one header:
//! redirects are not followed, and it is taken out of whatever an endpoint
//! says before somebody reads that. Which weights an endpoint has, nobody can
//! know: its model is named by what was asked for and where.

use super::math::normalize;
use super::{EmbedError, Embedder};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// A request that may do better later is sent so often.
const TRIES_MAX: u32 = 4;

const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Longer vectors are nobody's.
const DIMENSIONS_MAX: usize = 65_536;

/// A number as text, with its comma and some white space.
const NUMBER_BYTES: usize = 48;

/// What an answer has beside its numbers.
const ANSWER_BYTES: usize = 256 << 10;

/// How much of a complaint is passed on.
const COMPLAINT_CHARS: usize = 300;

/// Where to ask, and how.
#[derive(Clone)]
pub struct Settings {
    /// What comes before `/embeddings`, such as `https://api.openai.com/v1`.
    pub base: String,
    /// The model as the endpoint calls it.
    pub model: String,
    /// What proves who asks.
    pub key: Option<String>,
    /// How many numbers a vector has; if not given, one text is embedded to
    /// see it.
    pub dimensions: Option<usize>,
    /// How many texts go out at once.
    pub batch_texts: usize,
    /// How long a batch may take, with all that is tried again.
    pub timeout: Duration,
}

impl Settings {
    /// An endpoint without a key, with batches of 64 texts and a minute each.
    pub fn new(base: impl Into<String>, model: impl Into<String>) -> Settings {
        Settings {
            base: base.into(),
            model: model.into(),
            key: None,
            dimensions: None,
            batch_texts: 64,
            timeout: Duration::from_secs(60),
        }
    }
}

/// An endpoint that was asked at least once, or whose vectors are known.
pub struct Endpoint {
    settings: Settings,
    url: String,
    name: String,
    agent: ureq::Agent,
    dimensions: usize,
}

impl Endpoint {
    /// Checks the address and finds out how long vectors are.
    pub fn open(settings: Settings) -> Result<Endpoint, EmbedError> {
        let base = checked(&settings.base)?;
        let mut endpoint = Endpoint {
            url: format!("{base}/embeddings"),
            name: format!("{}@{base}", settings.model),
            agent: agent(base),
            dimensions: settings.dimensions.unwrap_or(0).min(DIMENSIONS_MAX),
            settings,
        };
        if endpoint.dimensions == 0 {
            endpoint.dimensions = endpoint.ask(&["A sentence."])?[0].len();
        }
        Ok(endpoint)
    }

    /// One batch, again and again while that may help.
    fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let deadline = Instant::now() + self.settings.timeout;
        // Endpoints refuse a text without anything in it.
        let input: Vec<_> =
            texts.iter().map(|text| if text.is_empty() { " " } else { text }).collect();
        let body = json!({"model": self.settings.model, "input": input}).to_string();
        let mut pause = FIRST_PAUSE;
        for tried in 1.. {
            match self.send(&body, texts.len(), deadline) {
                Ok(answer) => return self.vectors(&answer, texts.len()),
                Err(fault) => {
                    let wait = fault.retry_after.unwrap_or(pause);
                    let left = deadline.saturating_duration_since(Instant::now());
                    if !fault.passes || tried == TRIES_MAX || wait >= left {
                        return Err(self.fault(fault.status, &fault.why));
                    }
                    thread::sleep(wait);
                    pause *= 2;
                }
            }
        }
        unreachable!("the last try returns")
    }

    fn send(&self, body: &str, texts: usize, deadline: Instant) -> Result<Vec<u8>, Fault> {
        let left = deadline.saturating_duration_since(Instant::now());
        let request = self.agent.post(&self.url).config().timeout_global(Some(left)).build();
        let mut request = request.header("content-type", "application/json");
        if let Some(key) = &self.settings.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut answer = request.send(body).map_err(|error| Fault::of(None, error))?;
        let status = answer.status();
        let dimensions = if self.dimensions == 0 { DIMENSIONS_MAX } else { self.dimensions };
        let limit = ANSWER_BYTES + texts * dimensions * NUMBER_BYTES;
        let retry_after = answer
            .headers()
            .get("retry-after")
            .and_then(|value| Some(Duration::from_secs(value.to_str().ok()?.trim().parse().ok()?)));
        let read = answer.body_mut().with_config().limit(limit as u64).read_to_vec();
        let body = read.map_err(|error| Fault::of(Some(status.as_u16()), error))?;
        if status.is_success() {
            return Ok(body);
        }
        let passes = status == 429 || status.is_server_error();
        let why = complaint(&body);
        Err(Fault { status: Some(status.as_u16()), why, passes, retry_after })
    }

    fn vectors(&self, answer: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
        let expect = Some(self.dimensions).filter(|&dimensions| dimensions > 0);
        read(answer, texts, expect).map_err(|why| self.fault(Some(200), &why))
    }

    fn fault(&self, status: Option<u16>, why: &str) -> EmbedError {
        let why = match &self.settings.key {
            Some(key) if !key.is_empty() => why.replace(key.as_str(), "[key]"),
            _ => why.to_owned(),
        };
        let why = match status {
            Some(200) | None => why,
            Some(status) => format!("status {status}: {why}"),
        };
        EmbedError::Endpoint { endpoint: self.url.clone(), status, why }
    }
}

impl Embedder for Endpoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.settings.batch_texts.max(1)) {
            vectors.extend(self.ask(batch)?);
        }
        Ok(vectors)
    }
}

struct Fault {
    status: Option<u16>,
    why: String,
    /// Whether it may go better the next time.
    passes: bool,
    retry_after: Option<Duration>,
}

impl Fault {
    fn of(status: Option<u16>, error: ureq::Error) -> Fault {
        let passes = matches!(error, ureq::Error::Io(_) | ureq::Error::ConnectionFailed);
        Fault { status, why: error.to_string(), passes, retry_after: None }
    }
}

/// An address that can be shown: without a name, a password or a question.
fn checked(base: &str) -> Result<&str, EmbedError> {
    let base = base.trim_end_matches('/');
    let fault = |shown: &str, why: &str| {
        Err(EmbedError::Endpoint { endpoint: shown.to_owned(), status: None, why: why.to_owned() })
    };
    let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
    match rest {
        Some(rest) if rest.contains(['@', '?', '#']) => {
            fault("the endpoint", "a key or a question does not belong into its address")
        }
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(base),
        _ => fault("the endpoint", "its address does not begin with http:// or https://"),
    }
}

fn agent(base: &str) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(10)))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false);
    let host = base.split("://").nth(1).unwrap_or_default();
    if ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own)) {
        // A proxy would look for it on its own machine.
        config = config.proxy(None);
    }
    config.build().new_agent()
}

/// What an endpoint says about an error, on one line.
fn complaint(body: &[u8]) -> String {
    let json = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let said = json.pointer("/error/message").or(json.get("error")).or(json.get("message"));
    let text = match said.and_then(Value::as_str) {
        Some(said) => said.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(plain).take(COMPLAINT_CHARS).collect::<String>().trim().to_owned()
}

fn read(answer: &[u8], texts: usize, expect: Option<usize>) -> Result<Vec<Vec<f32>>, String> {
    let json: Value =
        serde_json::from_slice(answer).map_err(|error| format!("it answers no JSON: {error}"))?;
    let data = json.get("data").and_then(Value::as_array).ok_or("its answer has no data")?;
    if data.len() != texts {
        return Err(format!("it gives {} vectors for {texts} texts", data.len()));
    }
    let mut vectors = vec![Vec::new(); texts];
    for (position, one) in data.iter().enumerate() {
        let index = one.get("index").and_then(Value::as_u64).unwrap_or(position as u64);
        let place = vectors.get_mut(index as usize).filter(|place| place.is_empty());
        let place = place.ok_or_else(|| format!("it gives vector {index} twice or of no text"))?;
        *place = vector(one)?;
    }
    let size = expect.unwrap_or(vectors[0].len());
    match vectors.iter().find(|vector| vector.len() != size) {
        Some(other) => Err(format!("it gives a vector of {} numbers, not {size}", other.len())),
        None => Ok(vectors),
    }
}

fn vector(one: &Value) -> Result<Vec<f32>, String> {
    let numbers = one.get("embedding").and_then(Value::as_array).ok_or("a vector is missing")?;
    if numbers.len() > DIMENSIONS_MAX {
        return Err(format!("it gives a vector of {} numbers", numbers.len()));
    }
    let numbers = numbers.iter().map(|number| number.as_f64().map(|number| number as f32));
    let mut vector: Vec<f32> = numbers.collect::<Option<_>>().ok_or("a vector has no numbers")?;
    normalize(&mut vector);
    let length: f32 = vector.iter().map(|value| value * value).sum();
    match (length - 1.0).abs() < 1e-3 {
        true => Ok(vector),
        false => Err("it gives a vector without a direction".to_owned()),
    }
}
