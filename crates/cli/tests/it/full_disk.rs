//! A disk without a free block under the state directory: looking and making
//! room work, and everything else says what to type.

use crate::world::{Answer, World, able, is_root};

/// Fills the disk under the state directory to its last block.
const FILL: &str = "fill() {
    head -c 100000000 /dev/zero > $FRACTAL_HOME/filler 2>/dev/null
    test $(stat -f -c %a $FRACTAL_HOME) = 0 || echo there is room
}\n";

/// Says what a command printed and how it ended.
const TELL: &str = "tell() { echo \"== $*\"; fractal \"$@\" 2>&1; echo \"<< $?\"; }\n";

/// Plays a script where the state directory is a small disk of its own.
fn on_a_small_disk(script: &str) -> Option<Answer> {
    if !able() {
        return None;
    }
    if !is_root() {
        eprintln!("skipped: no right to mount");
        return None;
    }
    let world = World::new();
    let mount = "set -u; mkdir -p $FRACTAL_HOME && mount -t tmpfs -o size=24m none $FRACTAL_HOME\n";
    let script = format!("{mount}{FILL}{TELL}{script}");
    let answer = Answer::of(world.command("unshare").args(["-m", "sh", "-c", &script]));
    assert!(!answer.out.contains("there is room"), "{}", answer.out);
    Some(answer)
}

/// What one of the commands printed, and its exit status.
fn told<'a>(answer: &'a Answer, args: &str) -> (&'a str, &'a str) {
    let from = answer.out.split_once(&format!("== {args}\n"));
    let (_, rest) = from.unwrap_or_else(|| panic!("`{args}`: {}{}", answer.out, answer.err));
    let (text, rest) = rest.split_once("<< ").expect("it ended");
    (text, rest.lines().next().unwrap_or_default())
}

#[test]
fn looking_and_making_room_work_on_a_full_disk() {
    let script = "
        fractal run -q --name keep -- sh -c 'echo one > one'
        fractal run -q --name big -- sh -c 'head -c 6000000 /dev/zero > big'
        fill
        tell run --name more -- true
        tell list
        tell show big
        tell diff keep
        tell log -n 5
        tell gc
        tell drop big
        tell list --here
        rm $FRACTAL_HOME/filler
        tell gc --dry-run
        stat -c 'set aside: %s %b' $FRACTAL_HOME/reserve
        tell doctor";
    let Some(answer) = on_a_small_disk(script) else { return };
    let (text, status) = told(&answer, "run --name more -- true");
    assert_eq!(status, "125", "{text}");
    assert!(text.contains("space") && text.contains("hint: "), "{text}");
    for args in ["list", "show big", "diff keep", "log -n 5", "gc", "drop big", "list --here"] {
        let (text, status) = told(&answer, args);
        assert_eq!(status, "0", "{args}: {text}");
    }
    assert!(told(&answer, "list").0.contains("big"), "{}", answer.out);
    assert!(told(&answer, "diff keep").0.contains("+one"), "{}", answer.out);
    let left = told(&answer, "list --here").0;
    assert!(left.contains("keep") && !left.contains("big"), "{left}");
    // In blocks of 512 bytes: it is space, and not a hole.
    assert!(answer.out.contains("set aside: 1048576 2048"), "{}", answer.out);
    assert!(!told(&answer, "doctor").0.contains("damage"), "{}", answer.out);
}

#[test]
fn a_run_that_died_on_a_full_disk_keeps_nobody_from_making_room() {
    let script = "
        fractal run -q --name lost -- sh -c 'head -c 3000000 /dev/zero > big; sleep 300' &
        until fractal list | grep -q 'lost .*running'; do sleep 0.05; done
        until test $(fractal show lost --json | grep -c size_bytes) != 0; do sleep 0.05; done
        fill
        kill -9 $!
        wait $! 2>/dev/null
        tell list
        tell log -n 1
        tell drop lost
        tell gc";
    let Some(answer) = on_a_small_disk(script) else { return };
    for args in ["list", "log -n 1", "drop lost", "gc"] {
        let (text, status) = told(&answer, args);
        assert_eq!(status, "0", "{args}: {text}{}", answer.err);
    }
    assert!(told(&answer, "log -n 1").0.contains("lost: its process was killed"), "{}", answer.out);
}
