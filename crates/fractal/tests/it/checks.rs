//! What a check says, and that it leaves nothing behind.

use crate::world::{World, shell};
use fractal::model::{Check, CheckReport, CheckResult, Limits, Policy};
use fractal::{Action, Code, Reply, Run};

fn check(name: &str, command: &str) -> Check {
    Check { name: name.into(), command: command.into(), required: true, ..Check::default() }
}

fn run(world: &World, sandbox: &str, checks: &[Check]) -> Vec<CheckReport> {
    world.engine.check(&world.caller, sandbox, checks, 1).unwrap()
}

fn layers(world: &World) -> usize {
    std::fs::read_dir(world.engine.home().join("layers")).unwrap().count()
}

#[test]
fn only_what_answered_can_have_failed() {
    let world = World::new();
    world.make("x", "echo 1 > a").unwrap();
    let mut slow = check("slow", "sleep 60");
    slow.time_ms = Some(150);
    let checks = [
        check("good", "grep 1 a"),
        check("bad", "echo out; echo err >&2; exit 3"),
        check("missing", "no-such-command --flag"),
        check("locked", "touch f; ./f"),
        slow,
        check("killed", "kill -KILL $$"),
    ];
    let reports = run(&world, "x", &checks);
    let results: Vec<&str> = reports.iter().map(|report| report.result.name()).collect();
    assert_eq!(results, ["pass", "fail", "error", "error", "error", "error"]);
    let exits: Vec<i32> = reports.iter().map(|report| report.exit).collect();
    assert_eq!(exits, [0, 3, 127, 126, 124, 137]);
    assert_eq!((reports[0].why.as_deref(), reports[0].output.as_str()), (None, ""));
    assert_eq!(reports[1].why.as_deref(), Some("exit 3"));
    assert_eq!(reports[1].output, "out\nerr\n");
    let why = |index: usize| reports[index].why.clone().unwrap();
    assert!(why(2).starts_with("a command is not found (exit 127): "), "{}", why(2));
    assert!(why(2).contains("no-such-command"), "{}", why(2));
    assert!(why(3).starts_with("a command is not executable (exit 126)"), "{}", why(3));
    assert_eq!(why(4), "stopped at its time limit");
    assert_eq!(why(5), "ended by signal 9");
}

#[test]
fn checks_see_the_sandbox_and_neither_each_other_nor_themselves() {
    let world = World::new();
    std::fs::write(world.project().join("below"), "host").unwrap();
    world.make("x", "echo 1 > a").unwrap();
    let litter = "test -e a && test -e below && ! test -e litter && echo > litter && rm a below";
    let before = world.diff("x").unwrap().changes;
    let reports = world.engine.check(&world.caller, "x", &[check("one", litter)], 3).unwrap();
    assert_eq!(reports[0].result, CheckResult::Pass, "{reports:?}");
    let reports = run(&world, "x", &[check("one", litter), check("two", litter)]);
    assert!(reports.iter().all(|report| report.result == CheckResult::Pass), "{reports:?}");
    assert_eq!(world.diff("x").unwrap().changes, before);
    assert_eq!(world.files("x").get("a").map(String::as_str), Some("1"));
    // The sandbox's sealed layer and its new, empty top; on a copy also that.
    let base = usize::from(world.list()[0].base.is_some());
    assert_eq!((world.list().len(), layers(&world)), (1, 2 + base));
    assert!(world.project().join("below").exists());
}

#[test]
fn what_differs_from_run_to_run_is_flaky() {
    let world = World::new();
    world.make("x", "true").unwrap();
    // A volume is the only thing that one run can leave for the next.
    let mounted = "base = \"clone\"\nmounts = [{ at = \"/mnt/count\", volume = \"count\" }]\n";
    std::fs::write(world.project().join("fractal.toml"), format!("[templates.v]\n{mounted}"))
        .unwrap();
    let mut caller = world.caller.clone();
    caller.config = fractal::Config::load(&world.project(), None).unwrap();
    let make = Run {
        command: shell("true"),
        name: Some("y".into()),
        template: Some("v".into()),
        ..Run::default()
    };
    let Ok(Reply::Run(reply)) = world.engine.apply(&caller, Action::Run(make)) else {
        eprintln!("skipped: no mounts in this tier");
        return;
    };
    assert_eq!(reply.exit, 0, "{}", reply.stderr);
    let second = check("second", "test -e /mnt/count/f || { touch /mnt/count/f; exit 1; }");
    let reports = world.engine.check(&caller, "y", &[second], 5).unwrap();
    assert_eq!(reports[0].result, CheckResult::Flaky);
    assert_eq!(reports[0].why.as_deref(), Some("fail, then pass, in 2 equal runs"));
    let steady = world.engine.check(&caller, "x", &[check("no", "exit 4")], 3).unwrap();
    assert_eq!(steady[0].why.as_deref(), Some("exit 4, 3 times"));
}

#[test]
fn the_policy_of_the_sandbox_holds_for_its_checks() {
    let world = World::new();
    let limits = Limits { pids: Some(40), ..Limits::default() };
    let policy = Policy { limits, ..Policy::default() };
    world
        .run(Run { command: shell("true"), name: Some("x".into()), ask: policy, ..Run::default() })
        .unwrap();
    let script = "i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done 2>/dev/null";
    let reports = run(&world, "x", &[check("many", script)]);
    assert_ne!(reports[0].result, CheckResult::Pass);
    let none = world.engine.check(&world.caller, "nothing", &[check("a", "true")], 1);
    assert_eq!(none.unwrap_err().code, Code::NotFound);
}

#[test]
fn a_sandbox_in_which_something_runs_can_be_checked() {
    let world = World::new();
    world.make("x", "echo 1 > a").unwrap();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let script = "echo 2 > a; touch ready; until [ -e go ]; do sleep 0.02; done; cat a";
            world.sh("x", script).unwrap()
        });
        while run(&world, "x", &[check("ready", "test -e ready")])[0].result != CheckResult::Pass {}
        let reports = run(&world, "x", &[check("sees", "grep 2 a && echo 3 > a")]);
        assert_eq!(reports[0].result, CheckResult::Pass, "{reports:?}");
        world.sh("x", "touch go").unwrap();
        assert_eq!(busy.join().unwrap().stdout, "2\n");
    });
}
