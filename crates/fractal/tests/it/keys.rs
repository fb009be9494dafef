//! Keys: secrets, how they end, and what the journal tells of it.

use crate::world::World;
use fractal::model::{
    Id, Key, KeyMade, KeyVerb, Record, RecordBody, Scope, Verb, read_secret, write_secret,
};
use fractal::{Action, Caller, Code, Config, Error, Policy, Reply};

pub fn create(role: &str) -> KeyVerb {
    KeyVerb::Create {
        role: role.to_owned(),
        name: None,
        tenant: None,
        scope: None,
        ask: Policy::default(),
        ttl_ms: None,
        endless: false,
        rate_per_minute: None,
        concurrent: None,
    }
}

/// A key of a role, with what else a closure asks for.
pub fn asked(role: &str, ask: impl FnOnce(&mut KeyVerb)) -> KeyVerb {
    let mut verb = create(role);
    ask(&mut verb);
    verb
}

pub fn made(world: &World, caller: &Caller, verb: KeyVerb) -> Result<KeyMade, Error> {
    match world.engine.apply(caller, Action::Key(verb))? {
        Reply::KeyMade(made) => Ok(*made),
        other => panic!("key answered {other:?}"),
    }
}

/// The holder of a key, as a door would have it.
pub fn holder(world: &World, key: &Key) -> Caller {
    Caller::of_key(key, world.project(), Config::default())
}

pub fn records(world: &World) -> Vec<Record> {
    let all = Action::Audit {
        since_ms: None,
        until_ms: None,
        key: None,
        action: None,
        sandbox: None,
        denied: false,
        limit: Some(10_000),
        after: Some(0),
    };
    match world.apply(all).unwrap() {
        Reply::Audit(reply) => reply.records,
        other => panic!("audit answered {other:?}"),
    }
}

#[test]
fn the_key_of_a_door_has_ended_when_who_made_the_door_has() {
    let world = World::new();
    let maker = made(&world, &world.caller, create("runner")).unwrap().key;
    let caller = holder(&world, &maker);
    let (told, grants) = std::sync::mpsc::channel();
    world.engine.set_doors(std::sync::Arc::new(move |grant: fractal::Grant| {
        told.send(grant).unwrap();
        Ok(Box::new(|socket| Box::new(socket)))
    }));
    let run = fractal::Run {
        command: crate::world::shell("exec sleep 60"),
        name: Some("own".into()),
        door: true,
        ..fractal::Run::default()
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| world.engine.run(&caller, run, fractal::RunIo::captured()));
        let grant = grants.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        let ended = || world.engine.has_ended_at(&grant.key, &grant).unwrap();
        assert!(!ended());
        revoke(&world, maker.id.as_str()).unwrap();
        assert!(ended());
        // By itself it would hold for as long as its run.
        assert!(!world.engine.has_ended(&grant.key).unwrap());
        while !running.is_finished() {
            let _ = world.engine.stop(&world.caller, "own");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(ended() && world.engine.has_ended(&grant.key).unwrap());
        running.join().unwrap().unwrap();
    });
}

fn revoke(world: &World, key: &str) -> Result<Reply, Code> {
    world.apply(Action::Key(KeyVerb::Revoke { key: key.to_owned() }))
}

#[test]
fn a_secret_opens_its_key_and_nothing_else_does() {
    let world = World::new();
    let one = made(&world, &world.caller, create("runner")).unwrap();
    let two = made(&world, &world.caller, create("viewer")).unwrap();
    assert_eq!(world.engine.authenticate(&one.secret).unwrap(), one.key);
    assert_eq!(read_secret(&one.secret), Some(one.key.id));
    let tail = |secret: &str| secret.rsplit_once('_').unwrap().1.to_owned();
    let guesses = [
        String::new(),
        "frk_".to_owned(),
        "x".repeat(100_000),
        one.secret[..one.secret.len() - 1].to_owned(),
        one.secret[1..].to_owned(),
        format!("{} ", one.secret),
        one.secret.to_lowercase(),
        // The id of one, the secret of the other.
        format!("frk_{}_{}", one.key.id, tail(&two.secret)),
        // Well formed, with a right checksum, of a key that exists or not.
        write_secret(one.key.id, [7; 32]),
        write_secret(Id::from_parts(1, [1; 10]), [7; 32]),
    ];
    let refusals: Vec<Error> =
        guesses.iter().map(|guess| world.engine.authenticate(guess).unwrap_err()).collect();
    assert_eq!(refusals[0].code, Code::Denied);
    assert!(refusals.iter().all(|error| *error == refusals[0]), "{refusals:?}");
}

#[test]
fn keys_end_when_they_expire_and_when_they_are_revoked() {
    let world = World::new();
    let short = asked("viewer", |verb| {
        let KeyVerb::Create { ttl_ms, .. } = verb else { panic!("it is one") };
        *ttl_ms = Some(0);
    });
    let short = made(&world, &world.caller, short).unwrap();
    let error = world.engine.authenticate(&short.secret).unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert!(error.message.contains("expired"), "{error}");
    let key = made(&world, &world.caller, create("viewer")).unwrap();
    let days = key.key.expires_ms.unwrap() - key.key.created_ms;
    assert_eq!(days, 30 * 86_400_000, "who says nothing gets thirty days");
    revoke(&world, &key.key.name).unwrap();
    let error = world.engine.authenticate(&key.secret).unwrap_err();
    assert!(error.message.contains("revoked"), "{error}");
    revoke(&world, key.key.id.as_str()).expect("a second time is no error");
    let rotate = KeyVerb::Rotate { key: key.key.id.to_string(), grace_ms: None };
    assert_eq!(world.apply(Action::Key(rotate)).unwrap_err(), Code::Denied, "it is final");
    assert_eq!(revoke(&world, "nobody").unwrap_err(), Code::NotFound);
}

#[test]
fn a_rotated_key_stays_itself_and_its_old_secret_ends() {
    let world = World::new();
    let first = made(&world, &world.caller, create("runner")).unwrap();
    let rotate = |grace_ms: Option<u64>| {
        let key = first.key.name.clone();
        made(&world, &world.caller, KeyVerb::Rotate { key, grace_ms }).unwrap()
    };
    let second = rotate(None);
    assert_eq!(second.key, first.key);
    assert!(world.engine.authenticate(&first.secret).is_err());
    assert!(world.engine.authenticate(&second.secret).is_ok());
    let third = rotate(Some(600_000));
    for secret in [&second.secret, &third.secret] {
        assert!(world.engine.authenticate(secret).is_ok());
    }
    let fourth = rotate(Some(0));
    assert!(world.engine.authenticate(&third.secret).is_err(), "its time is over");
    assert!(world.engine.authenticate(&second.secret).is_err(), "only one before is good");
    assert!(world.engine.authenticate(&fourth.secret).is_ok());
    revoke(&world, &first.key.name).unwrap();
    assert!(world.engine.authenticate(&fourth.secret).is_err());
}

#[test]
fn nobody_makes_a_key_that_is_wider_than_they_are() {
    let world = World::new();
    let narrow = asked("admin", |verb| {
        let KeyVerb::Create { tenant, ask, ttl_ms, rate_per_minute, .. } = verb else { panic!() };
        *tenant = Some("team".to_owned());
        ask.limits.pids = Some(9);
        (*ttl_ms, *rate_per_minute) = (Some(60_000), Some(5));
    });
    let boss = made(&world, &world.caller, narrow).unwrap();
    let caller = holder(&world, &boss.key);
    let child = made(&world, &caller, create("runner")).unwrap().key;
    assert_eq!(child.tenant.as_deref(), Some("team"));
    assert_eq!((child.policy.limits.pids, child.rate_per_minute), (Some(9), Some(5)));
    assert!(child.expires_ms.unwrap() <= boss.key.expires_ms.unwrap());
    let elsewhere = asked("viewer", |verb| {
        let KeyVerb::Create { tenant, .. } = verb else { panic!() };
        *tenant = Some("other".to_owned());
    });
    assert_eq!(made(&world, &caller, elsewhere).unwrap_err().code, Code::Denied);
    // A runner makes none at all, and keys of others are not there for it.
    let runner = holder(&world, &child);
    assert_eq!(made(&world, &runner, create("viewer")).unwrap_err().code, Code::Denied);
    let foreign = made(&world, &world.caller, create("viewer")).unwrap().key;
    let see = |key: &str| {
        let show = Action::Key(KeyVerb::Show { key: key.to_owned() });
        world.engine.apply(&caller, show).unwrap_err().message.replace(key, "KEY")
    };
    assert_eq!(see(foreign.id.as_str()), see("nothing"));
    // Once its own key has ended, it makes no more.
    revoke(&world, boss.key.id.as_str()).unwrap();
    assert_eq!(made(&world, &caller, create("viewer")).unwrap_err().code, Code::Denied);
}

#[test]
fn names_of_keys_are_their_own_and_nobody_is_called_owner() {
    let world = World::new();
    let named = |name: &str, in_tenant: &str| {
        let verb = asked("viewer", |verb| {
            let KeyVerb::Create { name: own, tenant, .. } = verb else { panic!() };
            (*own, *tenant) = (Some(name.to_owned()), Some(in_tenant.to_owned()));
        });
        made(&world, &world.caller, verb)
    };
    let first = named("ci", "a").unwrap();
    assert_eq!(named("ci", "a").unwrap_err().code, Code::Exists);
    named("ci", "b").expect("another tenant has names of its own");
    let error = named("owner", "a").unwrap_err();
    assert_eq!(error.code, Code::Invalid);
    let error =
        world.engine.apply(&world.caller, Action::Key(KeyVerb::Revoke { key: "ci".to_owned() }));
    assert!(error.unwrap_err().message.contains(first.key.id.as_str()), "two have that name");
    revoke(&world, first.key.id.as_str()).unwrap();
    named("ci", "a").expect("the name is free again");
}

#[test]
fn bad_secrets_are_written_down_but_do_not_fill_the_journal() {
    let world = World::new();
    let key = made(&world, &world.caller, create("viewer")).unwrap();
    let guess = write_secret(key.key.id, [9; 32]);
    for _ in 0..1_000 {
        assert!(world.engine.authenticate(&guess).is_err());
    }
    let all = records(&world);
    let refused: Vec<&RecordBody> = (all.iter().map(|record| &record.body))
        .filter(|body| body.action == "authenticate")
        .collect();
    assert!((1..=20).contains(&refused.len()), "{}", refused.len());
    assert!(refused.iter().all(|body| body.error == Some(Code::Denied) && body.key.is_none()));
    let text = serde_json::to_string(&all).unwrap();
    for secret in [&guess, &key.secret] {
        assert!(!text.contains(secret.rsplit_once('_').unwrap().1), "a secret was written down");
    }
}

#[test]
fn the_journal_tells_which_key_asked_and_keeps_values_to_itself() {
    let world = World::new();
    let key = made(&world, &world.caller, create("runner")).unwrap().key;
    let caller = holder(&world, &key);
    let run = fractal::Run {
        command: crate::world::shell("true"),
        name: Some("mine".to_owned()),
        env: [("TOKEN".to_owned(), "hunter2hunter2".to_owned())].into(),
        ..fractal::Run::default()
    };
    world.engine.apply(&caller, Action::Run(run)).unwrap();
    assert!(world.engine.apply(&caller, Action::Stages).is_err());
    assert!(world.engine.apply(&caller, Action::Gc { dry_run: true, undo_ms: None }).is_err());
    world.engine.record_denied(&caller, "run", Some("mine"), "too many requests");
    let all = records(&world);
    let of_key: Vec<&RecordBody> =
        all.iter().map(|record| &record.body).filter(|body| body.key == Some(key.id)).collect();
    let told: Vec<(&str, Option<Code>)> =
        of_key.iter().map(|body| (body.action.as_str(), body.error)).collect();
    let expect = [
        ("run", None),
        ("stages", Some(Code::NotFound)),
        ("gc", Some(Code::Denied)),
        ("run", Some(Code::Denied)),
    ];
    assert_eq!(told, expect);
    assert!(of_key.iter().all(|body| body.who == key.name && body.tenant == key.tenant));
    assert!(!serde_json::to_string(&all).unwrap().contains("hunter2"));
    assert_eq!(key.scope, Scope::All);
    // It came without variables, and the keys of the door's user stay hidden.
    let show = Action::Show { sandbox: Some("mine".to_owned()) };
    let Ok(Reply::Show(shown)) = world.engine.apply(&caller, show) else { panic!("it shows") };
    assert!(shown.info.policy.hidden.iter().any(|path| path.ends_with("/.ssh")));
    assert!(!key.policy.allows(Verb::Gc));
}
