//! TLS with a certificate and a key that lie in files.
//!
//! Whatever renews them writes the files; they are looked at when somebody
//! connects, at most once a second, and a pair that does not hold is told of
//! and not taken: the one before serves on.

use fractal::{Code, Error, Result};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long two sides may take to agree.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a certificate and its key lie, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, then those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The files as they were last read.
pub struct Tls {
    files: TlsFiles,
    now: Mutex<Now>,
}

struct Now {
    acceptor: TlsAcceptor,
    stamps: [Stamp; 2],
    looked: Instant,
}

/// By what a file is known to be another one: inode, size, and when it was
/// written, in seconds and nanoseconds.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Tls {
    /// Reads both files, which must belong together.
    pub fn load(files: TlsFiles) -> Result<Tls> {
        let stamps = stamps(&files);
        let now = Now { acceptor: acceptor(&files)?, stamps, looked: Instant::now() };
        Ok(Tls { files, now: Mutex::new(now) })
    }

    /// Agrees with a client on keys; `None` when it does not, or is too slow.
    pub async fn greet(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let agreed = tokio::time::timeout(HANDSHAKE_TIME, self.latest().accept(stream)).await;
        match agreed {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!("no TLS with a client: {error}");
                None
            }
            Err(_) => None,
        }
    }

    fn latest(&self) -> TlsAcceptor {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            let stamps = stamps(&self.files);
            // Both are noted whatever comes of it: a pair of which only one is
            // new does not hold, and the other one's coming is a change again.
            if stamps != now.stamps {
                now.stamps = stamps;
                match acceptor(&self.files) {
                    Ok(fresh) => now.acceptor = fresh,
                    Err(error) => tracing::warn!("the certificate stays as it was: {error}"),
                }
            }
        }
        now.acceptor.clone()
    }
}

fn stamps(files: &TlsFiles) -> [Stamp; 2] {
    [&files.certificate, &files.key].map(|path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    })
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let text = read(&files.certificate)?;
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| invalid(format!("{} holds no certificate", files.certificate.display())))?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|_| invalid(format!("{} holds no private key", files.key.display())))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("no version of TLS: {error}")))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| {
            let (certificate, key) = (files.certificate.display(), files.key.display());
            invalid(format!("{certificate} and {key} do not belong together: {error}"))
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| {
            Error::new(Code::NotFound, format!("cannot read {}: {error}", path.display()))
                .hint("name the files with `--tls-cert FILE --tls-key FILE`")
        })?;
    Ok(bytes)
}

fn invalid(text: String) -> Error {
    Error::invalid(text).hint(
        "both are PEM: `openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem \
         -subj /CN=localhost` makes a pair for a try",
    )
}
