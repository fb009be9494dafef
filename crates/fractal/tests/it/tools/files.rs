//! Reading and writing a sandbox's files without a program.

use super::call;
use crate::world::World;
use fractal::model::Limits;
use fractal::{Code, Policy, Run};
use serde_json::json;
use std::os::unix::fs::symlink;

fn world(script: &str) -> World {
    let world = World::new();
    std::fs::write(world.project().join("a.txt"), "one\ntwo\nthree\n").unwrap();
    world.make("s", script).unwrap();
    world
}

#[test]
fn what_is_written_and_edited_is_inside_and_not_outside() {
    let world = world("echo native > b.txt");
    let wrote = call(
        &world,
        "s",
        "write",
        json!({ "path": "d/e/new.sh", "content": "echo hi\n", "executable": true }),
    )
    .unwrap();
    assert_eq!(wrote["created"], true);
    let edited =
        call(&world, "s", "edit", json!({ "path": "a.txt", "old": "two", "new": "TWO" })).unwrap();
    assert_eq!((&edited["replacements"], &edited["line"]), (&json!(1), &json!(2)));
    call(&world, "s", "edit", json!({ "path": "b.txt", "old": "native", "new": "edited" }))
        .unwrap();
    let reply = world.sh("s", "cat a.txt b.txt; ./d/e/new.sh; echo more >> d/e/new.sh").unwrap();
    assert_eq!(reply.stdout, "one\nTWO\nthree\nedited\nhi\n", "{}", reply.stderr);
    assert_eq!(
        std::fs::read_to_string(world.project().join("a.txt")).unwrap(),
        "one\ntwo\nthree\n"
    );
    assert!(!world.project().join("d").exists());
    let changed = world.changed("s").unwrap();
    let names: Vec<&str> = changed.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["a.txt", "b.txt", "d", "d/e", "d/e/new.sh"]);
    // It is work like any other: a promotion brings it.
    let promoted = call(&world, "s", "promote", json!({})).unwrap();
    assert_eq!(promoted["verdict"], "applied", "{promoted}");
    assert_eq!(
        std::fs::read_to_string(world.project().join("a.txt")).unwrap(),
        "one\nTWO\nthree\n"
    );
}

#[test]
fn an_edit_that_is_not_unique_changes_nothing_and_counts() {
    let world = world("printf 'x x\\n' > x.txt");
    let edit = |old: &str, all: bool| {
        call(&world, "s", "edit", json!({ "path": "x.txt", "old": old, "new": "y", "all": all }))
    };
    let error = edit("x", false).unwrap_err();
    assert!(error.code == Code::Invalid && error.message.contains("occurs 2 times"), "{error}");
    assert!(edit("z", true).unwrap_err().message.contains("0 matches"));
    assert_eq!(world.sh("s", "cat x.txt").unwrap().stdout, "x x\n");
    assert_eq!(edit("x", true).unwrap()["replacements"], 2);
    assert_eq!(world.sh("s", "cat x.txt").unwrap().stdout, "y y\n");
}

#[test]
fn files_are_read_in_parts_and_directories_listed() {
    let world = world("seq 10 > n.txt; printf '\\377\\376' > bytes");
    let part =
        call(&world, "s", "read", json!({ "path": "n.txt", "offset": 3, "limit": 2 })).unwrap();
    assert_eq!(
        (&part["content"], &part["next_offset"], &part["total_lines"]),
        (&json!("3\n4\n"), &json!(5), &json!(10))
    );
    let list = call(&world, "s", "read", json!({ "path": "." })).unwrap();
    let names: Vec<&str> = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a.txt", "bytes", "n.txt"]);
    let error = call(&world, "s", "read", json!({ "path": "bytes" })).unwrap_err();
    assert!(error.message.contains("is no text"), "{error}");
    assert_eq!(
        call(&world, "s", "read", json!({ "path": "gone" })).unwrap_err().code,
        Code::NotFound
    );
}

#[test]
fn no_path_leads_out_of_the_sandbox() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "outside\n").unwrap();
    let world = World::new();
    symlink(&secret, world.project().join("link")).unwrap();
    symlink(outside.path(), world.project().join("dir")).unwrap();
    world.make("s", "echo in > f").unwrap();
    let secret = secret.display().to_string();
    for path in [&secret, "/etc/passwd", "link", "dir/secret", "../../../../../../etc/passwd"] {
        let read = call(&world, "s", "read", json!({ "path": path }));
        assert!(read.is_err(), "{path}: {read:?}");
        let write = call(&world, "s", "write", json!({ "path": path, "content": "broken\n" }));
        assert!(write.is_err(), "{path}: {write:?}");
        let edit =
            call(&world, "s", "edit", json!({ "path": path, "old": "o", "new": "x", "all": true }));
        assert!(edit.is_err(), "{path}: {edit:?}");
    }
    assert!(call(&world, "s", "find", json!({ "path": "dir" })).is_err());
    let found = call(&world, "s", "find", json!({ "pattern": "outside" })).unwrap();
    assert_eq!(found["matches"], json!([]));
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "outside\n");
    // A new name beside what is outside stays out as well.
    let beside = outside.path().join("new").display().to_string();
    for path in [beside.as_str(), "dir/new", "/etc/new-file"] {
        let write = call(&world, "s", "write", json!({ "path": path, "content": "x" }));
        assert!(write.is_err(), "{path}: {write:?}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn files_are_found_by_name_and_content() {
    let world = world(
        "mkdir -p src/deep .git; echo 'fn main() {}' > src/main.rs; echo 'fn inner() {}' > src/deep/inner.rs; echo 'fn x' > .git/x",
    );
    let found =
        call(&world, "s", "find", json!({ "pattern": r"fn \w+\(\)", "glob": "*.rs" })).unwrap();
    let lines: Vec<(String, u64)> = found["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            (
                it["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned(),
                it["line"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(lines, [("inner.rs".to_owned(), 1), ("main.rs".to_owned(), 1)]);
    let names = call(&world, "s", "find", json!({ "glob": "src/*.rs" })).unwrap();
    assert_eq!(names["matches"].as_array().unwrap().len(), 1);
    let few = call(&world, "s", "find", json!({ "pattern": "t", "limit": 1 })).unwrap();
    assert_eq!((few["matches"].as_array().unwrap().len(), &few["truncated"]), (1, &json!(true)));
    let error = call(&world, "s", "find", json!({ "pattern": "(" })).unwrap_err();
    assert!(error.message.contains("/pattern"), "{error}");
}

#[test]
fn many_writes_at_once_all_arrive() {
    let world = world("true > f");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let world = &world;
            scope.spawn(move || {
                let input = json!({ "path": format!("w/{number}"), "content": number.to_string() });
                call(world, "s", "write", input).unwrap()
            });
        }
    });
    assert_eq!(world.sh("s", "cat w/*").unwrap().stdout, "01234567");
}

#[test]
fn a_disk_limit_holds_for_writes_from_outside() {
    let world = World::new();
    let limits = Limits { disk_bytes: Some(256 << 10), ..Limits::default() };
    let ask = Policy { limits, ..Policy::default() };
    let command = crate::world::shell("true > f");
    let run = Run { command, name: Some("s".into()), ask, ..Run::default() };
    world.run(run).unwrap();
    let content = "x".repeat(200 << 10);
    let write =
        |name: &str| call(&world, "s", "write", json!({ "path": name, "content": content }));
    write("one").unwrap();
    assert_eq!(write("two").unwrap_err().code, Code::Limit);
}
