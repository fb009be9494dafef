//! Many processes on one state directory at once.

use crate::world::{World, able};

#[test]
fn twenty_at_once_all_get_what_they_asked_for() {
    if !able() {
        return;
    }
    let world = World::new();
    std::thread::scope(|scope| {
        for number in 0..20 {
            let world = &world;
            scope.spawn(move || {
                let name = format!("box-{number}");
                let script = format!("echo {number} > mine");
                world.ok(&["run", "--name", &name, "--", "sh", "-c", &script]);
            });
        }
    });
    let (_, list) = world.json(&["list", "--json"]);
    assert_eq!(list["sandboxes"].as_array().map(Vec::len), Some(20));
    for number in 0..20 {
        let name = format!("box-{number}");
        assert_eq!(
            world.ok(&["run", "--in", &name, "--", "cat", "mine"]).out,
            format!("{number}\n")
        );
    }
    assert!(!world.project().join("mine").exists());
}

#[test]
fn one_name_is_given_once() {
    if !able() {
        return;
    }
    let world = World::new();
    let statuses: Vec<i32> = std::thread::scope(|scope| {
        let run = || world.fractal(&["run", "--name", "one", "--", "true"]).status;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 0).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [0, 125].contains(status)), "{statuses:?}");
}
