//! The whole command as somebody without privileges on a machine where other
//! filesystems are mounted inside of what that user can write.

use crate::world::{Answer, FRACTAL, World, is_root};

/// Mounts something in a namespace of its own, then becomes somebody without
/// privileges and runs the rest. Root becomes another user for that: the
/// kernel lets nobody map the host's root who lacks its powers.
const WITH_A_MOUNT: &str = r#"
mount -t tmpfs none "$1" || exit 1
shift
[ "$ROOT" = 1 ] && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
exec setpriv --bounding-set -all --inh-caps -all --ambient-caps -all "$@"
"#;

fn run_beside_a_mount(world: &World, mounted: &str, home: &str, script: &str) -> serde_json::Value {
    let mut command = world.command("unshare");
    if is_root() {
        give_away(world.root());
        give_away(home.as_ref());
        command.env("ROOT", "1");
    } else {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "sh", "-c", WITH_A_MOUNT, "sh", mounted, FRACTAL]);
    command.args(["run", "--json", "--name", "x", "--", "sh", "-c", script]).env("HOME", home);
    let answer = Answer::of(&mut command);
    serde_json::from_str(&answer.out)
        .unwrap_or_else(|error| panic!("{error} in {:?} {}", answer.out, answer.err))
}

/// To the user that root becomes.
fn give_away(dir: &std::path::Path) {
    let given = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(dir).status();
    assert!(given.is_ok_and(|status| status.success()), "root may give anything away");
}

fn paths(reply: &serde_json::Value) -> Vec<&str> {
    let changes = reply["changes"].as_array().expect("a list");
    changes.iter().filter_map(|change| change["path"].as_str()).collect()
}

#[test]
fn a_mount_in_the_temporary_directory_does_not_weaken_a_run() {
    let world = World::new();
    world.write("kept.txt", "kept\n");
    let mounted = world.root().join("mounted");
    std::fs::create_dir(&mounted).expect("a mount point");
    if !mounted.starts_with("/tmp") {
        eprintln!("skipped: temporary directories of tests do not lie in /tmp");
        return;
    }
    let home = world.root().display().to_string();
    let script = "echo more >> kept.txt; echo new > /tmp/made-inside; cat kept.txt; ls /tmp";
    let reply = run_beside_a_mount(&world, &mounted.display().to_string(), &home, script);
    assert_eq!(reply["isolation"]["tier"], "rootless", "{reply}");
    assert_eq!(reply["exit"], 0, "{reply}");
    let seen = reply["stdout"].as_str().unwrap_or_default();
    assert!(seen.starts_with("kept\nmore\n") && seen.contains("made-inside\n"), "{reply}");
    assert!(paths(&reply).contains(&"/tmp/made-inside"), "{reply}");
    assert!(paths(&reply).iter().any(|path| path.ends_with("/project/kept.txt")), "{reply}");
    let missing = reply["isolation"]["missing"].to_string();
    assert!(missing.contains("/tmp: starts empty"), "{missing}");
    assert!(!std::path::Path::new("/tmp/made-inside").exists());
}

#[test]
fn a_mount_in_the_home_leaves_it_readable() {
    if !is_root() {
        eprintln!("skipped: only root can make a home");
        return;
    }
    let world = World::new();
    let home = tempfile::tempdir_in("/home").expect("a home");
    let mounted = home.path().join("mounted");
    std::fs::create_dir(&mounted).expect("a mount point");
    std::fs::write(home.path().join("note"), "at home\n").expect("a file");
    let script = "cat ~/note; echo x 2>/dev/null > ~/new || echo refused; echo x > here";
    let at = |path: &std::path::Path| path.display().to_string();
    let reply = run_beside_a_mount(&world, &at(&mounted), &at(home.path()), script);
    assert_eq!(reply["isolation"]["tier"], "rootless", "{reply}");
    assert_eq!(reply["stdout"], "at home\nrefused\n", "{reply}");
    let missing = reply["isolation"]["missing"].to_string();
    assert!(missing.contains("is read-only, for"), "{missing}");
    assert!(paths(&reply).iter().any(|path| path.ends_with("/project/here")), "{reply}");
}
