//! `export` and `import` of whole trees.

#![allow(clippy::unwrap_used)]

use crate::world::{Answer, World};
use std::os::unix::fs::PermissionsExt;

/// A project and a sandbox `v` of it with all kinds of changes.
fn changed() -> World {
    let world = World::new();
    world.write("same.txt", "same\n");
    world.write("gone.txt", "gone\n");
    let script = "rm gone.txt; mkdir -p d/empty; echo new > d/new; ln -s new d/link; \
                  echo run > run.sh; chmod 755 run.sh";
    world.ok(&["sh", "--name", "v", "-c", script]);
    world
}

const LOOK: &str = "ls; cat same.txt d/new d/link; test -x run.sh && ls -d d/empty";
const SEEN: &str = "d\nrun.sh\nsame.txt\nsame\nnew\nnew\nd/empty\n";

#[test]
fn a_tree_goes_out_in_every_form_and_comes_back() {
    let world = changed();
    for name in ["tree.tar", "tree.zip", "tree.json", "tree/"] {
        let file = world.root().join(name).display().to_string();
        let answer = world.ok(&["export", "v", "-o", &file]);
        assert!(answer.err.contains("exported v: 6 entries"), "{name}: {}", answer.err);
        // Over an empty project nothing else is there.
        let other = World::new();
        let made = other.ok(&["import", &file]).out;
        let made = made.trim();
        assert_eq!(other.ok(&["sh", "--in", made, "-c", LOOK]).out, SEEN, "{name}");
        let status = other.ok(&["diff", made, "--name-status"]).out;
        assert_eq!(status.lines().count(), 6, "{name}: {status}");
        other.ok(&["promote", made]);
        let run = std::fs::metadata(other.project().join("run.sh")).unwrap();
        assert_eq!(run.permissions().mode() & 0o777, 0o755, "{name}");
        other.ok(&["undo"]);
        assert!(!other.project().join("d").exists());
    }
}

#[test]
fn other_tools_read_and_write_them() {
    let world = changed();
    let tool = |script: &str| Answer::of(world.command("sh").args(["-c", script]));
    let tar = world.root().join("t.tar").display().to_string();
    world.ok(&["export", "v", "-o", &tar]);
    let listed = tool("tar -tf ../t.tar | sed 's,/$,,' | sort | tr '\\n' ' '");
    assert!(listed.out.contains("d d/empty d/link d/new run.sh same.txt"), "{}", listed.out);
    let packed = tool("mkdir in && echo 1 > in/same.txt && tar -czf ../in.tgz -C in . && rm -r in");
    assert_eq!(packed.status, 0, "{}", packed.err);
    world.ok(&["import", "../in.tgz", "--name", "w"]);
    assert_eq!(world.ok(&["diff", "w", "--name-status"]).out, "M\tsame.txt\n");
    assert_eq!(world.ok(&["sh", "--in", "w", "-c", "cat same.txt gone.txt"]).out, "1\ngone\n");
    // An edit made meanwhile is seen, as with any other sandbox.
    world.write("same.txt", "edited\n");
    assert_eq!(world.fractal(&["promote", "w"]).status, 5);
}

#[test]
fn hostile_and_broken_ones_are_refused_and_leave_nothing() {
    let world = changed();
    let climbing = r#"{"fractal_tree": 1, "entries": [{"path": "/../../out", "content": "x"}]}"#;
    std::fs::write(world.root().join("climb.json"), climbing).unwrap();
    std::fs::write(world.root().join("cut.zip"), "PK\x03\x04").unwrap();
    std::fs::write(world.root().join("no.tar"), vec![7; 2048]).unwrap();
    for (name, status) in [("climb.json", 2), ("cut.zip", 2), ("no.tar", 2), ("none.zip", 6)] {
        let answer = world.fractal(&["import", &format!("../{name}")]);
        assert_eq!(answer.status, status, "{name}: {}", answer.err);
        assert!(answer.err.contains(name), "{}", answer.err);
    }
    // What climbs is whole: the advice is about its names.
    let pack = "echo x > x; tar -P --transform 's,^,../,' -cf ../climb.tar x; rm x";
    assert!(world.command("sh").args(["-c", pack]).status().unwrap().success());
    for (name, advice) in [("climb.tar", "stay below one directory"), ("cut.zip", "was cut")] {
        let answer = world.fractal(&["import", &format!("../{name}")]);
        assert_eq!(answer.status, 2, "{}", answer.err);
        assert!(answer.err.contains(advice), "{}", answer.err);
    }
    assert_eq!(world.ok(&["list", "--json"]).out.matches("\"name\":").count(), 1);
    let answer = world.fractal(&["export", "v", "-o", "/nowhere/at/all.zip"]);
    assert_eq!(answer.status, 125, "{}", answer.err);
    let answer = world.fractal(&["export", "v", "-o", "../climb.json/"]);
    assert!(answer.status != 0, "{}", answer.err);
}
