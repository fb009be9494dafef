//! A home to work in, rows to put into it, and this program as a child.

use fractal_model::{Id, Name, Policy, RecordBody};
use fractal_store::{LayerRow, SandboxRow, Store, new_id, now_ms};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ROLE: &str = "FRACTAL_STORE_TEST_ROLE";
const HOME: &str = "FRACTAL_STORE_TEST_HOME";

/// A child ends by itself if the test that should kill it failed before.
const LIFE_MAX: Duration = Duration::from_secs(60);

pub fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

pub fn open(home: &TempDir) -> Store {
    Store::open(home.path()).expect("the home opens")
}

pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a good name")
}

pub fn record(action: &str, sandbox: Option<Id>) -> RecordBody {
    RecordBody {
        time_ms: now_ms(),
        who: "owner".into(),
        key: None,
        tenant: None,
        action: action.into(),
        place: None,
        sandbox,
        name: None,
        before: None,
        after: None,
        error: None,
        detail: serde_json::Value::Null,
    }
}

/// A layer with its directory and row.
pub fn add_layer(store: &Store, below: Option<Id>) -> Id {
    let row = LayerRow { id: new_id(), below, sealed: false, created_ms: now_ms(), size_bytes: 0 };
    store.new_layer_dir(row.id).expect("a new layer has no directory yet");
    store.transact(|tx| tx.insert_layer(&row)).expect("the row is new");
    row.id
}

pub fn sandbox_row(name: &str, base: Option<Id>, top: Id) -> SandboxRow {
    SandboxRow {
        id: new_id(),
        name: name.into(),
        parent: None,
        base,
        top,
        policy: Policy::default(),
        template: "default".into(),
        mounts: vec![],
        directory: PathBuf::from("/project"),
        created_ms: now_ms(),
        touched_ms: now_ms(),
        ttl_ms: None,
        fork_ctime_ns: -5,
        epoch: 0,
        tenant: String::new(),
    }
}

pub fn add_sandbox(store: &Store, name: &str, base: Option<Id>) -> SandboxRow {
    let row = sandbox_row(name, base, add_layer(store, base));
    store.transact(|tx| tx.insert_sandbox(&row)).expect("the name is free");
    row
}

/// Makes everything in a layer's directory look as if made an hour ago.
pub fn age(path: &Path) {
    let then = std::time::SystemTime::now() - Duration::from_secs(3600);
    for path in [path.join("tree"), path.to_owned()] {
        let directory = std::fs::File::open(path).expect("it exists");
        directory.set_modified(then).expect("it is ours");
    }
}

/// Starts this test program again in a role.
pub fn child(role: &str, home: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a test has a program"))
        .args(["support::child_process", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(HOME, home)
        .stdout(Stdio::null())
        .spawn()
        .expect("the test program starts")
}

pub fn wait_all(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().expect("it is our child").success());
    }
}

/// Not a test by itself: what children do.
#[test]
fn child_process() {
    let (Ok(role), Ok(home)) = (std::env::var(ROLE), std::env::var(HOME)) else { return };
    let store = Store::open(Path::new(&home)).expect("the home opens for a child");
    let start = Instant::now();
    match role.as_str() {
        "open" => {}
        "append" => (0..50).for_each(|_| append(&store, "note")),
        "append-for-ever" => {
            while start.elapsed() < LIFE_MAX {
                append(&store, "note");
            }
        }
        "write-for-ever" => {
            while start.elapsed() < LIFE_MAX {
                let layer = add_layer(&store, None);
                let row = sandbox_row(new_id().as_str(), None, layer);
                let written = store.transact(|tx| {
                    tx.insert_sandbox(&row)?;
                    tx.append(record("fork", Some(row.id)))
                });
                written.expect("the name is free");
            }
        }
        "hold-a-run" => hold_a_run(&store),
        other => panic!("no role {other}"),
    }
}

fn append(store: &Store, action: &str) {
    store.transact(|tx| tx.append(record(action, None))).expect("a record is appended");
}

/// Lists itself as the supervisor of a run and then sleeps until killed.
fn hold_a_run(store: &Store) {
    let pid = i32::try_from(std::process::id()).expect("pids are small");
    let run = fractal_store::RunRow {
        id: new_id(),
        sandbox: new_id(),
        pid,
        pid_start: fractal_store::process_start(pid).expect("we live"),
        epoch: 0,
        cgroup: Some("fractal/x".into()),
        started_ms: now_ms(),
    };
    store.transact(|tx| tx.insert_run(&run)).expect("the run is new");
    std::thread::sleep(LIFE_MAX);
}
