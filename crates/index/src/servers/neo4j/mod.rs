//! Relations on a server that speaks Bolt: Neo4j, or ArcadeDB.
//!
//! Records are `(:Record {place, id, key, kind, title, …})`, things are
//! `(:Thing {place, id, key, kind, title})`, and every relation is a `[:REL
//! {kind}]`. Whatever comes from a file is a parameter: statements are constant,
//! so that no title and no word of a relation can become part of one. A batch
//! and its mark are one transaction.

mod read;
mod write;

use super::wait::{ANSWER_MAX, CONNECT_MAX, Waiting};
use super::{Batch, Feed, Follower, Mark};
use crate::{GraphStore, IndexError, Result};
use neo4rs::{ConfigBuilder, Error, Graph};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that are fetched at a time.
const FETCH: usize = 5000;
/// Callers that wait at the same time.
const CONNECTIONS_MAX: usize = 4;
/// Longer keys are looked up by their digest: indexes hold no more than about
/// 8,000 bytes.
const ID_BYTES_MAX: usize = 500;
const PORT: u16 = 7687;
const SCHEMES: [&str; 6] = ["bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc"];

/// Where relations are kept.
#[derive(Clone)]
pub struct Settings {
    /// `bolt://host:7687` or `neo4j://host:7687`, with `+s` for TLS.
    pub url: String,
    /// Who asks.
    pub user: String,
    /// Shown nowhere.
    pub password: String,
    /// None for the server's own choice.
    pub database: Option<String>,
    /// Whose records these are, among those of others on the same server. Two
    /// indexes that name the same place throw each other out in turn.
    pub place: String,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &shown(&self.url))
            .field("user", &self.user)
            .field("database", &self.database)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// Relations of one place on a server.
pub struct Neo4j {
    graph: Graph,
    waiting: Waiting,
    settings: Settings,
    /// Set while the server answers; otherwise it is tried first whether
    /// anybody is there, which takes less time to fail.
    answers: AtomicBool,
}

impl fmt::Debug for Neo4j {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Neo4j").field(&self.settings).finish()
    }
}

impl Neo4j {
    /// Takes the settings; the server is not asked anything yet.
    pub fn new(settings: Settings) -> Result<Neo4j> {
        if !is_address(&settings.url) {
            return Err(IndexError::Invalid(format!(
                "{} is no address of a graph server: one is written as bolt://host:{PORT}",
                shown(&settings.url)
            )));
        }
        let failed = |why: String| server_error(&settings, why);
        let mut config = ConfigBuilder::default()
            .uri(without_login(&settings.url))
            .user(&settings.user)
            .password(&settings.password)
            .connection_timeout(ANSWER_MAX)
            .max_connections(CONNECTIONS_MAX)
            .fetch_size(FETCH);
        if let Some(database) = &settings.database {
            config = config.db(database.as_str());
        }
        let config = config.build().map_err(|error| failed(error.to_string()))?;
        let graph = Graph::connect(config).map_err(|error| failed(error.to_string()))?;
        let waiting = Waiting::new().map_err(|error| failed(error.to_string()))?;
        Ok(Neo4j { graph, waiting, settings, answers: AtomicBool::new(false) })
    }

    /// Waits for an answer of the server.
    fn wait<T: Send>(&self, work: impl Future<Output = neo4rs::Result<T>> + Send) -> Result<T> {
        if !self.answers.load(Ordering::Relaxed) {
            self.knock()?;
        }
        let answer = self.waiting.on(work);
        // What a server says no to it has heard.
        let heard = matches!(answer, Ok(_) | Err(Error::Neo4j(_)));
        self.answers.store(heard, Ordering::Relaxed);
        answer.map_err(|error| server_error(&self.settings, why(&error)))
    }

    fn knock(&self) -> Result<()> {
        let failed = |why: &str| server_error(&self.settings, why.to_owned());
        let address = address(&self.settings.url);
        let mut found = address.to_socket_addrs().map_err(|_| failed("its name leads nowhere"))?;
        match found.any(|address| TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok()) {
            true => Ok(()),
            false => Err(failed("it cannot be reached")),
        }
    }
}

/// What limits one question to the server.
async fn limited<T>(work: impl Future<Output = neo4rs::Result<T>>) -> neo4rs::Result<T> {
    let limited = tokio::time::timeout(ANSWER_MAX, work).await;
    limited.unwrap_or(Err(Error::ConnectionTimedOut))
}

fn server_error(settings: &Settings, why: String) -> IndexError {
    let mut why = why;
    if !settings.password.is_empty() {
        why = why.replace(&settings.password, "…");
    }
    IndexError::Server { name: name(settings), why }
}

fn name(settings: &Settings) -> String {
    let database = settings.database.as_deref().unwrap_or_default();
    format!("neo4j {}/{database} {}", shown(&settings.url), settings.place)
}

fn why(error: &Error) -> String {
    match error {
        Error::Neo4j(said) => format!("{}: {}", said.code(), said.message()),
        Error::ConnectionTimedOut => format!("no answer within {} s", ANSWER_MAX.as_secs()),
        Error::IOError { detail } => format!("the connection broke off: {detail}"),
        other => other.to_string(),
    }
}

/// An address without a name and a password in it.
fn without_login(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", host_of(rest)),
        None => host_of(url).to_owned(),
    }
}

fn host_of(rest: &str) -> &str {
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    rest.rsplit_once('@').map_or(rest, |(_, host)| host)
}

fn shown(url: &str) -> String {
    without_login(url)
}

/// Whether it is one as the driver expects it, which panics at some others.
fn is_address(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let host = host_of(rest);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
        _ => (host, Some(PORT)),
    };
    let is_plain = |letter: char| letter.is_alphanumeric() || "-._:[]".contains(letter);
    SCHEMES.contains(&scheme) && port.is_some() && !name.is_empty() && name.chars().all(is_plain)
}

/// Host and port, for a first look.
fn address(url: &str) -> String {
    let host = host_of(url.split_once("://").map_or(url, |(_, rest)| rest));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
}

/// What a node is looked up by.
fn id_of(key: &str) -> Cow<'_, str> {
    if key.len() <= ID_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    let digest: String = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(format!("sha256:{digest}"))
}

fn ids_of(keys: &[String]) -> Vec<String> {
    keys.iter().map(|key| id_of(key).into_owned()).collect()
}

impl Follower for Neo4j {
    fn name(&self) -> String {
        name(&self.settings)
    }

    fn wants(&self) -> Feed {
        Feed::Records
    }

    fn begin(&self) -> Result<()> {
        self.make_indexes()
    }

    fn mark(&self) -> Result<Option<Mark>> {
        self.read_mark()
    }

    fn take(&self, batch: &Batch, mark: &Mark) -> Result<()> {
        self.write_batch(batch, mark)
    }

    fn clear(&self) -> Result<()> {
        self.clear_place()
    }

    fn count(&self) -> Result<u64> {
        self.count_records()
    }

    fn missing(&self, keys: &[String]) -> Result<Vec<String>> {
        self.missing_of(keys)
    }

    fn graph(&self) -> Option<&dyn GraphStore> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_login_is_shown_and_every_address_has_a_port() {
        let check = |url: &str, plain: &str, at: &str| {
            assert_eq!((without_login(url).as_str(), address(url).as_str()), (plain, at), "{url}");
        };
        check("bolt://me:secret@host:1234/x", "bolt://host:1234", "host:1234");
        check("neo4j://host", "neo4j://host", "host:7687");
        check("bolt://[::1]", "bolt://[::1]", "[::1]:7687");
        check("bolt://[::1]:99", "bolt://[::1]:99", "[::1]:99");
        check("host", "host", "host:7687");
    }

    #[test]
    fn what_is_no_address_is_told_from_what_is() {
        for url in ["bolt://h", "neo4j+s://a.b.io", "bolt://[::1]:1", "bolt://me:x@127.0.0.1:7687"]
        {
            assert!(is_address(url), "{url}");
        }
        for url in ["", "::", "h:1", "http://h", "bolt://", "bolt://:1", "bolt://h:x", "bolt://a b"]
        {
            assert!(!is_address(url), "{url}");
        }
    }

    #[test]
    fn long_keys_are_looked_up_by_a_digest() {
        assert_eq!(id_of("notes:a.md"), "notes:a.md");
        let (one, two) = ("x".repeat(10_000), "x".repeat(10_001));
        assert!(id_of(&one).len() < 100 && id_of(&one) != id_of(&two));
    }
}
