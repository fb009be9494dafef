//! Signed tokens: real keys, real signatures, and everything that somebody
//! without a key can try.

use super::client::{Response, Server, wait_until};
use crate::world::{FRACTAL, World, able};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

const RUN: &str = r#"{"command":["true"],"discard":true}"#;
const ISSUER: &str = "https://login.example.org";
/// Wrong keys of one address that get an answer of their own in a minute.
const GUESSES: usize = 25;

enum Signer {
    Rsa(Box<RsaKeyPair>),
    P256(Box<EcdsaKeyPair>),
    Ed25519(Box<Ed25519KeyPair>),
}

impl Signer {
    /// ring makes no RSA keys, so this one is a file; it opens nothing.
    fn rsa() -> Signer {
        let text: String = include_str!("rsa.b64").split_whitespace().collect();
        let bytes = STANDARD.decode(text).expect("it is base64");
        Signer::Rsa(Box::new(RsaKeyPair::from_der(&bytes).expect("it is a key")))
    }

    fn p256() -> Signer {
        let (kind, dice) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(kind, &dice).expect("it is made");
        let pair = EcdsaKeyPair::from_pkcs8(kind, made.as_ref(), &dice).expect("it is a key");
        Signer::P256(Box::new(pair))
    }

    fn ed25519() -> Signer {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("it is made");
        let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).expect("it is a key");
        Signer::Ed25519(Box::new(pair))
    }

    fn alg(&self) -> &'static str {
        match self {
            Signer::Rsa(_) => "RS256",
            Signer::P256(_) => "ES256",
            Signer::Ed25519(_) => "EdDSA",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let dice = SystemRandom::new();
        match self {
            Signer::Rsa(pair) => {
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &dice, message, &mut out).expect("it signs");
                out
            }
            Signer::P256(pair) => pair.sign(&dice, message).expect("it signs").as_ref().to_vec(),
            Signer::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    fn public(&self, kid: &str) -> Value {
        match self {
            Signer::Rsa(pair) => {
                let parts = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256",
                       "n": encode(&parts.n), "e": encode(&parts.e)})
            }
            Signer::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": kid,
                       "x": encode(&point[1..33]), "y": encode(&point[33..])})
            }
            Signer::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid,
                       "x": encode(pair.public_key().as_ref())})
            }
        }
    }

    fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_with(json!({"alg": self.alg(), "kid": kid, "typ": "JWT"}), claims)
    }

    fn token_with(&self, header: Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        format!("{signed}.{}", encode(&self.sign(signed.as_bytes())))
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// What an issuer says of a member of a group, for an hour.
fn claims(subject: &str, group: &str) -> Value {
    let now = now();
    json!({"iss": ISSUER, "aud": ["fractal", "other"], "sub": subject, "groups": [group],
           "iat": now, "nbf": now, "exp": now + 3600})
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

fn without(mut claims: Value, name: &str) -> Value {
    claims.as_object_mut().expect("an object").remove(name);
    claims
}

fn write(path: PathBuf, text: &str) {
    // As whatever fetches keys should do: a new file in the place of the old.
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("it is written");
    std::fs::rename(&beside, path).expect("it is moved");
}

const FILE: &str = r#"[[issuer]]
iss = "https://login.example.org"
audience = ["fractal"]
jwks = "keys.json"
leeway = "0s"
role-claim = "groups"

[issuer.roles]
developers = "runner"
everybody = "viewer"
"#;

fn write_keys(world: &World, keys: &[Value]) {
    write(world.root().join("keys.json"), &json!({ "keys": keys }).to_string());
}

fn write_file(world: &World, text: &str) -> String {
    write(world.root().join("tokens.toml"), text);
    world.root().join("tokens.toml").display().to_string()
}

fn start(world: &World, file: &str, keys: &[Value]) -> Server {
    write_keys(world, keys);
    let file = write_file(world, file);
    Server::start_with(world, &["--tokens", &file, "--log", "debug"])
}

fn list(server: &Server, token: &str) -> Response {
    server.with_key(token, "GET", "/v1/sandboxes", "")
}

#[test]
fn a_token_may_what_its_role_may_and_keys_go_on() {
    let world = World::new();
    let signers = [Signer::rsa(), Signer::p256(), Signer::ed25519()];
    let keys: Vec<Value> = signers.iter().map(|signer| signer.public(signer.alg())).collect();
    let server = start(&world, FILE, &keys);
    for signer in &signers {
        let ask = |group: &str, method: &str, path: &str, body: &str| {
            let token = signer.token(signer.alg(), &claims("ann", group));
            server.with_key(&token, method, path, body)
        };
        let listed = ask("everybody", "GET", "/v1/sandboxes", "");
        assert_eq!(listed.status, 200, "{}: {}", signer.alg(), listed.body);
        let denied = ask("everybody", "POST", "/v1/run", RUN);
        assert!(denied.refusal(403, "denied").contains("may not run"));
        ask("developers", "GET", "/v1/keys", "").refusal(403, "denied");
        ask("developers", "GET", "/metrics", "").refusal(403, "denied");
        ask("strangers", "GET", "/v1/sandboxes", "").refusal(401, "denied");
        let both = with(claims("ann", "x"), "groups", json!(["everybody", "developers"]));
        let token = signer.token(signer.alg(), &both);
        // The file's first line counts, not the token's.
        let run = server.with_key(&token, "POST", "/v1/run", r#"{"command":[]}"#);
        assert_ne!(run.status, 403, "{}", run.body);
    }
    assert_eq!(list(&server, &server.key(r#"{"role":"viewer"}"#)).status, 200);
    server.with_key("frk_a.b.c", "GET", "/v1/sandboxes", "").refusal(401, "denied");
    // What was refused is on record, by who it was; no token is.
    let audit = server.own("GET", "/v1/audit?denied=true", "");
    let records = audit.json()["records"].as_array().expect("records").clone();
    let of = |record: &Value| record["who"].as_str().is_some_and(|who| who.starts_with("ann-"));
    assert!(records.iter().any(|record| of(record) && record["action"] == "run"), "{audit:?}");
    let unknown = |record: &Value| record["who"] == "nobody" && record["action"] == "authenticate";
    assert!(records.iter().any(unknown), "{}", audit.body);
    let start = encode(br#"{"alg":"#);
    assert!(!audit.body.contains(&start[..8]) && !server.log().contains(&start[..8]));
    assert!(server.log().contains("a token was refused: no value of its role claim"));
}

#[test]
fn two_subjects_do_not_meet_and_neither_do_two_issuers() {
    if !able() {
        return;
    }
    let world = World::new();
    let (one, two) = (Signer::ed25519(), Signer::ed25519());
    write(world.root().join("two.json"), &json!({"keys": [two.public("k")]}).to_string());
    let second = FILE.replace("login.", "second.").replace("keys.json", "two.json");
    let server = start(&world, &format!("{FILE}{second}"), &[one.public("k")]);
    let ann = one.token("k", &claims("ann", "developers"));
    let bob = one.token("k", &claims("bob", "developers"));
    let abroad = with(claims("ann", "developers"), "iss", json!("https://second.example.org"));
    let abroad_ann = two.token("k", &abroad);
    let made = server.with_key(&ann, "POST", "/v1/sandboxes", r#"{"name":"secret"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    for token in [&bob, &abroad_ann] {
        assert_eq!(list(&server, token).json()["sandboxes"], json!([]));
        let by_id = format!("/v1/sandboxes/{id}");
        server.with_key(token, "GET", &by_id, "").refusal(404, "not_found");
        server.with_key(token, "DELETE", &by_id, "").refusal(404, "not_found");
    }
    // Another token of the same person sees it, also one that may less.
    let again = one.token("k", &claims("ann", "everybody"));
    assert_eq!(list(&server, &again).json()["sandboxes"][0]["name"], "secret");
    // One issuer does not sign for the other.
    list(&server, &one.token("k", &abroad)).refusal(401, "denied");
}

/// What is wrong with a token, and the token.
type Attack = (&'static str, String);

fn attacks(rsa: &Signer, ec: &Signer, stranger: &Signer) -> Vec<Attack> {
    let good = || claims("ann", "developers");
    let header = |name: &str, value: Value| {
        let mut header = json!({"alg": "ES256", "kid": "ec"});
        header[name] = value;
        ec.token_with(header, &good())
    };
    let claimed = |name: &str, value: Value| ec.token("ec", &with(good(), name, value));
    let whole = ec.token("ec", &good());
    let (signed, signature) = whole.rsplit_once('.').expect("parts");
    let forged = encode(with(good(), "sub", json!("bob")).to_string().as_bytes());
    let plain = |alg: &str| {
        let head = encode(json!({"alg": alg, "kid": "ec"}).to_string().as_bytes());
        format!("{head}.{}", encode(good().to_string().as_bytes()))
    };
    let twice = good().to_string().replacen('{', r#"{"sub":"bob","#, 1);
    let ec_head = r#"{"alg":"ES256","kid":"ec"}"#;
    vec![
        ("no signature", format!("{}.", plain("none"))),
        ("no signature, other letters", format!("{}.", plain("nOnE"))),
        ("a signature cut off", format!("{signed}.")),
        ("a signature cut short", format!("{signed}.{}", &signature[..40])),
        (
            "other claims",
            format!("{}.{forged}.{signature}", signed.split_once('.').expect("two").0),
        ),
        ("a public key as secret", confused(&rsa.public("rsa"))),
        ("another algorithm", format!("{}.{}", plain("RS256"), encode(&[1; 256]))),
        ("the key of another algorithm", ec.token("rsa", &good())),
        ("an unknown key", ec.token("absent", &good())),
        ("a stranger's key by our name", stranger.token("ec", &good())),
        ("several keys and no name", ec.token_with(json!({"alg": "ES256"}), &good())),
        ("a name that is a path", header("kid", json!("../../../../dev/null"))),
        ("a name that is no text", header("kid", json!(["ec"]))),
        ("a key brought along", {
            let head = json!({"alg": "ES256", "jwk": stranger.public("ec"), "kid": "ec"});
            stranger.token_with(head, &good())
        }),
        ("a key somewhere else", header("jku", json!("http://127.0.0.1:1/keys"))),
        ("a certificate somewhere else", header("x5u", json!("http://127.0.0.1:1/cert"))),
        ("certificates brought along", header("x5c", json!([]))),
        ("extensions", header("crit", json!(["exp"]))),
        ("no extensions, but said so", header("crit", json!([]))),
        ("a token to log out", header("typ", json!("logout+jwt"))),
        ("an encrypted one", format!("{whole}.a.b")),
        ("a secret that two share", header("alg", json!("HS256"))),
        ("long", claimed("groups", json!(vec!["developers"; 2000]))),
        ("no end", ec.token("ec", &without(good(), "exp"))),
        ("an end that is text", claimed("exp", json!("9999999999"))),
        ("an end that is no number of seconds", claimed("exp", json!(-1))),
        ("an end in milliseconds", claimed("exp", json!(now() * 1000))),
        ("expired", claimed("exp", json!(now() - 1))),
        ("not good yet", claimed("nbf", json!(now() + 86_400 * 3650))),
        ("issued tomorrow", claimed("iat", json!(now() + 86_400))),
        ("for somebody else", claimed("aud", json!("other"))),
        ("for nobody", ec.token("ec", &without(good(), "aud"))),
        ("for an object", claimed("aud", json!({"fractal": true}))),
        ("by somebody else", claimed("iss", json!("https://login.example.org/"))),
        ("by nobody", ec.token("ec", &without(good(), "iss"))),
        ("of nobody", ec.token("ec", &without(good(), "sub"))),
        ("of an empty name", claimed("sub", json!(""))),
        ("of no role", claimed("groups", json!({"developers": 1}))),
        ("said twice", ec.token_of(ec_head, &twice)),
        ("a header said twice", {
            ec.token_of(r#"{"alg":"none","kid":"ec","alg":"ES256"}"#, &good().to_string())
        }),
        ("padded", format!("{signed}=.{signature}")),
        ("nothing", "..".to_owned()),
        ("deep", {
            let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
            ec.token_of(ec_head, &format!(r#"{{"x":{deep}}}"#))
        }),
    ]
}

/// The public half of an RSA key, which everybody has, as the secret of HS256.
fn confused(public: &Value) -> String {
    let head = encode(br#"{"alg":"HS256","kid":"rsa"}"#);
    let signed = format!("{head}.{}", encode(claims("ann", "developers").to_string().as_bytes()));
    let secret = public["n"].as_str().expect("a number");
    let secret = URL_SAFE_NO_PAD.decode(secret).expect("it is base64url");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), signed.as_bytes());
    format!("{signed}.{}", encode(tag.as_ref()))
}

#[test]
fn every_attack_gets_the_same_answer() {
    let world = World::new();
    let (rsa, ec, stranger) = (Signer::rsa(), Signer::p256(), Signer::p256());
    let keys = [rsa.public("rsa"), ec.public("ec")];
    let mut answers = std::collections::BTreeSet::new();
    for some in attacks(&rsa, &ec, &stranger).chunks(GUESSES) {
        let server = start(&world, FILE, &keys);
        for (name, token) in some {
            let answer = list(&server, token);
            assert_eq!(answer.status, 401, "{name}: {}", answer.body);
            // What has more than three parts is no such token, and no secret.
            if *name != "an encrypted one" {
                answers.insert(answer.body);
            }
        }
        let good = list(&server, &ec.token("ec", &claims("ann", "developers")));
        assert_eq!(good.status, 200, "{}", good.body);
        server.stop();
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[test]
fn only_what_a_file_allows_is_taken() {
    let world = World::new();
    let (rsa, ec) = (Signer::rsa(), Signer::p256());
    let more = "scope-claim = \"/box/scope\"\nalgorithms = [\"ES256\"]\nrate-per-minute = 3\n";
    let file = FILE.replace("role-claim", &format!("{more}role-claim"));
    let server = start(&world, &file, &[rsa.public("rsa"), ec.public("ec")]);
    let scoped = |scope: &str| {
        let claims = with(claims("ann", "developers"), "box", json!({"scope": scope}));
        (rsa.token("rsa", &claims), ec.token("ec", &claims))
    };
    let (by_rsa, by_ec) = scoped("template:small");
    list(&server, &by_rsa).refusal(401, "denied");
    assert_eq!(list(&server, &by_ec).status, 200);
    let made = server.with_key(&by_ec, "POST", "/v1/sandboxes", "{}");
    assert!(made.refusal(403, "denied").contains("for the template `small` alone"));
    // A token that does not say what it is for is for nothing.
    let unscoped = ec.token("ec", &claims("ann", "developers"));
    list(&server, &unscoped).refusal(401, "denied");
    list(&server, &scoped("mybox").1).refusal(401, "denied");
    // Its pace is that of the subject, whatever token it shows.
    assert_eq!(list(&server, &scoped("template:small").1).status, 200);
    list(&server, &scoped("template:small").1).refusal(429, "busy");
}

#[test]
fn a_token_that_expires_ends_what_it_follows() {
    use std::io::{Read, Write};
    let world = World::new();
    world.write("fractal.toml", "[role.auditor]\nallow = [\"list\", \"audit\"]\n");
    let signer = Signer::ed25519();
    let file = FILE.replace("\"viewer\"", "\"auditor\"");
    let server = start(&world, &file, &[signer.public("k")]);
    let ends = json!(now() + 3);
    let token = signer.token("k", &with(claims("ann", "everybody"), "exp", ends));
    assert_eq!(list(&server, &token).status, 200);
    let mut stream = server.connect();
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", server.port);
    let request = format!("{head}Authorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer begins");
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut rest = Vec::new();
    // The end of the stream is the last chunk, and not the end of the test.
    let mut chunk = [0; 1024];
    while !rest.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut chunk).expect("it ends within a minute");
        assert_ne!(read, 0, "cut off");
        rest.extend_from_slice(&chunk[..read]);
    }
    list(&server, &token).refusal(401, "denied");
    // The same for a key that is revoked while it listens.
    let key = server.key(r#"{"role":"admin","name":"boss"}"#);
    let mut stream = server.connect();
    let request = format!("{head}Authorization: Bearer {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    stream.read_exact(&mut first).expect("an answer begins");
    assert_eq!(server.own("DELETE", "/v1/keys/boss", "").status, 200);
    let mut rest = Vec::new();
    while !rest.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut chunk).expect("it ends within a minute");
        assert_ne!(read, 0, "cut off");
        rest.extend_from_slice(&chunk[..read]);
    }
}

#[test]
fn new_keys_are_taken_and_broken_files_are_not() {
    let world = World::new();
    let (old, new) = (Signer::p256(), Signer::p256());
    let server = start(&world, FILE, &[old.public("old")]);
    let by = |signer: &Signer, kid: &str| {
        list(&server, &signer.token(kid, &claims("ann", "everybody"))).status
    };
    assert_eq!((by(&old, "old"), by(&new, "new")), (200, 401));
    write_keys(&world, &[old.public("old"), new.public("new")]);
    wait_until(|| by(&new, "new") == 200);
    assert_eq!(by(&old, "old"), 200);
    write_keys(&world, &[new.public("new")]);
    wait_until(|| by(&old, "old") == 401);
    write(world.root().join("keys.json"), "{");
    wait_until(|| {
        assert_eq!(by(&new, "new"), 200);
        server.log().contains("the issuers of tokens stay as they were: ")
    });
    assert!(server.log().contains("keys.json: no JSON object"), "{}", server.log());
    write_keys(&world, &[new.public("new")]);
    let broken = FILE.replace("\"viewer\"", "\"boss\"");
    write_file(&world, &broken);
    wait_until(|| {
        assert_eq!(by(&new, "new"), 200);
        server.log().contains("tokens.toml:10: there is no role `boss`")
    });
    write_file(&world, &FILE.replace("everybody", "nobody"));
    wait_until(|| by(&new, "new") == 401);
    write_file(&world, FILE);
    wait_until(|| by(&new, "new") == 200);
    // A role that is made narrower is narrower for tokens that are about.
    world.write("fractal.toml", "[role.viewer]\nallow = [\"show\"]\n");
    assert_eq!(by(&new, "new"), 403);
    world.write("fractal.toml", "[role.viewer\n");
    assert_eq!(by(&new, "new"), 401, "what does not read is not wider");
}

#[test]
fn an_issuer_taken_out_while_settings_do_not_read_is_out() {
    let world = World::new();
    let signer = Signer::p256();
    let server = start(&world, FILE, &[signer.public("one")]);
    let by = || list(&server, &signer.token("one", &claims("ann", "everybody"))).status;
    assert_eq!(by(), 200);
    world.write("fractal.toml", "[role.viewer\n");
    write_file(&world, &FILE.replace("login.example", "other.example"));
    wait_until(|| {
        assert_eq!(by(), 401);
        server.log().contains("the issuers of tokens stay as they were: ")
    });
    world.write("fractal.toml", "");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert_eq!(by(), 401, "the file is read again once the settings do");
}

#[test]
fn who_has_a_token_can_have_a_door() {
    if !able() {
        return;
    }
    let world = World::new();
    let signer = Signer::p256();
    let server = start(&world, FILE, &[signer.public("one")]);
    let token = signer.token("one", &claims("ann", "developers"));
    let script =
        |text: &str| json!({"command": ["sh", "-c", text, FRACTAL], "door": true}).to_string();
    let run = script("\"$0\" -q fork kid && \"$0\" list");
    let ran = server.with_key(&token, "POST", "/v1/run", &run);
    assert_eq!(ran.status, 200, "{}", ran.body);
    assert!(ran.body.contains("kid"), "{}", ran.body);
    // The door is as long open as the token is good.
    let soon = with(claims("bob", "developers"), "exp", json!(now() + 3));
    let token = signer.token("one", &soon);
    let run = script("\"$0\" -q list && sleep 4; \"$0\" list");
    let ran = server.with_key(&token, "POST", "/v1/run", &run);
    assert!(ran.body.contains("is expired"), "{}", ran.body);
}

#[test]
fn a_broken_file_is_told_of_at_the_start() {
    let world = World::new();
    write_keys(&world, &[Signer::ed25519().public("k")]);
    let check = |file: &str, expect: &[&str]| {
        let path = write_file(&world, file);
        let told = world.fractal(&["serve", "--listen", "127.0.0.1:0", "--tokens", &path]);
        assert_eq!(told.status, 2, "{}", told.err);
        for text in expect {
            assert!(told.err.contains(text), "{}", told.err);
        }
    };
    check("issuer = 1", &["tokens.toml:1: "]);
    check(&FILE.replace("\"viewer\"", "\"boss\""), &["tokens.toml:10: ", "viewer, approver"]);
    check(&FILE.replace("keys.json", "absent.json"), &["tokens.toml:4: cannot read"]);
    let secret = FILE.replace("leeway", "algorithms = [\"HS256\"]\nleeway");
    check(&secret, &["tokens.toml:5: ", "RS256, ES256, EdDSA"]);
    let told = world.fractal(&["serve", "--tokens", "absent.toml"]);
    assert!(told.err.contains("cannot read absent.toml"), "{}", told.err);
}
