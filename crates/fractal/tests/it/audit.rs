//! The journal as an audit log: what it finds, and what it finds out.

use crate::keys::{create, holder, made, records};
use crate::world::World;
use fractal::model::{AuditVerifyReply, Record, RecordBody};
use fractal::{Action, Code, Engine, Reply};
use rusqlite::{Connection, params};

fn verify(engine: &Engine, world: &World, expect: Option<&str>) -> AuditVerifyReply {
    let action = Action::AuditVerify { expect: expect.map(str::to_owned) };
    match engine.apply(&world.caller, action).unwrap() {
        Reply::AuditVerify(reply) => reply,
        other => panic!("audit verify answered {other:?}"),
    }
}

/// A journal of six records, edited by a statement; what the check says then.
fn after(statement: &str) -> AuditVerifyReply {
    let world = World::new();
    for _ in 0..6 {
        made(&world, &world.caller, create("viewer")).unwrap();
    }
    assert!(verify(&world.engine, &world, None).whole);
    let conn = Connection::open(world.dir.path().join("home/state.db")).unwrap();
    conn.execute_batch(statement).unwrap();
    verify(&world.engine, &world, None)
}

#[test]
fn an_edited_removed_or_reordered_record_is_named() {
    let check = |statement: &str, seq: u64, words: &str| {
        let reply = after(statement);
        let broken = reply.broken.expect("it is found");
        assert!(!reply.whole && reply.checked <= seq, "{statement}");
        assert_eq!(broken.seq, seq, "{statement}: {}", broken.why);
        assert!(broken.why.contains(words), "{statement}: {}", broken.why);
    };
    check("UPDATE journal SET body = replace(body, 'viewer', 'admin') WHERE seq = 3", 3, "content");
    check("UPDATE journal SET hash = prev WHERE seq = 3", 3, "content");
    check("UPDATE journal SET body = '{}' WHERE seq = 1", 1, "content");
    check("DELETE FROM journal WHERE seq = 1", 2, "follows record 0");
    check("DELETE FROM journal WHERE seq = 4", 5, "follows record 3");
    check("DELETE FROM journal WHERE seq = 6", 6, "6 were written");
    check("DELETE FROM journal", 1, "6 were written");
    let closed_up = "DELETE FROM journal WHERE seq = 4; \
                     UPDATE journal SET seq = seq - 1 WHERE seq > 4";
    check(closed_up, 4, "does not point");
    let swapped = "UPDATE journal SET seq = 100 WHERE seq = 2; \
                   UPDATE journal SET seq = 2 WHERE seq = 3; \
                   UPDATE journal SET seq = 3 WHERE seq = 100";
    check(swapped, 2, "does not point");
    let bodies = "UPDATE journal SET body = (SELECT body FROM journal WHERE seq = 5) WHERE seq = 2";
    check(bodies, 2, "content");
    check("UPDATE head SET seq = 9", 7, "9 were written");
    check("UPDATE head SET hash = 'x'", 6, "not the record that was written last");
}

/// Whoever can write the whole file can make a chain that fits; a hash that
/// was noted elsewhere finds that out.
#[test]
fn a_chain_that_was_made_anew_lacks_the_hash_that_was_noted() {
    let world = World::new();
    for _ in 0..3 {
        made(&world, &world.caller, create("viewer")).unwrap();
    }
    let noted = verify(&world.engine, &world, None).head;
    made(&world, &world.caller, create("viewer")).unwrap();
    let later = verify(&world.engine, &world, Some(&noted));
    assert!(later.whole && later.checked == 4 && later.head != noted);
    let conn = Connection::open(world.dir.path().join("home/state.db")).unwrap();
    let mut prev = Record::GENESIS.to_owned();
    for record in records(&world) {
        let mut body: RecordBody = record.body;
        body.who = "somebody".to_owned();
        let body = serde_json::to_string(&body).unwrap();
        let hash = Record::chain_hash(record.seq, &prev, &body);
        let sql = "UPDATE journal SET prev = ?2, hash = ?3, body = ?4 WHERE seq = ?1";
        conn.execute(sql, params![record.seq, prev, hash, body]).unwrap();
        prev = hash;
    }
    conn.execute("UPDATE head SET hash = ?1", [&prev]).unwrap();
    assert!(verify(&world.engine, &world, None).whole, "nothing inside tells");
    let found = verify(&world.engine, &world, Some(&noted));
    assert!(!found.whole);
    assert!(found.broken.unwrap().why.contains(&noted));
}

#[test]
fn records_are_found_by_key_verb_sandbox_time_and_refusal_in_pages() {
    let world = World::new();
    let key = made(&world, &world.caller, create("runner")).unwrap().key;
    let caller = holder(&world, &key);
    world.make("one", "echo x > x").unwrap();
    world.snapshot("one", "s").unwrap();
    assert!(world.engine.apply(&caller, Action::Show { sandbox: Some("one".into()) }).is_err());
    assert!(world.engine.apply(&caller, Action::Gc { dry_run: true, undo_ms: None }).is_err());
    let ask = |change: &dyn Fn(&mut Action)| {
        let mut asked = Action::Audit {
            since_ms: None,
            until_ms: None,
            key: None,
            action: None,
            sandbox: None,
            denied: false,
            limit: None,
            after: None,
        };
        change(&mut asked);
        match world.apply(asked).unwrap() {
            Reply::Audit(reply) => {
                (reply.records.into_iter().map(|record| record.body.action).collect(), reply.more)
            }
            other => panic!("audit answered {other:?}"),
        }
    };
    type Found = (Vec<String>, bool);
    let all: Found = ask(&|_| ());
    assert_eq!(all.0, ["gc", "show", "snapshot", "run", "key"]);
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let found = |change: &dyn Fn(&mut Action), list: &[&str]| {
        assert_eq!(ask(change), (words(list), false));
    };
    for name in [key.name.clone(), key.id.to_string()] {
        let of_key = |asked: &mut Action| {
            let Action::Audit { key, .. } = asked else { panic!() };
            *key = Some(name.clone());
        };
        found(&of_key, &["gc", "show"]);
    }
    found(
        &|asked| {
            if let Action::Audit { key, .. } = asked {
                *key = Some("owner".into())
            }
        },
        &["snapshot", "run", "key"],
    );
    found(
        &|asked| {
            if let Action::Audit { denied, .. } = asked {
                *denied = true
            }
        },
        &["gc"],
    );
    found(
        &|asked| {
            if let Action::Audit { sandbox, .. } = asked {
                *sandbox = Some("one".into())
            }
        },
        &["snapshot", "run"],
    );
    found(
        &|asked| {
            if let Action::Audit { action, .. } = asked {
                *action = Some("run".into())
            }
        },
        &["run"],
    );
    found(
        &|asked| {
            if let Action::Audit { since_ms, .. } = asked {
                *since_ms = Some(u64::MAX)
            }
        },
        &[],
    );
    found(
        &|asked| {
            if let Action::Audit { until_ms, .. } = asked {
                *until_ms = Some(1)
            }
        },
        &[],
    );
    let page = |from: u64| {
        ask(&|asked| {
            let Action::Audit { limit, after, .. } = asked else { panic!() };
            (*limit, *after) = (Some(2), Some(from));
        })
    };
    assert_eq!(page(0), (words(&["key", "run"]), true));
    assert_eq!(page(2), (words(&["snapshot", "show"]), true));
    assert_eq!(page(4), (words(&["gc"]), false));
    let audit = world.engine.apply(&caller, Action::AuditVerify { expect: None });
    assert_eq!(audit.unwrap_err().code, Code::Denied, "a runner audits nobody");
}
