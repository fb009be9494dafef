//! A server that speaks Bolt, as the contract sees it.

use super::contract::{self, Graphs};
use super::process::Process;
use super::{broken, failures, relations, speed};
use fractal_index::servers::neo4j::{Neo4j, Settings};
use fractal_index::servers::{Followed, Pace};
use fractal_index::{GraphStore, Index};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static ALONE: Mutex<()> = Mutex::new(());
/// Longer than a busy machine needs.
const START_MAX: Duration = Duration::from_secs(150);

/// A server with its data, which it finds again when it is started again.
pub struct Bolt {
    /// Goes before its data does.
    pub process: RefCell<Option<Process>>,
    pub port: u16,
    pub user: &'static str,
    pub password: &'static str,
    pub database: Option<&'static str>,
    pub dir: tempfile::TempDir,
    /// Starts it on its data.
    pub start: fn(&Bolt) -> Process,
}

impl Bolt {
    /// Starts it and waits until it answers; says how long that took.
    pub fn up(&self) -> Duration {
        let started = Instant::now();
        let mut process = (self.start)(self);
        process.wait_for(self.port);
        // It may listen before it answers.
        let store = self.store("nobody");
        while let Err(error) = store.all(1) {
            let output = process.output();
            assert!(started.elapsed() < START_MAX, "{error}: {output}");
            std::thread::sleep(Duration::from_millis(100));
        }
        *self.process.borrow_mut() = Some(process);
        started.elapsed()
    }

    /// All that is asked of a graph server.
    pub fn keeps_its_promises(&self) {
        // Each wants a machine for itself while it starts.
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        println!("it starts in {:?}", self.up());
        let mut failed = failures::<dyn Graphs>(self, contract::CASES);
        failed.extend(failures(self, relations::CASES));
        failed.extend(failures(self, broken::CASES));
        failed.extend(failures(self, &[("it is quick enough", speed::of)]));
        assert!(failed.is_empty(), "{failed:?}");
    }

    /// As a power cut would.
    pub fn kill(&self) {
        self.process.borrow_mut().take();
    }

    pub fn settings(&self, place: &str) -> Settings {
        Settings {
            url: format!("bolt://127.0.0.1:{}", self.port),
            user: self.user.into(),
            password: self.password.into(),
            database: self.database.map(str::to_owned),
            place: place.into(),
        }
    }

    pub fn store(&self, place: &str) -> Neo4j {
        Neo4j::new(self.settings(place)).expect("the settings are right")
    }

    /// Runs a statement as somebody else would.
    pub fn meddle(&self, statement: &str, place: &str) {
        let mut config = neo4rs::ConfigBuilder::default()
            .uri(format!("bolt://127.0.0.1:{}", self.port))
            .user(self.user)
            .password(self.password);
        if let Some(database) = self.database {
            config = config.db(database);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let graph = neo4rs::Graph::connect(config.build().expect("it is whole"));
            let query = neo4rs::query(statement).param("place", place);
            graph.expect("an address").run(query).await.expect("it is run");
        });
    }
}

impl Graphs for Bolt {
    fn follow(&self, index: &Index, place: &str, batch: usize) -> Followed {
        let pace = Pace { batch, ..Pace::default() };
        index.follow(&self.store(place), pace, &mut |_, _| ()).expect("the server is there")
    }

    fn graph<'a>(&self, _index: &'a Index, place: &str) -> Box<dyn GraphStore + 'a> {
        Box::new(self.store(place))
    }
}
