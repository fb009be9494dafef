//! TLS by certificate files: proven, refused, renewed.

use super::client::{Response, Server, exchange, request, wait_until};
use crate::world::World;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A certificate and its files.
struct Pair {
    made: CertifiedKey<KeyPair>,
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn new(directory: &Path) -> Pair {
        let pair = Pair {
            made: fresh(),
            certificate: directory.join("cert.pem"),
            key: directory.join("key.pem"),
        };
        pair.write();
        pair
    }

    fn write(&self) {
        // As whatever renews them does: new files in the place of the old.
        let write = |path: &Path, text: String| {
            let beside = path.with_extension("new");
            std::fs::write(&beside, text).expect("it is written");
            std::fs::rename(&beside, path).expect("it is moved");
        };
        write(&self.certificate, self.made.cert.pem());
        write(&self.key, self.made.signing_key.serialize_pem());
    }

    fn flags(&self) -> [&str; 4] {
        ["--tls-cert", name(&self.certificate), "--tls-key", name(&self.key)]
    }

    /// Asks as somebody who trusts this certificate alone.
    fn ask(&self, server: &Server, key: &str) -> Response {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.cert.der().clone()).expect("it is one");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("there are some")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let client = ClientConnection::new(Arc::new(config), name).expect("it is new");
        let bearer = format!("Authorization: Bearer {key}");
        let request = request("GET", "/v1/sandboxes", "localhost", &[&bearer], "");
        exchange(StreamOwned::new(client, server.connect()), &request)
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn fresh() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec!["localhost".to_owned()]).expect("it is made")
}

#[test]
fn a_port_with_a_certificate_speaks_tls_alone() {
    let world = World::new();
    let pair = Pair::new(&world.project());
    let server = Server::start_with(&world, &pair.flags());
    let key = server.key(r#"{"role":"viewer"}"#);
    let answer = pair.ask(&server, &key);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(pair.ask(&server, "frk_nonsense").status, 401);
    // Plain HTTP gets no answer of HTTP, and a stranger's certificate no trust.
    assert_eq!(server.with_key(&key, "GET", "/v1/sandboxes", "").status, 0);
    let stranger = Pair::new(world.root());
    assert_eq!(stranger.ask(&server, &key).status, 0);
    // The socket needs none of it.
    assert_eq!(server.own("GET", "/v1/sandboxes", "").status, 200);
}

#[test]
fn a_renewed_certificate_is_taken_and_a_broken_one_is_not() {
    let world = World::new();
    let mut pair = Pair::new(&world.project());
    let server = Server::start_with(&world, &pair.flags());
    let key = server.key(r#"{"role":"viewer"}"#);
    assert_eq!(pair.ask(&server, &key).status, 200);
    pair.made = fresh();
    assert_eq!(pair.ask(&server, &key).status, 0);
    pair.write();
    wait_until(|| pair.ask(&server, &key).status == 200);
    std::fs::write(&pair.certificate, "nothing").expect("it is written");
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(600));
        assert_eq!(pair.ask(&server, &key).status, 200);
    }
    pair.made = fresh();
    pair.write();
    wait_until(|| pair.ask(&server, &key).status == 200);
}

#[test]
fn whoever_says_nothing_is_cut_off_and_holds_nobody_up() {
    let world = World::new();
    let pair = Pair::new(&world.project());
    let server = Server::start_with(&world, &pair.flags());
    let key = server.key(r#"{"role":"viewer"}"#);
    let mut silent: Vec<_> = (0..50).map(|_| server.connect()).collect();
    assert_eq!(pair.ask(&server, &key).status, 200);
    for stream in &mut silent {
        let mut byte = [0];
        assert!(matches!(stream.read(&mut byte), Ok(0)), "it is closed within a minute");
    }
}

#[test]
fn files_that_do_not_hold_are_told_of_at_the_start() {
    let world = World::new();
    let pair = Pair::new(&world.project());
    let other = world.project().join("other.pem");
    std::fs::write(&other, fresh().signing_key.serialize_pem()).expect("it is written");
    let listen = ["serve", "--listen", "127.0.0.1:0"];
    let (certificate, key) = (name(&pair.certificate), name(&pair.key));
    let check = |flags: &[&str], expect: &str| {
        let told = world.fractal(&[&listen[..], flags].concat());
        assert_ne!(told.status, 0);
        assert!(told.err.contains(expect), "{}", told.err);
    };
    check(&["--tls-cert", "absent.pem", "--tls-key", key], "cannot read absent.pem");
    check(&["--tls-cert", key, "--tls-key", key], "holds no certificate");
    check(&["--tls-cert", certificate, "--tls-key", certificate], "holds no private key");
    check(&["--tls-cert", certificate, "--tls-key", name(&other)], "do not belong together");
    check(&["--tls-cert", certificate], "--tls-key");
}
