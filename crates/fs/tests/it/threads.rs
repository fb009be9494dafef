//! Many threads at one view.

use fractal_fs::{Kind, Vfs};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn compare_and_swap_loses_no_update() {
    let view = Vfs::default();
    view.write("/count", "0").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    loop {
                        let (bytes, version) = view.read_version("/count").unwrap();
                        let number: u64 = std::str::from_utf8(&bytes).unwrap().parse().unwrap();
                        match view.write_if("/count", (number + 1).to_string(), version) {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.kind, Kind::Changed),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(view.read("/count").unwrap(), "2000");
}

#[test]
fn appends_forks_and_changes_at_once() {
    let view = Vfs::default();
    let forks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (view, forks) = (&view, &forks);
            scope.spawn(move || {
                for round in 0..300 {
                    view.append("/log", b"0123456789").unwrap();
                    view.write_all(format!("/{thread}/{round}"), "x").unwrap();
                    let fork = view.fork();
                    fork.remove_all(format!("/{thread}")).unwrap();
                    assert!(fork.changes().unwrap().len() > round);
                    assert_eq!(fork.read("/log").unwrap().len() % 10, 0);
                    forks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(view.read("/log").unwrap().len(), 4 * 300 * 10);
    assert_eq!(view.usage().entries, 4 * 300 + 4 + 1);
    assert_eq!(forks.into_inner(), 1200);
}
