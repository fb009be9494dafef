//! Where spans and numbers are sent to: OTLP over HTTP, in JSON.
//!
//! Plain HTTP stays on this machine; whatever crosses a network goes by TLS.
//! What is sent along to be let in (`headers`) is never shown, by `Debug`
//! neither.

use axum::body::{Body, to_bytes};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use fractal::model::decode_percent;
use fractal::{Code, Error, Result};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one request may take, from connecting to its answer.
const TIME: Duration = Duration::from_secs(10);
/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const SERVICE: &str = "fractal";
/// Where systems keep the certificates that they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A collector, and under which name it knows us.
pub struct Collector {
    authority: Authority,
    host: String,
    port: u16,
    /// What stands before `/v1/traces`.
    prefix: String,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
    pub(super) service: String,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({}{})", self.authority, self.prefix)
    }
}

/// What a collector answered.
pub struct Answer {
    pub status: StatusCode,
    /// When to come again, where it says so.
    pub come_again: Option<Duration>,
    pub body: Vec<u8>,
}

impl Collector {
    /// From its address, as in `http://127.0.0.1:4318`, and what is sent along
    /// in headers, written `name=value,name=value` with `%` and two digits for
    /// what cannot stand there. `trusted` is a file of certificates (PEM)
    /// instead of the system's.
    pub fn new(
        url: &str,
        headers: Option<&str>,
        service: Option<String>,
        trusted: Option<PathBuf>,
    ) -> Result<Collector> {
        let odd = |why: &str| {
            Error::invalid(format!("the collector's address {why}"))
                .hint("write it as in `--otlp http://127.0.0.1:4318`")
        };
        let uri: Uri = url.parse().map_err(|_| odd("does not read"))?;
        let authority = uri.authority().cloned().ok_or_else(|| odd("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(Error::invalid("the collector's address holds a password")
                .hint("send it in a header: `OTEL_EXPORTER_OTLP_HEADERS=authorization=…`"));
        }
        if uri.query().is_some() {
            return Err(odd("has a query"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Some(connector(trusted.as_deref())?),
            Some(scheme) if *scheme == Scheme::HTTP && is_here(&host) => None,
            Some(scheme) if *scheme == Scheme::HTTP => {
                let text = format!("`{host}` is not this machine, and plain HTTP can be read");
                return Err(Error::denied(text)
                    .hint("use https://, or a collector on 127.0.0.1 that sends on"));
            }
            _ => return Err(odd("is neither http:// nor https://")),
        };
        let usual = if tls.is_some() { 443 } else { 80 };
        Ok(Collector {
            port: authority.port_u16().unwrap_or(usual),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            headers: headers.map_or(Ok(HeaderMap::new()), read_headers)?,
            service: service.filter(|name| !name.is_empty()).unwrap_or_else(|| SERVICE.to_owned()),
            authority,
            host,
            tls,
        })
    }

    /// Sends a document and waits for the answer, for so long.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> std::result::Result<Answer, String> {
        let asking = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
            let stream = stream.map_err(|error| format!("no connection: {error}"))?;
            let request = self.request(path, body)?;
            match &self.tls {
                None => exchange(stream, request).await,
                Some(tls) => {
                    let name = ServerName::try_from(self.host.clone());
                    let name = name.map_err(|_| "its name is none of TLS".to_owned())?;
                    let safe = tls.connect(name, stream).await;
                    exchange(safe.map_err(|error| format!("no TLS: {error}"))?, request).await
                }
            }
        };
        let asked = tokio::time::timeout(TIME, asking).await;
        asked.unwrap_or_else(|_| Err(format!("no answer within {} seconds", TIME.as_secs())))
    }

    fn request(&self, path: &str, body: Vec<u8>) -> std::result::Result<Request<Body>, String> {
        let length = body.len();
        let mut request = Request::post(format!("{}{path}", self.prefix))
            .body(Body::from(body))
            .map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        let host = HeaderValue::from_str(self.authority.as_str());
        headers.insert(header::HOST, host.map_err(|error| error.to_string())?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        Ok(request)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Body>,
) -> std::result::Result<Answer, String> {
    let broken = |error: hyper::Error| format!("the connection broke: {error}");
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(broken)?;
    let answering = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let (parts, body) = response.into_parts();
        let come_again = parts.headers.get(header::RETRY_AFTER);
        let come_again = come_again.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await;
        let body = body.map_err(|_| "its answer broke off, or is too long".to_owned())?;
        let come_again = come_again.map(Duration::from_secs);
        Ok(Answer { status: parts.status, come_again, body: body.to_vec() })
    };
    // It carries the bytes; what goes wrong with it comes out of the answer.
    let carrying = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = answering => answer,
        never = carrying => never,
    }
}

fn is_here(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// What is wrong is told by its place: a value may be a secret.
fn read_headers(text: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let pairs = text.split(',').map(str::trim).enumerate().filter(|(_, pair)| !pair.is_empty());
    for (index, pair) in pairs {
        let read = pair.split_once('=').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let mut value =
                HeaderValue::from_bytes(&decode_percent(value.trim().as_bytes())?).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let (name, value) = read.ok_or_else(|| {
            let text = format!("header {} of OTEL_EXPORTER_OTLP_HEADERS does not read", index + 1);
            Error::invalid(text).hint("write `name=value,name=value`")
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn connector(trusted: Option<&Path>) -> Result<TlsConnector> {
    let bundle = BUNDLES.iter().map(Path::new).find(|path| path.is_file());
    let file = trusted.or(bundle).ok_or_else(|| {
        Error::new(Code::Unsupported, "this system keeps no certificates to trust that are known")
            .hint("name a file of them: `OTEL_EXPORTER_OTLP_CERTIFICATE=FILE`")
    })?;
    let text = std::fs::read(file).map_err(|error| {
        Error::new(Code::NotFound, format!("cannot read {}: {error}", file.display()))
    })?;
    let mut roots = RootCertStore::empty();
    // Bundles hold some that no program reads any more.
    roots.add_parsable_certificates(
        CertificateDer::pem_slice_iter(&text).filter_map(|one| one.ok()),
    );
    if roots.is_empty() {
        return Err(Error::invalid(format!("{} holds no certificate", file.display())));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("no version of TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine() {
        let check = |url: &str, expect: &str| match Collector::new(url, None, None, None) {
            Ok(collector) => assert_eq!(format!("{collector:?}"), expect, "{url}"),
            Err(error) => assert!(error.message.contains(expect), "{url}: {error}"),
        };
        check("http://127.0.0.1:4318", "Collector(127.0.0.1:4318)");
        check("http://[::1]:4318/otlp/", "Collector([::1]:4318/otlp)");
        check("http://localhost", "Collector(localhost)");
        check("http://10.0.0.1:4318", "`10.0.0.1` is not this machine");
        check("http://collector:4318", "`collector` is not this machine");
        check("http://a:b@127.0.0.1", "holds a password");
        check("http://127.0.0.1/?a=b", "has a query");
        check("grpc://127.0.0.1:4317", "neither http:// nor https://");
        check("127.0.0.1:4318", "neither http:// nor https://");
        check("/v1/traces", "names no host");
        check("", "does not read");
    }

    #[test]
    fn headers_read_and_a_broken_one_is_not_shown() {
        let headers = read_headers("api-key=a%20b, x-more=c=d,").expect("they read");
        assert_eq!(headers["api-key"], "a b");
        assert_eq!(headers["x-more"], "c=d");
        let error = read_headers("a=b,secret").expect_err("it has no value");
        assert!(error.message.contains("header 2 "), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
