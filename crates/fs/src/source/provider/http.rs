//! What an HTTP server answers with, as a file of JSON.

use super::{Context, Made, Provide};
use serde::de::IgnoredAny;
use std::time::{Duration, Instant};

/// A GET request whose answer is JSON. It follows no redirect, asks no proxy
/// and speaks no TLS: it is meant for services beside this program.
pub struct HttpJson {
    url: String,
    headers: Vec<(String, String)>,
}

impl HttpJson {
    /// Asks `http://…`.
    pub fn get(url: impl Into<String>) -> HttpJson {
        HttpJson { url: url.into(), headers: Vec::new() }
    }

    /// Sends one more header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> HttpJson {
        self.headers.push((name.into(), value.into()));
        self
    }
}

impl Provide for HttpJson {
    fn read(&self, context: &Context) -> Result<Made, String> {
        let left = context.deadline.saturating_duration_since(Instant::now());
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(left.mul_f32(0.95).max(Duration::from_millis(1))))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .new_agent();
        let mut request = agent.get(&self.url).header("accept", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut answer = request.call().map_err(|error| format!("{}: {error}", self.url))?;
        if !answer.status().is_success() {
            return Err(format!("{} answers {}", self.url, answer.status()));
        }
        let body = answer.body_mut().with_config().limit(context.bytes_max);
        let body = body.read_to_vec().map_err(|error| format!("{}: {error}", self.url))?;
        let json = serde_json::from_slice::<IgnoredAny>(&body);
        json.map_err(|error| {
            format!("{} answers with something else than JSON: {error}", self.url)
        })?;
        Ok(Made::Bytes(body.into()))
    }
}
