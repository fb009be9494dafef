//! Every promotion that landed is attested: into a stage, and after a crash.

use crate::promote::asked;
use crate::world::World;
use fractal::model::{StageKind, Verdict, VerifyReply};
use fractal::{Action, Caller, Code, Engine, Reply};
use std::fs;
use std::process::{Command, Stdio};

fn verify(engine: &Engine, caller: &Caller, what: Option<&str>) -> Result<VerifyReply, Code> {
    let action = Action::Verify { promotion: what.map(str::to_owned) };
    match engine.apply(caller, action) {
        Ok(Reply::Verify(reply)) => Ok(*reply),
        Ok(other) => panic!("verify answered {other:?}"),
        Err(error) => Err(error.code),
    }
}

/// Runs as a child of the test below: promotes until the change with the
/// given number kills it.
#[test]
fn child_that_promotes_until_it_is_killed() {
    let Ok(home) = std::env::var("FRACTAL_ATTEST_HOME") else { return };
    let stop: u64 = std::env::var("FRACTAL_ATTEST_STOP").unwrap().parse().unwrap();
    let caller = Caller::owner(std::env::var("FRACTAL_ATTEST_PROJECT").unwrap());
    let engine = Engine::open(home.as_ref()).unwrap();
    engine.set_fault_hook(move |_, number| {
        if number == stop {
            let own = std::process::id().to_string();
            Command::new("kill").args(["-9", &own]).status().unwrap();
        }
        Ok(())
    });
    engine.apply(&caller, Action::Promote(Box::new(asked("s")))).unwrap();
}

/// Whether the child was killed; otherwise it came to its end.
fn killed(world: &World, stop: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["attested::child_that_promotes_until_it_is_killed", "--exact"])
        .env("FRACTAL_ATTEST_HOME", world.engine.home())
        .env("FRACTAL_ATTEST_PROJECT", world.project())
        .env("FRACTAL_ATTEST_STOP", stop.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    !child.status().unwrap().success()
}

#[test]
fn a_promotion_is_attested_wherever_a_crash_came() {
    let world = World::new();
    world.write("a", "old");
    world.make("s", "echo new > a; echo more > b").unwrap();
    let mut recovered = 0;
    for stop in 1.. {
        let was_killed = killed(&world, stop);
        // Opening settles it: old or new.
        let engine = Engine::open(world.engine.home()).unwrap();
        if world.read("a") == "old" {
            assert!(was_killed, "it was not stopped and did nothing");
            continue;
        }
        let reply = verify(&engine, &world.caller, None);
        let reply = reply.unwrap_or_else(|code| panic!("killed at {stop}: {code:?}"));
        assert!(reply.still_stands, "killed at {stop}");
        let parameters = &reply.statement["predicate"]["buildDefinition"]["externalParameters"];
        assert_eq!(parameters["runs"][0]["exit"], 0, "{parameters}");
        let left = engine.home().join("undo").join(reply.promotion.as_str()).join("evidence");
        assert!(!left.exists(), "it stands in the attestation");
        recovered += u32::from(was_killed);
        let undo = Action::Undo { promotion: None, only: Vec::new(), dry_run: false };
        engine.apply(&world.caller, undo).unwrap();
        if !was_killed {
            assert!(recovered > 3, "only {recovered} were finished by somebody else");
            return;
        }
    }
}

#[test]
fn what_came_into_layers_or_on_a_branch_is_attested() {
    let mut world = World::with_stages("");
    world.git(&["init", "-q", "-b", "main"]);
    world.git(&["add", "-A"]);
    world.git(&["commit", "-qm", "first"]);
    world.staged("[[stage]]\n[[stage]]\ngit = \"b\"\nchecks = [\"smoke\"]\n");
    world.make("s", "echo v1 > app").unwrap();
    let verify = |what: Option<&str>| verify(&world.engine, &world.caller, what);
    assert_eq!(verify(Some("verified")).err(), Some(Code::NotFound), "nothing stands there");
    assert_eq!(world.to("s", "dev").verdict, Verdict::Applied);
    let stages = world.stages();
    assert_eq!(stages[1].kind, StageKind::Git("b".into()));
    for (stage, checks) in stages.iter().zip([2, 1]) {
        let id = stage.stands.as_ref().unwrap().id.unwrap();
        let reply = verify(Some(&stage.name)).unwrap();
        assert_eq!((reply.promotion, reply.still_stands), (id, true), "{}", stage.name);
        assert_eq!(verify(Some(&id.as_str()[..20])).unwrap().promotion, id);
        let definition = &reply.statement["predicate"]["buildDefinition"];
        assert_eq!(definition["internalParameters"]["stage"], stage.name.as_str());
        let said = definition["externalParameters"]["checks"].as_array().unwrap();
        assert_eq!(said.len(), checks, "{said:?}");
        let digest = &reply.statement["subject"][0]["digest"];
        let stands = stage.stands.as_ref().unwrap();
        assert_eq!(digest["sha256"], stands.digest.as_str());
        assert_eq!(digest["gitCommit"].as_str(), stands.commit.as_deref());
    }
    // Without a word it is the latest one.
    let dev = stages[1].stands.as_ref().unwrap().id.unwrap();
    assert_eq!(verify(None).unwrap().promotion, dev);

    world.git(&["update-ref", "refs/heads/b", "main"]);
    assert!(!verify(Some("dev")).unwrap().still_stands, "the branch lost its commit");
    let file = world.engine.home().join("attestations").join(format!("{dev}.json"));
    let good = fs::read_to_string(&file).unwrap();
    let at = good.find("payload\":\"").unwrap() + 40;
    let mut bad = good.clone().into_bytes();
    bad[at] = if bad[at] == b'a' { b'b' } else { b'a' };
    fs::write(&file, bad).unwrap();
    assert_eq!(verify(Some("dev")).err(), Some(Code::Gate));
    fs::remove_file(&file).unwrap();
    assert_eq!(verify(Some("dev")).err(), Some(Code::NotFound));
}
