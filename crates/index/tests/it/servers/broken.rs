//! What happens when a server is not there, or is not what it was.

use super::Case;
use super::bolt::Bolt;
use super::contract::is_same;
use super::notes::{Notes, key};
use fractal_index::servers::neo4j::{Neo4j, Settings};
use fractal_index::servers::{Follower, Pace};
use fractal_index::{GraphStore, Index, IndexError};
use std::time::{Duration, Instant};

pub const CASES: &[Case<Bolt>] = &[
    ("a server that was killed on the way catches up", killed_on_the_way),
    ("a server that is down says so quickly and keeps nobody from anything", down),
    ("every way to write its address leads to it", addresses),
    ("no password is ever shown", no_password_is_shown),
];

fn chain(length: usize) -> Notes {
    let notes = Notes::new();
    for at in 0..length {
        notes.write(&format!("n{at}"), &format!("N {at}"), "", &format!("[next](n{}.md)", at + 1));
    }
    notes
}

fn killed_on_the_way(bolt: &Bolt) {
    let notes = chain(60);
    let index = notes.index();
    let store = bolt.store("killed");
    let pace = Pace { batch: 10, ..Pace::default() };
    let killed = std::cell::Cell::new(Instant::now());
    let error = index
        .follow(&store, pace, &mut |done, _| {
            if done == 30 {
                bolt.kill();
                killed.set(Instant::now());
            }
        })
        .expect_err("it is gone");
    assert!(matches!(error, IndexError::Server { .. }), "{error}");
    assert!(killed.get().elapsed() < Duration::from_secs(4), "{:?}", killed.get().elapsed());
    assert_eq!(index.lag(&store).expect("it is counted"), 30);
    assert_eq!(index.touching(&[key("n5")], 9).expect("the index is here").len(), 2);
    println!("started again in {:?}", bolt.up());
    // The same store, whose connections are all broken.
    let followed = index.follow(&store, pace, &mut |_, _| ()).expect("it is back");
    assert_eq!((followed.lag, followed.afresh), (0, false), "{followed:?}");
    assert!(followed.sent >= 30, "{followed:?}");
    is_same(&index, &store);
    assert_eq!(index.verify_server(&store).expect("it answers").differs, [""; 0]);
}

fn down(bolt: &Bolt) {
    let notes = chain(3);
    let index = notes.index();
    let nobody = super::process::free_port();
    let url = format!("bolt://127.0.0.1:{nobody}");
    let store = Neo4j::new(Settings { url, ..bolt.settings("down") }).expect("settings");
    check_quick(&index, &store);
    // One that is reached and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("bolt://{}", silent.local_addr().expect("an address"));
    let store = Neo4j::new(Settings { url, ..bolt.settings("down") }).expect("settings");
    let started = Instant::now();
    let error = store.all(1).expect_err("it says nothing").to_string();
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(error.contains("no answer within 10 s"), "{error}");
}

fn addresses(bolt: &Bolt) {
    let notes = chain(3);
    let index = notes.index();
    for scheme in ["bolt", "neo4j"] {
        let url = format!("{scheme}://127.0.0.1:{}", bolt.port);
        let store = Neo4j::new(Settings { url, ..bolt.settings(scheme) }).expect("settings");
        index.follow(&store, Pace::default(), &mut |_, _| ()).expect("it is there");
        is_same(&index, &store);
    }
    for url in ["http://127.0.0.1:1", "", "bolt://", "::", "bolt://[", "bolt://1.2.3.4.5.6:1"] {
        let settings = Settings { url: url.into(), ..bolt.settings("nowhere") };
        assert!(Neo4j::new(settings).and_then(|store| store.all(1)).is_err(), "{url}");
    }
}

fn check_quick(index: &Index, store: &Neo4j) {
    let started = Instant::now();
    let error = index.follow(store, Pace::default(), &mut |_, _| ()).expect_err("nobody");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(matches!(error, IndexError::Server { .. }), "{error}");
    assert!(store.touching(&[key("n0")], 9).is_err());
    assert_eq!(index.touching(&[key("n0")], 9).expect("the index is here").len(), 1);
    assert_eq!(index.lag(store).expect("it is counted"), 3);
}

fn no_password_is_shown(bolt: &Bolt) {
    let secret = "s3cr3t-p4ssw0rd";
    let port = bolt.port;
    let settings = Settings {
        url: format!("bolt://me:{secret}@127.0.0.1:{port}"),
        password: secret.into(),
        ..bolt.settings("secret")
    };
    let store = Neo4j::new(settings.clone()).expect("settings");
    let mut shown = format!("{settings:?} {store:?} {}", store.name());
    if let Err(error) = store.all(1) {
        shown += &format!("{error} {error:?}");
    }
    let nowhere = Settings { url: format!("bolt://me:{secret}@nowhere.invalid"), ..settings };
    let error = Neo4j::new(nowhere).and_then(|store| store.all(1)).expect_err("nowhere");
    shown += &format!("{error} {error:?}");
    assert!(!shown.contains(secret), "{shown}");
}
