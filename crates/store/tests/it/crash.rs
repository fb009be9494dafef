//! Processes that die: nothing half done is ever seen.

use crate::support::{child, home, open, record};
use fractal_store::{Reads, Store};
use std::time::{Duration, Instant};

/// Kills a child at a moment that differs from round to round, reopens, and
/// checks what must hold.
fn kill_in_rounds(role: &str, check: impl Fn(&Store)) {
    let home = home();
    let store = open(&home);
    let mut before = 0;
    for round in 0..20u64 {
        let mut victim = child(role, home.path());
        wait_for_records(&store, before, Duration::from_secs(20));
        // A different remainder in every round spreads the kills over the
        // phases of a commit.
        std::thread::sleep(Duration::from_micros(round * 1_337 % 9_001));
        victim.kill().expect("it is our child");
        victim.wait().expect("it is our child");
        let reopened = Store::open(home.path()).expect("it opens after a kill");
        assert_eq!(reopened.verify().expect("it reads"), vec![], "round {round}");
        let records = reopened.journal_after(0, u64::MAX).expect("it reads");
        let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
        assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>());
        assert!(numbers.len() > before, "what was seen before stays");
        before = numbers.len();
        check(&reopened);
    }
}

fn wait_for_records(store: &Store, more_than: usize, limit: Duration) {
    let start = Instant::now();
    while store.journal_after(more_than as u64, 1).expect("it reads").is_empty() {
        assert!(start.elapsed() < limit, "the child writes nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_writer_leaves_a_chain_without_gaps() {
    kill_in_rounds("append-for-ever", |_| {});
}

#[test]
fn a_killed_writer_leaves_every_sandbox_with_its_record() {
    kill_in_rounds("write-for-ever", |store| {
        let sandboxes = store.sandboxes().expect("it reads");
        let records = store.journal(None, u64::MAX).expect("it reads");
        assert_eq!(sandboxes.len(), records.len());
    });
}

#[test]
fn last_words_become_one_record_and_nonsense_none() {
    let home = home();
    let store = open(&home);
    let body = record("run", None);
    let write = |text: &[u8]| {
        let path = fractal_store::last_words_file(home.path(), fractal_store::new_id());
        std::fs::write(path, text).expect("the directory is ours");
    };
    write(&serde_json::to_vec(&body).expect("plain data"));
    write(b"{ half of a reco");
    for _ in 0..2 {
        assert_eq!(store.recover().expect("it writes"), vec![]);
        let records = store.journal(None, 9).expect("it reads");
        assert_eq!(records.iter().map(|record| &record.body).collect::<Vec<_>>(), [&body]);
    }
}

#[test]
fn a_run_whose_process_died_is_recorded_as_lost_once() {
    let home = home();
    let store = open(&home);
    let mut victim = child("hold-a-run", home.path());
    let start = Instant::now();
    while store.runs().expect("it reads").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "the child lists no run");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.recover().expect("it reads"), vec![], "it still lives");
    victim.kill().expect("it is our child");
    let lost = |store: &Store| store.recover().expect("it writes");
    // Dead but not yet waited for: a zombie supervises nothing.
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", victim.id()));
    while !state().expect("nobody waited for it").contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let runs = lost(&store);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].cgroup.as_deref(), Some("fractal/x"));
    assert_eq!(lost(&store), vec![]);
    victim.wait().expect("it is our child");
    let records = store.journal(Some(runs[0].sandbox), 9).expect("it reads");
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].body.action.as_str(), records[0].body.error), ("run", None));
    assert_eq!(records[0].body.detail["outcome"], "lost");
    assert_eq!(store.runs().expect("it reads"), vec![]);
}
