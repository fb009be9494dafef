//! Keys and the audit log, from outside.

use crate::world::{World, able};

fn secret(world: &World, args: &[&str]) -> String {
    let made = world.ok(&[&["key", "create"], args].concat());
    assert_eq!(made.out.lines().count(), 1, "standard output has the secret alone");
    made.out.trim_end().to_owned()
}

#[test]
fn a_secret_is_printed_once_and_alone() {
    let world = World::new();
    let one = secret(&world, &["--role", "runner", "--name", "ci"]);
    assert!(one.starts_with("frk_") && one.len() == 80, "{one}");
    for args in [&["key", "list"][..], &["key", "show", "ci"], &["audit"], &["audit", "--jsonl"]] {
        for json in [&[][..], &["--json"]] {
            let shown = world.ok(&[args, json].concat());
            assert!(!shown.out.contains(&one[40..]), "{args:?} shows the secret");
        }
    }
    let state = std::fs::read(world.state().join("state.db")).expect("the database");
    let log = std::fs::read(world.state().join("state.db-wal")).unwrap_or_default();
    let all = String::from_utf8_lossy(&[state, log].concat()).into_owned();
    assert!(all.contains("\"name\":\"ci\"") && !all.contains(&one[31..]), "only a hash is kept");
}

#[test]
fn keys_are_made_shown_rotated_and_revoked_as_json() {
    let world = World::new();
    let args = ["key", "create", "--json", "--role", "viewer", "--ttl", "1h", "--rate", "60"];
    let (_, made) = world.json(&args);
    let id = made["id"].as_str().expect("an id");
    assert!(made["secret"].as_str().is_some_and(|secret| secret.contains(id)));
    assert_eq!(made["tenant"].as_str(), Some(id), "a tenant of its own");
    let lives = made["expires_ms"].as_u64().unwrap_or(0) - made["created_ms"].as_u64().unwrap_or(0);
    assert_eq!((lives, made["rate_per_minute"].as_u64()), (3_600_000, Some(60)));
    let (_, again) = world.json(&["key", "rotate", id, "--json"]);
    assert_ne!(again["secret"], made["secret"]);
    let (_, ended) = world.json(&["key", "revoke", id, "--json"]);
    assert!(ended["revoked_ms"].is_u64() && ended.get("secret").is_none());
    let (_, keys) = world.json(&["key", "list", "--json"]);
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1));
    let (_, endless) =
        world.json(&["key", "create", "--role", "admin", "--ttl", "never", "--json"]);
    assert!(endless.get("expires_ms").is_none() && endless.get("tenant").is_none());
}

#[test]
fn mistakes_are_told_with_what_there_is() {
    let world = World::new();
    let check = |args: &[&str], status: i32, words: &str| {
        let answer = world.fractal(&[&["key"], args].concat());
        assert_eq!(answer.status, status, "{args:?}: {}", answer.err);
        assert!(answer.err.contains(words), "{args:?}: {}", answer.err);
        assert_eq!(answer.out, "");
    };
    check(&["create", "--role", "boss"], 6, "viewer, approver, runner, operator, admin");
    check(&["create", "--role", "viewer", "--name", "owner"], 2, "local user");
    check(&["create", "--role", "viewer", "--scope", "nothing"], 6, "no sandbox `nothing`");
    check(&["create", "--role", "viewer", "--scope", "template:x"], 6, "no template `x`");
    check(&["create", "--role", "viewer", "--ttl", "soon"], 2, "soon");
    check(&["revoke", "nothing"], 6, "fractal key list");
    check(&["create"], 2, "--role");
}

#[test]
fn roles_of_the_settings_count_and_a_broken_file_keeps_no_key_alive() {
    let world = World::new();
    world.write("fractal.toml", "[role.ci]\nbase = \"runner\"\nnet = \"none\"\n");
    let roles = world.ok(&["key", "roles"]).out;
    assert!(roles.lines().any(|line| line.starts_with("ci ")), "{roles}");
    secret(&world, &["--role", "ci", "--name", "robot"]);
    assert!(world.ok(&["key", "show", "robot"]).out.contains("\"network\":\"none\""));
    world.write("fractal.toml", "[role.ci]\nalow = 1\n");
    let broken = world.fractal(&["key", "create", "--role", "ci"]);
    assert!(broken.status == 2 && broken.err.contains("fractal.toml:2"), "{}", broken.err);
    world.ok(&["key", "revoke", "robot"]);
}

#[test]
fn no_record_can_look_like_two() {
    if !able() {
        return;
    }
    let world = World::new();
    let evil = "x\n9  2026-01-01 00:00:00  owner  drop  all\r\x1b[2J";
    world.ok(&["run", "--", "true", evil]);
    let audit = world.ok(&["audit"]);
    assert_eq!(audit.out.lines().count(), 1, "{:?}", audit.out);
    assert!(!audit.out.contains(['\r', '\x1b']), "{:?}", audit.out);
    assert_eq!(world.ok(&["audit", "--jsonl"]).out.lines().count(), 1);
    assert_eq!(world.ok(&["audit", "--key", evil]).out, "");
}

#[test]
fn the_chain_is_checked_and_a_noted_hash_is_found_again() {
    let world = World::new();
    for name in ["a", "b"] {
        world.ok(&["volume", "create", name]);
    }
    let (status, whole) = world.json(&["audit", "verify", "--json"]);
    assert_eq!(
        (status, whole["whole"].as_bool(), whole["checked"].as_u64()),
        (0, Some(true), Some(2))
    );
    let head = whole["head"].as_str().expect("a hash");
    world.ok(&["volume", "create", "c"]);
    world.ok(&["audit", "verify", "--expect", head]);
    let other = world.fractal(&["audit", "verify", "--expect", &"0".repeat(64)]);
    assert_eq!(other.status, 125, "{}", other.err);
    assert!(other.err.contains("no record has the expected hash"), "{}", other.err);
    let since = world.fractal(&["audit", "--since", "yesterday"]);
    assert!(since.status == 2 && since.err.contains("24h"), "{}", since.err);
    assert_eq!(world.ok(&["audit", "--since", "1h", "--action", "volume"]).out.lines().count(), 3);
    assert_eq!(world.ok(&["audit", "--until", "2020-01-01T00:00:00Z"]).out, "");
}
