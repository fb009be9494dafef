//! Moving a sandbox onto today's reality.

use crate::world::{World, shell};
use fractal::model::{BaseKind, PromoteReply, Verdict};
use fractal::{Action, Reply, Run};
use std::fs;

impl World {
    pub fn update(&self, sandbox: &str, ours: &[&str], theirs: &[&str]) -> PromoteReply {
        let list = |paths: &[&str]| paths.iter().map(|path| (*path).into()).collect();
        let action = Action::Update {
            sandbox: Some(sandbox.into()),
            ours: list(ours),
            theirs: list(theirs),
            dry_run: false,
        };
        match self.apply(action).unwrap() {
            Reply::Promote(reply) => *reply,
            other => panic!("update answered {other:?}"),
        }
    }
}

fn moves_with_its_own_changes(base: BaseKind) {
    let world = World::new();
    let project = world.project();
    let put = |name: &str, text: &str| fs::write(project.join(name), text).unwrap();
    for name in ["joined", "copied", "clash", "untouched"] {
        put(name, "1\n2\n3\n4\n5\n");
    }
    let script = "sed -i s/1/inside/ joined clash; : >> copied; chmod 600 copied; \
                  chmod 644 copied; echo own > own";
    world
        .run(Run { command: shell(script), name: Some("s".into()), base, ..Run::default() })
        .unwrap();
    put("joined", "1\n2\n3\n4\noutside\n");
    put("copied", "edited\n");
    put("untouched", "edited too\n");
    put("clash", "outside\n2\n3\n4\n5\n");
    let reply = world.update("s", &[], &[]);
    assert_eq!(reply.verdict, Verdict::Conflict);
    assert_eq!(reply.conflicts.len(), 1, "{reply:?}");
    let before = world.sh("s", "cat joined clash").unwrap().stdout;
    assert!(before.starts_with("inside\n2\n3\n4\n5\n"), "nothing was moved: {before}");

    let reply = world.update("s", &["clash"], &[]);
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    let seen = world.sh("s", "cat joined copied untouched clash own").unwrap().stdout;
    let expect = "inside\n2\n3\n4\noutside\nedited\nedited too\ninside\n2\n3\n4\n5\nown\n";
    assert_eq!(seen, expect);
    let changed: Vec<String> =
        world.changed("s").unwrap().into_iter().map(|(_, name)| name).collect();
    assert_eq!(changed, ["clash", "joined", "own"]);
    assert_eq!(world.update("s", &[], &[]).verdict, Verdict::Nothing);

    // The host goes back: that is an edit like any other.
    put("joined", "1\n2\n3\n4\n5\n");
    let reply = world.promote("s");
    assert_eq!(reply.verdict, Verdict::Applied, "{reply:?}");
    let now = fs::read_to_string(project.join("joined")).unwrap();
    assert_eq!(now, "inside\n2\n3\n4\n5\n", "what was taken back outside stays so");
    assert!(fs::read_to_string(project.join("clash")).unwrap().starts_with("inside"));
}

#[test]
fn a_sandbox_on_a_live_base_moves_with_its_own_changes() {
    moves_with_its_own_changes(BaseKind::Live);
}

#[test]
fn a_sandbox_on_a_frozen_base_moves_with_its_own_changes() {
    moves_with_its_own_changes(BaseKind::Frozen);
}

#[test]
fn an_update_can_be_rolled_back() {
    let world = World::new();
    let file = world.project().join("a");
    fs::write(&file, "1\n2\n3\n").unwrap();
    world.make("s", "sed -i s/1/one/ a").unwrap();
    fs::write(&file, "1\n2\nthree\n").unwrap();
    assert_eq!(world.update("s", &[], &[]).verdict, Verdict::Applied);
    assert_eq!(world.sh("s", "cat a").unwrap().stdout, "one\n2\nthree\n");
    world.rollback("s", "before-update-1").unwrap();
    assert_eq!(world.sh("s", "cat a").unwrap().stdout, "one\n2\n3\n");
}
