//! Random histories of verbs give the same answers in the engine and in the
//! reference model: only the named sandbox changes, an error changes nothing,
//! authority never grows, a fork sees exactly what its parent saw.

use crate::world::World;
use fractal::model::reference::{self, Refusal};
use fractal::model::{Limits, Policy};
use fractal::{Code, Run};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Verb {
    Make(usize),
    Fork(usize, usize, u64),
    Write(usize, usize, u32),
    Remove(usize, usize),
    Snapshot(usize, usize),
    Rollback(usize, usize),
    Drop(usize),
}

const BOXES: [&str; 4] = ["a", "b", "c", "d"];
const FILES: [&str; 3] = ["one", "two", "three"];
const SNAPS: [&str; 2] = ["s", "t"];

fn any_verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        2 => (0..4usize).prop_map(Verb::Make),
        3 => (0..4usize, 0..4usize, 100..200u64).prop_map(|(a, b, pids)| Verb::Fork(a, b, pids)),
        5 => (0..4usize, 0..3usize, any::<u32>()).prop_map(|(a, f, v)| Verb::Write(a, f, v)),
        2 => (0..4usize, 0..3usize).prop_map(|(a, f)| Verb::Remove(a, f)),
        2 => (0..4usize, 0..2usize).prop_map(|(a, s)| Verb::Snapshot(a, s)),
        2 => (0..4usize, 0..2usize).prop_map(|(a, s)| Verb::Rollback(a, s)),
        1 => (0..4usize).prop_map(Verb::Drop),
    ]
}

fn ask(pids: u64) -> Policy {
    Policy { limits: Limits { pids: Some(pids), ..Limits::default() }, ..Policy::default() }
}

fn code(refusal: Refusal) -> Code {
    match refusal {
        Refusal::NotFound => Code::NotFound,
        Refusal::Exists => Code::Exists,
        Refusal::Denied => Code::Denied,
    }
}

/// Plays one verb on both sides and compares the answers.
fn play(world: &World, model: &mut reference::World, verb: &Verb) {
    let expect = |result: Result<(), Refusal>| result.map_err(code);
    match verb {
        Verb::Make(name) => {
            let run = Run {
                command: vec!["true".into()],
                name: Some(BOXES[*name].into()),
                ..Run::default()
            };
            let got = world.run(run).map(|_| ());
            assert_eq!(got, expect(model.fork(None, BOXES[*name], &Policy::default())), "{verb:?}");
        }
        Verb::Fork(parent, name, pids) => {
            let got = world.fork(BOXES[*parent], BOXES[*name], &ask(*pids)).map(|_| ());
            let want = expect(model.fork(Some(BOXES[*parent]), BOXES[*name], &ask(*pids)));
            assert_eq!(got, want, "{verb:?}");
        }
        Verb::Write(name, file, value) => {
            let script = format!("printf {value} > {}", FILES[*file]);
            let got = world.sh(BOXES[*name], &script).map(|_| ());
            let text = value.to_string();
            assert_eq!(
                got,
                expect(model.write(BOXES[*name], FILES[*file], Some(&text))),
                "{verb:?}"
            );
        }
        Verb::Remove(name, file) => {
            let got = world.sh(BOXES[*name], &format!("rm -f {}", FILES[*file])).map(|_| ());
            assert_eq!(got, expect(model.write(BOXES[*name], FILES[*file], None)), "{verb:?}");
        }
        Verb::Snapshot(name, label) => {
            let got = world.snapshot(BOXES[*name], SNAPS[*label]);
            assert_eq!(got, expect(model.snapshot(BOXES[*name], SNAPS[*label])), "{verb:?}");
        }
        Verb::Rollback(name, label) => {
            let got = world.rollback(BOXES[*name], SNAPS[*label]);
            assert_eq!(got, expect(model.rollback(BOXES[*name], SNAPS[*label])), "{verb:?}");
        }
        Verb::Drop(name) => {
            let got = world.drop(BOXES[*name]);
            // The engine's drop may be repeated; the model has no memory.
            match model.drop(BOXES[*name]) {
                Ok(()) => assert_eq!(got, Ok(()), "{verb:?}"),
                Err(_) => assert!(matches!(got, Ok(()) | Err(Code::NotFound)), "{verb:?}"),
            }
        }
    }
}

fn compare(world: &World, model: &reference::World) {
    let list = world.list();
    let mut names: Vec<String> = list.iter().map(|info| info.name.clone()).collect();
    names.sort();
    assert_eq!(names, model.sandboxes.keys().cloned().collect::<Vec<_>>());
    for (name, sandbox) in &model.sandboxes {
        assert_eq!(world.files(name), sandbox.files, "files of {name}");
        assert_eq!(world.changed(name).unwrap(), model.diff(name).unwrap(), "diff of {name}");
        let info = list.iter().find(|info| info.name == *name).unwrap();
        assert_eq!(info.parent.is_some(), sandbox.parent.is_some());
        let parent = list.iter().find(|other| Some(&other.name) == info.parent.as_ref());
        if let Some(parent) = parent {
            assert!(info.policy.is_within(&parent.policy), "{name} is wider than its parent");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_reference_model(verbs in proptest::collection::vec(any_verb(), 1..16)) {
        let world = World::new();
        let mut model = reference::World::default();
        for (index, name) in FILES.iter().take(2).enumerate() {
            std::fs::write(world.project().join(name), format!("{index}")).unwrap();
            model.reality.insert((*name).into(), format!("{index}"));
        }
        for verb in &verbs {
            play(&world, &mut model, verb);
        }
        compare(&world, &model);
        // Reality is as it was.
        for (name, text) in &model.reality {
            prop_assert_eq!(&std::fs::read_to_string(world.project().join(name)).unwrap(), text);
        }
    }
}
