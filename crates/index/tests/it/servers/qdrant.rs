//! Vectors on a server: a real one where there is one, otherwise the double.

use super::contract::HOSTILE;
use super::notes::{Notes, key};
use super::process::free_port;
use super::qdrant_double::{Data, Double};
use super::{Case, failures};
use fractal_index::servers::qdrant::{Qdrant, Settings};
use fractal_index::servers::{Followed, Follower, Mark, Pace};
use fractal_index::vectors::Flat;
use fractal_index::{Index, IndexError, Result};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const DIMENSIONS: usize = 8;
const API_KEY: &str = "k3y-that-is-never-shown";

/// The server, and how to take it away.
struct Server {
    url: String,
    /// None where a real one runs.
    double: Option<(SocketAddr, Data, RefCell<Option<Double>>)>,
    /// Makes places that no other run has.
    run: String,
}

const CASES: &[Case<Server>] = &[
    ("the nearest are those of the embedded vectors", nearest_are_the_same),
    ("vectors that change, move and go do so on the server", changes_arrive),
    ("two places on one server do not see each other", two_places),
    ("a vector of the wrong size is refused before anything is sent", wrong_sizes),
    ("a server that was emptied is filled again", emptied),
    ("keys are only ever text", hostile_keys),
    ("whoever stops at any moment goes on where it was", stopped_at_any_moment),
    ("what differs is said", what_differs),
    ("a server that goes away and comes back catches up", away_and_back),
    ("a server that is down says so quickly, and no key is shown", down),
];

#[test]
fn qdrant_answers_as_the_embedded_vectors_do() {
    let run = format!("{:?}", std::time::SystemTime::now());
    let server = match std::env::var("FRACTAL_TEST_QDRANT_URL") {
        Ok(url) => Server { url, double: None, run },
        Err(_) => {
            println!("a double, since FRACTAL_TEST_QDRANT_URL is not set");
            let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
            let data = Data::new(API_KEY);
            let double = Double::start(address, &data);
            let url = format!("http://{address}");
            Server { url, double: Some((address, data, RefCell::new(Some(double)))), run }
        }
    };
    let failed = failures(&server, CASES);
    assert!(failed.is_empty(), "{failed:?}");
}

impl Server {
    fn settings(&self, place: &str) -> Settings {
        Settings {
            url: self.url.clone(),
            api_key: Some(API_KEY.into()),
            place: format!("{place} {}", self.run),
            model: "test/model of 8".into(),
            dimensions: DIMENSIONS,
        }
    }

    fn store(&self, place: &str) -> Qdrant {
        Qdrant::new(self.settings(place)).expect("the settings are right")
    }
}

/// Notes whose vectors are there.
struct Embedded {
    notes: Notes,
    flat: Flat,
    seed: u64,
}

impl Embedded {
    fn new(names: &[&str]) -> Embedded {
        let notes = Notes::new();
        let dir = notes.cache().join("vectors");
        let flat = Flat::create(&dir, "test/model of 8", DIMENSIONS).expect("it is made");
        let mut embedded = Embedded { notes, flat, seed: 7 };
        for name in names {
            embedded.notes.write(name, name, "", "");
        }
        embedded.notes.index();
        for (at, name) in names.iter().enumerate() {
            embedded.embed(name, 1 + at % 4);
        }
        embedded
    }

    fn number(&self, key: &str) -> u64 {
        let keys = self.notes.keys();
        keys.iter().find(|(other, _)| other == key).map(|(_, number)| *number).expect("it is there")
    }

    fn embed(&mut self, name: &str, chunks: usize) {
        let number = self.number(&key(name));
        let vectors = (0..chunks).map(|_| self.vector()).collect();
        self.flat.put(&[(number, vectors)]).expect("they are kept");
        self.notes
            .database()
            .execute("INSERT OR REPLACE INTO embedded (num, print) VALUES (?, ?)", (number, chunks))
            .expect("it is noted");
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..DIMENSIONS)
            .map(|_| {
                self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (self.seed >> 40) as f32 / 8_388_608.0 - 1.0
            })
            .collect()
    }

    fn vectors(&self, number: u64) -> Result<Vec<Vec<f32>>> {
        self.flat.vectors_of(number).map_err(|error| IndexError::Invalid(error.to_string()))
    }

    fn follow(&self, index: &Index, store: &Qdrant, batch: usize) -> Result<Followed> {
        let vectors = |number| self.vectors(number);
        let pace = Pace { batch, ..Pace::default() };
        index.follow(&store.fed(&vectors), pace, &mut |_, _| ())
    }

    /// What the embedded vectors answer, by key.
    fn nearest(&self, vector: &[f32], limit: usize) -> Vec<(String, f32)> {
        let names: BTreeMap<u64, String> =
            self.notes.keys().into_iter().map(|(key, number)| (number, key)).collect();
        let found = self.flat.nearest(vector, limit, &|number| names.contains_key(&number));
        found
            .expect("it answers")
            .into_iter()
            .map(|(number, near)| (names[&number].clone(), near))
            .collect()
    }

    /// Brings a server in step and compares.
    fn check(&mut self, store: &Qdrant) -> Followed {
        let index = self.notes.index();
        let followed = self.follow(&index, store, 3).expect("the server is there");
        assert_eq!(followed.lag, 0);
        for limit in [1, 3, 100] {
            let question = self.vector();
            let here = self.nearest(&question, limit);
            let there = store.nearest(&question, limit, &|_| true).expect("it answers");
            let keys = |found: &[(String, f32)]| -> Vec<String> {
                found.iter().map(|(key, _)| key.clone()).collect()
            };
            assert_eq!(keys(&there), keys(&here));
            let off = here.iter().zip(&there).map(|(a, b)| (a.1 - b.1).abs());
            assert!(off.fold(0.0, f32::max) < 1e-5, "{here:?} {there:?}");
        }
        followed
    }
}

const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

fn nearest_are_the_same(server: &Server) {
    let mut embedded = Embedded::new(&NAMES);
    let store = server.store("same");
    assert_eq!(embedded.check(&store).sent, 10);
    let question = embedded.vector();
    let all = store.nearest(&question, 100, &|_| true).expect("it answers");
    assert_eq!(all.len(), 10, "each record once");
    // With a filter there are as many, of the others.
    let odd = |found: &str| !found.contains('a') && found != all[0].0;
    let some = store.nearest(&question, 3, &odd).expect("it answers");
    let expected: Vec<_> = all.iter().filter(|(key, _)| odd(key)).take(3).cloned().collect();
    assert_eq!(some, expected);
    assert_eq!(store.nearest(&question, 0, &|_| true).expect("it answers"), []);
}

fn changes_arrive(server: &Server) {
    let mut embedded = Embedded::new(&NAMES);
    let store = server.store("changes");
    embedded.check(&store);
    // Fewer pieces than before, and more.
    embedded.embed("d", 1);
    embedded.embed("a", 6);
    assert_eq!(embedded.check(&store).sent, 2);
    // Another text whose vectors are still to come keeps the old ones.
    embedded.notes.write("b", "Other", "", "");
    embedded.check(&store);
    let number = embedded.number(&key("c"));
    embedded.notes.remove("c");
    embedded.notes.index();
    embedded.flat.remove(&[number]).expect("it is removed");
    assert_eq!(embedded.check(&store).removed, 1);
    // Another key for the same record.
    embedded.notes.write("e", "e", "id: 01JQ0000000000000000000001\n", "");
    let followed = embedded.check(&store);
    assert_eq!((followed.sent, followed.removed), (1, 1));
    // A record that has no vectors is not sent.
    embedded.notes.write("new", "New", "", "");
    assert_eq!(embedded.check(&store).sent, 0);
}

fn two_places(server: &Server) {
    let (mut one, mut two) = (Embedded::new(&NAMES), Embedded::new(&NAMES[..4]));
    two.embed("b", 3);
    let (here, there) = (server.store("one"), server.store("two"));
    one.check(&here);
    two.check(&there);
    one.check(&here);
    one.notes.index().unfollow(&here.fed(&|_| Ok(Vec::new()))).expect("it answers");
    assert_eq!(here.nearest(&one.vector(), 9, &|_| true).expect("it answers"), []);
    two.check(&there);
    one.check(&here);
}

fn wrong_sizes(server: &Server) {
    let embedded = Embedded::new(&NAMES);
    let store = server.store("sizes");
    let index = embedded.notes.index();
    let vectors = |number| {
        let mut vectors = embedded.vectors(number)?;
        vectors[0].truncate(if number == 9 { 5 } else { DIMENSIONS });
        Ok(vectors)
    };
    let fed = store.fed(&vectors);
    let error = index.follow(&fed, Pace::default(), &mut |_, _| ()).expect_err("too short");
    let said = error.to_string();
    assert!(said.contains("5 numbers") && said.contains("have 8"), "{said}");
    assert_eq!(fed.count().expect("it answers"), 0);
    assert!(store.nearest(&[1.0], 5, &|_| true).is_err());
    assert!(store.nearest(&[0.0; DIMENSIONS], 5, &|_| true).is_err());
}

fn emptied(server: &Server) {
    let mut embedded = Embedded::new(&NAMES);
    let store = server.store("emptied");
    embedded.check(&store);
    let nothing = |_| Ok(Vec::new());
    // Emptied behind our back.
    store.fed(&nothing).clear().expect("it answers");
    let followed = embedded.check(&store);
    assert_eq!((followed.sent, followed.afresh), (10, true));
    // Filled by somebody else under the same name.
    let other = Mark { epoch: "other".into(), rev: 99 };
    store.fed(&nothing).take(&Default::default(), &other).expect("it answers");
    let followed = embedded.check(&store);
    assert_eq!((followed.sent, followed.afresh), (10, true));
    // As from a backup that is older.
    let mark = store.fed(&nothing).mark().expect("it answers").expect("it is there");
    let older = Mark { rev: 3, ..mark };
    store.fed(&nothing).take(&Default::default(), &older).expect("it answers");
    let followed = embedded.check(&store);
    assert!(!followed.afresh && followed.sent > 0, "{followed:?}");
}

fn hostile_keys(server: &Server) {
    let names: Vec<String> = HOSTILE
        .iter()
        .map(|text| text.chars().filter(|letter| !"/\n\r\t".contains(*letter)).collect())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut embedded = Embedded::new(&names);
    let store = server.store(HOSTILE[0]);
    assert_eq!(embedded.check(&store).sent, names.len() as u64);
}

fn stopped_at_any_moment(server: &Server) {
    let mut embedded = Embedded::new(&NAMES);
    let store = server.store("stopped");
    for round in 0..6 {
        let index = embedded.notes.index();
        let left = std::cell::Cell::new(2 + 3 * round);
        // Ends before a batch is whole, with batches of another size each time.
        let vectors = |number| {
            left.set(left.get() - 1);
            match left.get() {
                0 => Err(IndexError::Invalid("enough".into())),
                _ => embedded.vectors(number),
            }
        };
        let pace = Pace { batch: 1 + round, ..Pace::default() };
        let _ = index.follow(&store.fed(&vectors), pace, &mut |_, _| ());
        if round == 3 {
            embedded.embed("b", 1);
        }
    }
    assert!(!embedded.check(&store).afresh);
}

fn what_differs(server: &Server) {
    let mut embedded = Embedded::new(&NAMES);
    let store = server.store("differs");
    embedded.check(&store);
    let index = embedded.notes.index();
    let nothing = |_| Ok(Vec::new());
    let fed = store.fed(&nothing);
    assert_eq!(index.verify_server(&fed).expect("it answers").differs, [""; 0]);
    let mark = fed.mark().expect("it answers").expect("it is there");
    let gone = fractal_index::servers::Batch { gone: vec![key("d")], ..Default::default() };
    fed.take(&gone, &mark).expect("it answers");
    let differs = index.verify_server(&fed).expect("it answers").differs;
    assert_eq!(differs, ["it has 9 records, the index has 10", "notes:d.md is not there"]);
}

fn away_and_back(server: &Server) {
    let Some((address, data, running)) = &server.double else {
        println!("skipped: a server of somebody else is not stopped");
        return;
    };
    let mut embedded = Embedded::new(&NAMES);
    let store = server.store("away");
    let index = embedded.notes.index();
    let vectors = |number| embedded.vectors(number);
    let mut progress = |done, _| {
        if done == 6 {
            running.borrow_mut().take();
        }
    };
    let pace = Pace { batch: 3, ..Pace::default() };
    let error = index.follow(&store.fed(&vectors), pace, &mut progress).expect_err("it is gone");
    assert!(matches!(error, IndexError::Server { .. }), "{error}");
    assert_eq!(index.lag(&store.fed(&vectors)).expect("it is counted"), 4);
    *running.borrow_mut() = Some(Double::start(*address, data));
    let followed = embedded.check(&store);
    assert_eq!((followed.sent, followed.afresh), (4, false));
    // And with nothing left on it.
    running.borrow_mut().take();
    let empty = Data::new(API_KEY);
    *running.borrow_mut() = Some(Double::start(*address, &empty));
    let followed = embedded.check(&store);
    assert_eq!((followed.sent, followed.afresh), (10, true));
    running.borrow_mut().take();
    *running.borrow_mut() = Some(Double::start(*address, data));
}

fn down(server: &Server) {
    let embedded = Embedded::new(&NAMES);
    let index = embedded.notes.index();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let settings = Settings { url: nobody, ..server.settings("down") };
    let store = Qdrant::new(settings.clone()).expect("settings");
    let started = Instant::now();
    let error = embedded.follow(&index, &store, 3).expect_err("nobody");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(matches!(error, IndexError::Server { .. }), "{error}");
    let mut shown = format!("{error} {error:?} {settings:?} {store:?}");
    if server.double.is_some() {
        let wrong = Settings { api_key: Some("wr0ng".into()), ..server.settings("down") };
        let store = Qdrant::new(wrong).expect("settings");
        let error = embedded.follow(&index, &store, 3).expect_err("not admitted");
        assert!(error.to_string().contains("API key"), "{error}");
        shown += &format!("{error} {error:?}");
    }
    assert!(!shown.contains(API_KEY) && !shown.contains("wr0ng"), "{shown}");
    assert!(!embedded.nearest(&[1.0; DIMENSIONS], 3).is_empty(), "those here are here");
}
