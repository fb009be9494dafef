//! Tenants: every verb, by every role, on what is theirs, on what is others',
//! and on what is out of scope.

use crate::keys::{asked, create, holder, made};
use crate::world::{World, shell};
use fractal::model::{
    KeyVerb, Policy, Promote, ROLE_NAMES, Role, Scope, Verb, VolumeVerb, Vote, World as How,
};
use fractal::{Action, Caller, Code, Error, Reply, Run};

/// What a verb does to a sandbox that its caller can see.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Own {
    Done,
    Fails(Code),
}

type Make = fn(&str) -> Action;

/// Every verb that names a sandbox, and what it comes to in one's own: last
/// those that leave nothing for the next.
const VERBS: [(Make, Own); 17] = [
    (|s| Action::Show { sandbox: Some(s.into()) }, Own::Done),
    (|s| Action::Diff { sandbox: Some(s.into()), since: None }, Own::Done),
    (log, Own::Done),
    (run, Own::Done),
    (discard, Own::Done),
    (|s| fork(s, None), Own::Done),
    (|s| Action::Snapshot { sandbox: Some(s.into()), name: None }, Own::Done),
    (|s| Action::Rollback { sandbox: Some(s.into()), to: "base".into() }, Own::Done),
    (update, Own::Done),
    (promote, Own::Done),
    (|s| Action::Approve(vote(s)), Own::Fails(Code::Invalid)),
    (|s| Action::Reject(vote(s)), Own::Fails(Code::Invalid)),
    (
        |s| Action::Copy { from: format!("{s}:/etc/hosts"), to: "x".into() },
        Own::Fails(Code::Denied),
    ),
    (|s| Action::Copy { from: "x".into(), to: format!("{s}:/x") }, Own::Fails(Code::Denied)),
    (
        |s| Action::Export { sandbox: Some(s.into()), to: "x.tar".into(), history: false },
        Own::Fails(Code::Denied),
    ),
    (compare, Own::Done),
    (|s| Action::Drop { sandboxes: vec![s.into()], force: false }, Own::Done),
];

fn log(s: &str) -> Action {
    Action::Log { sandbox: Some(s.into()), limit: None, here: false, whole: false }
}

fn run(s: &str) -> Action {
    Action::Run(Run { command: shell("true"), sandbox: Some(s.into()), ..Run::default() })
}

fn discard(s: &str) -> Action {
    let command = shell("true");
    Action::Run(Run { command, sandbox: Some(s.into()), discard: true, ..Run::default() })
}

fn fork(s: &str, world: Option<How>) -> Action {
    let ask = Policy::default();
    Action::Fork { sandbox: Some(s.into()), name: None, ask, network: None, ttl_ms: None, world }
}

fn update(s: &str) -> Action {
    let (ours, theirs) = (Vec::new(), Vec::new());
    Action::Update { sandbox: Some(s.into()), ours, theirs, dry_run: true }
}

fn promote(s: &str) -> Action {
    let asked = Promote { sandbox: Some(s.into()), dry_run: true, ..Promote::default() };
    Action::Promote(Box::new(asked))
}

fn vote(s: &str) -> Vote {
    Vote { sandbox: Some(s.into()), stage: None, message: None }
}

fn compare(s: &str) -> Action {
    let sandboxes = vec![s.to_owned(), "second".to_owned()];
    Action::Compare { sandboxes, checks: Vec::new(), score: None, rank: None, repeat: None }
}

/// Makes a sandbox that changed something, as a caller.
fn make(world: &World, caller: &Caller, name: &str) -> String {
    let command = shell("echo x > x");
    let run = Run { command, name: Some(name.to_owned()), ..Run::default() };
    match world.engine.apply(caller, Action::Run(run)) {
        Ok(Reply::Run(reply)) if reply.exit == 0 => reply.id.to_string(),
        other => panic!("run answered {other:?}"),
    }
}

fn key_of(world: &World, role: &str, tenant: &str, scope: Option<&str>) -> Caller {
    let verb = asked(role, |verb| {
        let KeyVerb::Create { tenant: own, scope: wanted, .. } = verb else { panic!() };
        *own = Some(tenant.to_owned());
        *wanted = scope.map(str::to_owned);
    });
    holder(world, &made(world, &world.caller, verb).unwrap().key)
}

/// What somebody is told, without the word that they asked for.
fn told(world: &World, caller: &Caller, action: Make, selector: &str) -> Result<(), Error> {
    let answer = world.engine.apply(caller, action(selector)).map(drop);
    answer.map_err(|mut error| {
        error.message = error.message.replace(selector, "S");
        error.hint = error.hint.map(|hint| hint.replace(selector, "S"));
        error
    })
}

/// That no way to name it is told apart from one that leads nowhere.
fn require_hidden(world: &World, caller: &Caller, name: &str, id: &str) {
    let absent = fractal::model::Id::from_parts(1, [5; 10]).to_string();
    for (at, (action, _)) in VERBS.into_iter().enumerate() {
        let expect = told(world, caller, action, "nothing");
        assert!(expect.is_err(), "{at}: {} found nothing", caller.who);
        for selector in [name, id, &absent] {
            assert_eq!(told(world, caller, action, selector), expect, "{at} {}", caller.who);
        }
    }
}

#[test]
fn every_role_does_its_verbs_and_no_other_on_its_own_sandboxes() {
    let world = World::new();
    let boss = key_of(&world, "admin", "a", None);
    make(&world, &boss, "second");
    for role in ROLE_NAMES {
        let caller = key_of(&world, role, "a", None);
        let policy = Role::built_in(role).unwrap().policy;
        for (action, own) in VERBS {
            make(&world, &boss, "mine");
            let verb = action("mine").verb();
            let expect = if policy.allows(verb) { own } else { Own::Fails(Code::Denied) };
            let found = match world.engine.apply(&caller, action("mine")) {
                Ok(_) => Own::Done,
                Err(error) => Own::Fails(error.code),
            };
            assert_eq!(found, expect, "{role} {verb:?}");
            let drop = Action::Drop { sandboxes: vec!["mine".into()], force: true };
            world.engine.apply(&boss, drop).unwrap();
        }
    }
}

#[test]
fn what_belongs_to_others_is_as_if_it_were_not_there() {
    let world = World::new();
    let theirs = key_of(&world, "admin", "b", None);
    let id = make(&world, &theirs, "theirs");
    let owners = world.make("owners", "echo x > y").unwrap().id.to_string();
    make(&world, &key_of(&world, "admin", "a", None), "second");
    for role in ROLE_NAMES {
        let caller = key_of(&world, role, "a", None);
        require_hidden(&world, &caller, "theirs", &id);
        require_hidden(&world, &caller, "owners", &owners);
    }
    // They are still there, and as they were.
    assert!(world.engine.apply(&theirs, Action::Show { sandbox: Some(id) }).is_ok());
    assert!(world.apply(Action::Show { sandbox: Some("owners".into()) }).is_ok());
}

fn names(world: &World, caller: &Caller) -> Vec<String> {
    match world.engine.apply(caller, Action::List).unwrap() {
        Reply::List(list) => list.sandboxes.into_iter().map(|info| info.name).collect(),
        other => panic!("list answered {other:?}"),
    }
}

#[test]
fn tenants_share_names_and_see_their_own_alone() {
    let world = World::new();
    let (a, b) = (key_of(&world, "operator", "a", None), key_of(&world, "operator", "b", None));
    let one = make(&world, &a, "box");
    let two = make(&world, &b, "box");
    assert_eq!((names(&world, &a), names(&world, &b)), (vec!["box".into()], vec!["box".into()]));
    let drop = |caller: &Caller, name: &str| {
        let action = Action::Drop { sandboxes: vec![name.into()], force: false };
        world.engine.apply(caller, action).map(|_| ())
    };
    let error = drop(&world.caller, "box").unwrap_err();
    assert!(error.message.contains(&one) && error.message.contains(&two), "{error}");
    drop(&b, "box").unwrap();
    assert_eq!(names(&world, &a), ["box"]);
    // What b dropped is remembered for b, and is nothing to a.
    drop(&b, &two).unwrap();
    assert_eq!(drop(&a, &two).unwrap_err().code, Code::NotFound);
    // The owner's own comes first, and the one that is left is found.
    let shown = |name: &str| match world.apply(Action::Show { sandbox: Some(name.into()) }) {
        Ok(Reply::Show(reply)) => reply.info.id.to_string(),
        other => panic!("show answered {other:?}"),
    };
    assert_eq!(shown("box"), one);
    world.make("box", "echo x > x").unwrap();
    assert_ne!(shown("box"), one);
    // Without a name it is the latest of one's own.
    let latest = world.engine.apply(&b, Action::Show { sandbox: None }).unwrap_err();
    assert_eq!(latest.code, Code::NotFound);
}

#[test]
fn volumes_records_and_promotions_of_others_do_not_show() {
    let world = World::new();
    let (a, b) = (key_of(&world, "operator", "a", None), key_of(&world, "operator", "b", None));
    let volume =
        |caller: &Caller, verb: VolumeVerb| world.engine.apply(caller, Action::Volume(verb));
    let create = || VolumeVerb::Create { name: "v".into() };
    volume(&a, create()).unwrap();
    assert_eq!(volume(&a, create()).unwrap_err().code, Code::Exists);
    volume(&b, create()).expect("another tenant's volume is another one");
    volume(&b, VolumeVerb::Rm { name: "v".into() }).unwrap();
    let gone = volume(&b, VolumeVerb::Show { name: "v".into() }).unwrap_err();
    assert_eq!(gone.code, Code::NotFound);
    assert!(volume(&a, VolumeVerb::Show { name: "v".into() }).is_ok());
    let import = VolumeVerb::Import { name: "v".into(), from: "/etc".into() };
    assert_eq!(volume(&a, import).unwrap_err().code, Code::Denied);
    // A promotion of a's is a's to take back.
    make(&world, &a, "work");
    let action = |dry_run| {
        let asked = Promote { sandbox: Some("work".into()), dry_run, ..Promote::default() };
        Action::Promote(Box::new(asked))
    };
    let outside = Promote { sandbox: Some("work".into()), outside: true, ..Promote::default() };
    let outside = world.engine.apply(&a, Action::Promote(Box::new(outside)));
    assert_eq!(outside.unwrap_err().code, Code::Denied, "the project, and no other place");
    let undo = match world.engine.apply(&a, action(false)).unwrap() {
        Reply::Promote(reply) => reply.undo.expect("it was applied").to_string(),
        other => panic!("promote answered {other:?}"),
    };
    for verb in [
        |id: &str| Action::Undo { promotion: Some(id.into()), only: Vec::new(), dry_run: false },
        |id: &str| Action::Verify { promotion: Some(id.into()) },
    ] {
        assert_eq!(told(&world, &b, verb, &undo), told(&world, &b, verb, "0123456789"));
        assert_eq!(told(&world, &b, verb, &undo).unwrap_err().code, Code::NotFound);
    }
    let all = Action::Log { sandbox: None, limit: Some(1_000), here: false, whole: false };
    let Ok(Reply::Log(log)) = world.engine.apply(&b, all) else { panic!("log answers") };
    assert!(log.records.iter().all(|record| record.body.tenant.as_deref() == Some("b")));
    let undone = Action::Undo { promotion: Some(undo), only: Vec::new(), dry_run: false };
    world.engine.apply(&a, undone).expect("it is a's own");
    assert!(!world.project().join("x").exists());
}

#[test]
fn a_key_for_one_sandbox_stays_below_it() {
    let world = World::new();
    let a = key_of(&world, "admin", "a", None);
    let root = make(&world, &a, "root");
    let outside = make(&world, &a, "outside");
    make(&world, &a, "second");
    let inner = key_of(&world, "operator", "a", Some(&root));
    assert_eq!(inner.reach.scope, Scope::Sandbox(root.parse_id()));
    require_hidden(&world, &inner, "outside", &outside);
    assert_eq!(names(&world, &inner), ["root"]);
    let Ok(Reply::Sandbox(child)) = world.engine.apply(&inner, fork("root", None)) else {
        panic!("it forks what it is for");
    };
    assert_eq!(child.parent.as_deref(), Some("root"));
    assert!(world.engine.apply(&inner, run(&child.name)).is_ok());
    assert!(world.engine.apply(&inner, promote(&child.name)).is_ok(), "into what it is for");
    let denied = |action: Action| world.engine.apply(&inner, action).unwrap_err().code;
    assert_eq!(denied(promote("root")), Code::Denied, "out of what it is for");
    for to in ["reality", "outside", "nothing"] {
        let mut asked = Promote { sandbox: Some(child.name.clone()), ..Promote::default() };
        asked.to = Some(to.into());
        assert_eq!(denied(Action::Promote(Box::new(asked))), Code::Denied, "{to}");
    }
    // Nor is there a parent that is called like it.
    let (ask, network) = (Policy::default(), None);
    let (sandbox, name) = (Some("root".into()), Some("reality".into()));
    let fork = Action::Fork { sandbox, name, ask, network, ttl_ms: None, world: None };
    assert_eq!(denied(fork), Code::Invalid);
    let new = Run { command: shell("true"), ..Run::default() };
    assert_eq!(denied(Action::Run(new.clone())), Code::Denied);
    assert_eq!(denied(Action::Run(Run { discard: true, ..new })), Code::Denied);
    assert_eq!(denied(Action::Import { from: "x".into(), name: None }), Code::Denied);
    // Another key for the child does not see the name of what is above.
    let lower = key_of(&world, "viewer", "a", Some(child.id.as_str()));
    let show = Action::Show { sandbox: Some(child.name.clone()) };
    let Ok(Reply::Show(shown)) = world.engine.apply(&lower, show) else { panic!("it is its own") };
    assert_eq!(shown.info.parent.as_deref(), Some(root.as_str()), "an id, and no name");
}

trait ParseId {
    fn parse_id(&self) -> fractal::model::Id;
}

impl ParseId for String {
    fn parse_id(&self) -> fractal::model::Id {
        fractal::model::Id::parse(self).unwrap()
    }
}

#[test]
fn a_key_for_a_template_uses_no_other() {
    let world = World::new();
    let a = key_of(&world, "admin", "a", None);
    make(&world, &a, "second");
    let Ok(Reply::Sandbox(other)) = world.engine.apply(&a, fork("second", Some(How::Virtual)))
    else {
        panic!("it forks");
    };
    let clone = key_of(&world, "runner", "a", Some("template:clone"));
    assert_eq!(names(&world, &clone), ["second"]);
    require_hidden(&world, &clone, &other.name, other.id.as_str());
    make(&world, &clone, "third");
    let standard = Run {
        command: shell("true"),
        template: Some("standard".into()),
        name: Some("fourth".into()),
        ..Run::default()
    };
    let denied = |action: Action| world.engine.apply(&clone, action).unwrap_err().code;
    assert_eq!(denied(Action::Run(standard)), Code::Denied);
    assert_eq!(denied(fork("third", Some(How::Virtual))), Code::Denied);
    let nowhere = asked("runner", |verb| {
        let KeyVerb::Create { scope, .. } = verb else { panic!() };
        *scope = Some("template:nothing".into());
    });
    assert_eq!(made(&world, &world.caller, nowhere).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_tenant_neither_collects_nor_checks_what_is_everybodys() {
    let world = World::new();
    let admin = key_of(&world, "admin", "a", None);
    world.make("owners", "echo x > x").unwrap();
    let verify = world.engine.apply(&admin, Action::AuditVerify { expect: None });
    assert_eq!(verify.unwrap_err().code, Code::Denied);
    let Ok(Reply::Gc(gc)) = world.engine.apply(&admin, Action::Gc { dry_run: true, undo_ms: None })
    else {
        panic!("gc answers");
    };
    assert_eq!((gc.layers, gc.bytes, gc.expired.len()), (0, 0, 0));
    let everybody = made(&world, &world.caller, create("admin")).unwrap().key;
    assert_eq!(everybody.tenant, None);
    let everybody = holder(&world, &everybody);
    assert_eq!(names(&world, &everybody), ["owners"]);
    assert!(world.engine.apply(&everybody, Action::AuditVerify { expect: None }).is_ok());
    assert!(everybody.policy.allows(Verb::Key));
}
