//! Random histories of runs, edits outside, promotions and undos, beside a
//! model of a few lines: nobody's edit is ever overwritten, and one that was
//! made between a fork and its promotion is always seen.

use crate::world::World;
use fractal::model::Verdict;
use fractal::{Code, Run};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;

const BOXES: [&str; 2] = ["a", "b"];
const FILES: [&str; 3] = ["one", "two", "three"];

#[derive(Clone, Debug)]
enum Verb {
    Make(usize),
    Inside(usize, usize, Option<u8>),
    Outside(usize, Option<u8>),
    Promote(usize),
    Undo,
}

fn any_verb() -> impl Strategy<Value = Verb> {
    // Few values, so that edits meet and come back.
    let value = || prop_oneof![4 => (0..4u8).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        2 => (0..2usize).prop_map(Verb::Make),
        4 => (0..2usize, 0..3usize, value()).prop_map(|(b, f, v)| Verb::Inside(b, f, v)),
        4 => (0..3usize, value()).prop_map(|(f, v)| Verb::Outside(f, v)),
        4 => (0..2usize).prop_map(Verb::Promote),
        2 => Just(Verb::Undo),
    ]
}

type Value = Option<u8>;

/// What the engine noted about a base: the value, whether the sandbox
/// certainly started from it, and the promotion that left it there.
type Note = (Value, bool, Option<usize>);

#[derive(Default)]
struct Sandbox {
    forked: u64,
    own: BTreeMap<usize, Value>,
    notes: BTreeMap<usize, Vec<Note>>,
}

struct Promotion {
    /// The sandbox it came from.
    from: usize,
    changes: Vec<(usize, Value, Value)>,
    undone: bool,
}

#[derive(Default)]
struct Model {
    clock: u64,
    reality: [Value; 3],
    edited: [u64; 3],
    boxes: BTreeMap<usize, Sandbox>,
    promotions: Vec<Promotion>,
}

impl Model {
    fn edit(&mut self, file: usize, value: Value) {
        self.clock += 1;
        self.reality[file] = value;
        self.edited[file] = self.clock;
    }

    fn view(&self, sandbox: &Sandbox, file: usize) -> Value {
        sandbox.own.get(&file).copied().unwrap_or(self.reality[file])
    }

    /// What the end of a run notes: the host's value wherever the sandbox
    /// differs for the first time, if it was the sandbox that moved.
    fn note(&mut self, at: usize, written: usize) {
        let Some(mut sandbox) = self.boxes.remove(&at) else { return };
        for file in 0..FILES.len() {
            let differs = self.view(&sandbox, file) != self.reality[file];
            let moved = file == written || self.view(&sandbox, file).is_none();
            if differs && moved && !sandbox.notes.contains_key(&file) {
                let sure = self.edited[file] <= sandbox.forked || self.reality[file].is_none();
                sandbox.notes.insert(file, vec![(self.reality[file], sure, None)]);
            }
        }
        self.boxes.insert(at, sandbox);
    }

    fn promote(&mut self, at: usize) -> Verdict {
        let sandbox = &self.boxes[&at];
        let mut changes = Vec::new();
        for file in 0..FILES.len() {
            let (ours, theirs) = (self.view(sandbox, file), self.reality[file]);
            if ours == theirs {
                continue;
            }
            let Some(notes) = sandbox.notes.get(&file) else {
                // It was never changed inside.
                assert!(ours.is_some(), "what is deleted is noted");
                continue;
            };
            // What a promotion left is the base from then on.
            let from = notes.iter().rposition(|(.., by)| by.is_some()).unwrap_or(0);
            let notes = &notes[from..];
            if notes.iter().any(|(value, sure, _)| *sure && *value == theirs) {
                changes.push((file, theirs, ours));
                continue;
            }
            if notes.first().is_some_and(|(value, _, by)| by.is_some() && *value == ours) {
                continue;
            }
            let last = notes.iter().rev().find(|(value, sure, _)| *sure && value.is_some());
            let back = last.is_some_and(|(value, ..)| *value == ours) && theirs.is_some();
            if !back {
                return Verdict::Conflict;
            }
        }
        if changes.is_empty() {
            return Verdict::Nothing;
        }
        let number = self.promotions.len();
        for (file, _, ours) in &changes {
            self.edit(*file, *ours);
            let sandbox = self.boxes.get_mut(&at).expect("it was there");
            sandbox.notes.entry(*file).or_default().push((*ours, true, Some(number)));
        }
        self.promotions.push(Promotion { from: at, changes, undone: false });
        Verdict::Applied
    }

    fn undo(&mut self) -> Result<Verdict, Code> {
        let found = self.promotions.iter().rposition(|promotion| !promotion.undone);
        let at = found.ok_or(Code::NotFound)?;
        let changes = self.promotions[at].changes.clone();
        let now = |file: usize| self.reality[file];
        if changes.iter().any(|(file, old, new)| now(*file) != *new && now(*file) != *old) {
            return Ok(Verdict::Conflict);
        }
        // Where somebody was faster nothing is written, and it counts as done.
        let back: Vec<_> = changes.iter().filter(|(file, _, new)| now(*file) == *new).collect();
        let verdict = if back.is_empty() { Verdict::Nothing } else { Verdict::Applied };
        for (file, old, _) in back {
            self.edit(*file, *old);
        }
        let sandbox = self.boxes.get_mut(&self.promotions[at].from).expect("none is dropped");
        for notes in sandbox.notes.values_mut() {
            notes.retain(|(.., by)| *by != Some(at));
        }
        self.promotions[at].undone = true;
        Ok(verdict)
    }
}

fn play(world: &World, model: &mut Model, verb: &Verb) {
    match verb {
        Verb::Make(at) if model.boxes.contains_key(at) => {}
        Verb::Make(at) => {
            let run = Run {
                command: vec!["true".into()],
                name: Some(BOXES[*at].into()),
                ..Run::default()
            };
            world.run(run).unwrap();
            let forked = model.clock;
            model.boxes.insert(*at, Sandbox { forked, ..Sandbox::default() });
        }
        Verb::Inside(at, file, value) if model.boxes.contains_key(at) => {
            let script = match value {
                Some(value) => format!("printf {value} > {}", FILES[*file]),
                None => format!("rm -f {}", FILES[*file]),
            };
            world.sh(BOXES[*at], &script).unwrap();
            let below = model.reality[*file];
            let own = &mut model.boxes.get_mut(at).expect("it is there").own;
            match (value, below, own.get(file)) {
                (Some(_), ..) => drop(own.insert(*file, *value)),
                (None, _, Some(None)) => {}
                (None, Some(_), _) => drop(own.insert(*file, None)),
                // Nothing below: there is nothing to hide.
                (None, None, _) => drop(own.remove(file)),
            }
            model.note(*at, *file);
        }
        Verb::Outside(file, value) => {
            let path = world.project().join(FILES[*file]);
            match value {
                Some(value) => fs::write(path, value.to_string()).unwrap(),
                None => drop(fs::remove_file(path)),
            }
            model.edit(*file, *value);
        }
        Verb::Promote(at) if model.boxes.contains_key(at) => {
            let reply = world.promote(BOXES[*at]);
            assert_eq!(reply.verdict, model.promote(*at), "{verb:?}: {reply:?}");
        }
        Verb::Undo => {
            let verdict = world.undo(None).map(|reply| reply.verdict);
            assert_eq!(verdict, model.undo(), "{verb:?}");
        }
        Verb::Inside(..) | Verb::Promote(_) => {}
    }
}

fn assert_reality(world: &World, model: &Model, verb: &Verb) {
    for (file, value) in model.reality.iter().enumerate() {
        let text = fs::read_to_string(world.project().join(FILES[file])).ok();
        assert_eq!(text, value.map(|value| value.to_string()), "{} after {verb:?}", FILES[file]);
    }
    let stray = fs::read_dir(world.project()).unwrap().flatten();
    let stray = stray.filter(|entry| !FILES.iter().any(|name| entry.file_name() == *name));
    assert_eq!(stray.count(), 0, "nothing of ours is left after {verb:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_edit_is_ever_lost(verbs in proptest::collection::vec(any_verb(), 4..14)) {
        let world = World::new();
        let mut model = Model::default();
        for file in [0, 1] {
            play(&world, &mut model, &Verb::Outside(file, Some(9)));
        }
        for verb in &verbs {
            play(&world, &mut model, verb);
            assert_reality(&world, &model, verb);
        }
    }
}
