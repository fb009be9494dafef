//! Stacks that would be deeper than can be mounted: flattened on the way, and
//! nobody can tell.

use crate::world::World;
use fractal::{Action, Policy, Reply};
use fractal_store::{Reads, Store};

const ROUNDS: usize = 600;

impl World {
    /// Puts a file into a sandbox without running anything.
    fn put(&self, sandbox: &str, name: &str, text: &str) {
        let file = self.dir.path().join("incoming");
        std::fs::write(&file, text).unwrap();
        let to = format!("{sandbox}:{}/{name}", self.project().display());
        let from = file.display().to_string();
        self.apply(Action::Copy { from, to }).unwrap();
    }

    /// How many layers it stands on, its top included.
    fn depth(&self, sandbox: &str) -> usize {
        let store = Store::open(self.engine.home()).unwrap();
        let row = store.sandbox_named("", sandbox).unwrap().unwrap();
        store.stack(row.top).unwrap().len()
    }

    pub fn layers(&self) -> usize {
        std::fs::read_dir(self.engine.home().join("layers")).unwrap().count()
    }
}

#[test]
fn a_sandbox_takes_any_number_of_snapshots() {
    let world = World::new();
    std::fs::write(world.project().join("host"), "host").unwrap();
    std::fs::write(world.project().join("doomed"), "host").unwrap();
    world.make("x", "mkdir d; rm doomed; mkdir doomed; echo 1 > doomed/in").unwrap();
    for round in 0..ROUNDS {
        world.put("x", "n", &round.to_string());
        world.put("x", &format!("d/{}", round % 7), &round.to_string());
        if round % 100 == 50 {
            let script = format!("rm -r d; mkdir d; echo {round} > d/new; mv host h; mv h host");
            world.sh("x", &script).unwrap();
        }
        world.snapshot("x", &format!("s{round}")).unwrap();
    }
    assert!(world.depth("x") <= 33, "{}", world.depth("x"));
    let show = "cat n; echo; cat d/new; cat doomed/in; ls d | tr '\\n' ' '; cat host";
    let expect = |round: usize, new: usize| {
        let first = new + 1;
        let mut names: Vec<String> = (first..=round).map(|at| (at % 7).to_string()).collect();
        names.sort();
        names.dedup();
        names.push("new".into());
        format!("{round}\n{new}\n1\n{} host", names.join(" "))
    };
    assert_eq!(world.sh("x", show).unwrap().stdout, expect(599, 550));
    let mut changed = world.changed("x").unwrap();
    changed.retain(|(_, name)| !name.starts_with("d/"));
    let letters: String = changed.iter().map(|(letter, _)| *letter).collect();
    let names: Vec<&str> = changed.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!((letters.as_str(), names), ("AMAA", vec!["d", "doomed", "doomed/in", "n"]));
    for (round, new) in [(61, 50), (352, 350), (155, 150), (598, 550)] {
        world.rollback("x", &format!("s{round}")).unwrap();
        assert_eq!(world.sh("x", show).unwrap().stdout, expect(round, new));
    }
    let action = Action::Diff { sandbox: Some("x".into()), since: Some("s597".into()) };
    let Ok(Reply::Diff(diff)) = world.apply(action) else { panic!() };
    let lines: Vec<String> = diff.changes.iter().map(|change| change.path.to_string()).collect();
    let root = world.project().display().to_string();
    assert_eq!(lines, [format!("{root}/d/3"), format!("{root}/n")]);
    world.drop("x").unwrap();
    world.apply(Action::Gc { dry_run: false, undo_ms: None }).unwrap();
    assert_eq!(world.layers(), 0);
}

#[test]
fn forks_of_forks_reach_any_depth() {
    let world = World::new();
    world.make("f0", "mkdir d; echo 0 > d/0; echo 0 > n").unwrap();
    for round in 1..=ROUNDS {
        let name = format!("f{round}");
        world.fork(&format!("f{}", round - 1), &name, &Policy::default()).unwrap();
        world.put(&name, "n", &round.to_string());
        world.put(&name, &format!("d/{round}"), &round.to_string());
    }
    let own = |round: usize| vec![('A', format!("d/{round}")), ('M', "n".to_owned())];
    for round in [ROUNDS, 400, 33, 34, 35, 1] {
        let name = format!("f{round}");
        assert!(world.depth(&name) <= 34, "{} {}", name, world.depth(&name));
        assert_eq!(world.changed(&name).unwrap(), own(round), "{name}");
        let seen = world.sh(&name, "cat n; echo; ls d | wc -l; cat d/0").unwrap().stdout;
        assert_eq!(seen, format!("{round}\n{}\n0\n", round + 1));
    }
    // A parent that goes on, in the middle of the chain, and its base.
    world.sh("f300", "echo more > m").unwrap();
    world.snapshot("f300", "s").unwrap();
    world.rollback("f300", "base").unwrap();
    assert_eq!(world.changed("f300").unwrap(), vec![]);
    assert_eq!(world.sh("f300", "cat n; ls d | wc -l").unwrap().stdout, "299300\n");
    for info in world.list() {
        world.drop(&info.name).unwrap();
    }
    world.apply(Action::Gc { dry_run: false, undo_ms: None }).unwrap();
    assert_eq!(world.layers(), 0);
}

#[test]
fn a_sandbox_in_the_middle_of_a_deep_stack_keeps_its_base() {
    let world = World::new();
    world.make("p", "echo 0 > kept").unwrap();
    for round in 0..25 {
        world.put("p", "n", &round.to_string());
        world.snapshot("p", &format!("s{round}")).unwrap();
    }
    world.fork("p", "c", &Policy::default()).unwrap();
    // Its own layers are flattened above its base, and the base below it.
    for round in 0..40 {
        world.put("c", "own", &round.to_string());
        world.snapshot("c", &format!("s{round}")).unwrap();
        assert_eq!(world.changed("c").unwrap(), vec![('A', "own".to_owned())], "round {round}");
    }
    assert!(world.depth("c") <= 33);
    let since = Action::Diff { sandbox: Some("c".into()), since: Some("s0".into()) };
    let Ok(Reply::Diff(diff)) = world.apply(since) else { panic!() };
    assert_eq!(diff.changes.len(), 1);
    world.rollback("c", "base").unwrap();
    assert_eq!(world.sh("c", "cat n; ls").unwrap().stdout, "24kept\nn\n");
    assert_eq!(world.changed("c").unwrap(), vec![]);
    world.rollback("c", "s3").unwrap();
    assert_eq!(world.sh("c", "cat own").unwrap().stdout, "3");
    assert_eq!(world.changed("c").unwrap(), vec![('A', "own".to_owned())]);
}

#[test]
fn snapshots_at_once_do_not_disturb_each_other_while_flattening() {
    let world = World::new();
    world.make("x", "echo 0 > n").unwrap();
    for round in 0..80 {
        world.put("x", "n", &round.to_string());
        std::thread::scope(|scope| {
            for index in 0..3 {
                let (world, name) = (&world, format!("s{round}-{index}"));
                scope.spawn(move || world.snapshot("x", &name).unwrap());
            }
        });
    }
    assert!(world.depth("x") <= 33);
    for name in ["s3-0", "s31-1", "s32-2", "s79-1"] {
        world.rollback("x", name).unwrap();
        let round = name[1..].split('-').next().unwrap();
        assert_eq!(world.sh("x", "cat n").unwrap().stdout, round);
    }
}

#[test]
fn forks_of_living_sandboxes_reach_any_depth() {
    let world = World::new();
    world.make("f0", "echo 0 > n").unwrap();
    for round in 0..31 {
        world.put("f0", "n", &round.to_string());
        world.snapshot("f0", &format!("s{round}")).unwrap();
    }
    std::thread::scope(|scope| {
        let mut runs = Vec::new();
        for round in 1..=14 {
            let parent = format!("f{}", round - 1);
            let script = format!("echo {round} > n; echo > own{round}; sleep 60");
            let sandbox = parent.clone();
            let world = &world;
            runs.push(scope.spawn(move || world.sh(&sandbox, &script)));
            while world.sh(&parent, &format!("test -e own{round}")).unwrap().exit != 0 {}
            world.fork(&parent, &format!("f{round}"), &Policy::default()).unwrap();
            assert!(world.depth(&format!("f{round}")) <= 42);
        }
        assert_eq!(world.sh("f14", "cat n; ls own* | wc -l").unwrap().stdout, "14\n14\n");
        assert_eq!(world.changed("f14").unwrap(), vec![]);
        assert!(world.depth("f14") < 42, "{}", world.depth("f14"));
        for round in 0..14 {
            world.rollback(&format!("f{round}"), "base").unwrap();
        }
        runs.into_iter().for_each(|run| assert_eq!(run.join().unwrap().unwrap().exit, 137));
    });
}

/// Runs as a child of the test below: seals until it is killed.
#[test]
fn child_that_seals_until_it_is_killed() {
    let Ok(home) = std::env::var("FRACTAL_TEST_SEALS") else { return };
    let dir = std::path::Path::new(&home).parent().unwrap();
    let engine = fractal::Engine::open(home.as_ref()).unwrap();
    let caller = fractal::Caller::owner(dir.join("project"));
    for round in 0.. {
        let file = dir.join("incoming");
        std::fs::write(&file, round.to_string()).unwrap();
        for name in ["a", "b"] {
            let to = format!("x:{}/project/{name}", dir.display());
            let copy = Action::Copy { from: file.display().to_string(), to };
            engine.apply(&caller, copy).unwrap();
        }
        let snapshot = Action::Snapshot { sandbox: Some("x".into()), name: None };
        engine.apply(&caller, snapshot).unwrap();
    }
}

#[test]
fn a_process_killed_while_it_flattens_leaves_old_or_new() {
    let world = World::new();
    let many = "mkdir many; i=0; while [ $i -lt 300 ]; do echo > many/$i; i=$((i+1)); done";
    world.make("x", &format!("echo 0 > a; echo 0 > b; {many}")).unwrap();
    let snapshots = || match world.apply(Action::Show { sandbox: Some("x".into()) }) {
        Ok(Reply::Show(show)) => show.snapshots.len(),
        other => panic!("show answers {other:?}"),
    };
    // On a machine with much to do a child comes less far.
    for round in (0..200u64).take_while(|round| *round < 16 || snapshots() <= 33) {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["deep::child_that_seals_until_it_is_killed", "--exact"])
            .env("FRACTAL_TEST_SEALS", world.engine.home())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(150 + round % 16 * 29));
        child.kill().unwrap();
        child.wait().unwrap();
        let reply = world.sh("x", "ls many | wc -l; cat a; echo; cat b").unwrap();
        // Of the others nobody knows how far they were written.
        assert_eq!(reply.stdout.lines().next(), Some("300"));
        let diagnosis = fractal::Diagnosis::examine(world.engine.home());
        assert!(diagnosis.state.is_empty(), "{:?}", diagnosis.state);
        assert!(world.depth("x") <= 33);
    }
    assert!(snapshots() > 33, "deep enough to be flattened: {}", snapshots());
}
