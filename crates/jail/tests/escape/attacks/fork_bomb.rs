//! A fork bomb against the limit of processes.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec, text_of};
use std::time::{Duration, Instant};

trial!(a_fork_bomb_stops_at_its_limit, |tier| {
    // Bounded, so that a missing limit is a failed test and no dead machine.
    let text = script(
        r#"
made = 0
for _ in range(600):
    try:
        if os.fork() == 0:
            signal.pause()
        made += 1
    except OSError as error:
        note(f"after {made}: {error}")
        break
if made > 60:
    escaped(f"made {made} processes")
"#,
    );
    let mut arena = Arena::new();
    let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
    spec.limits.pids = Some(40);
    let start = Instant::now();
    let output = text_of(&run(&mut arena, &spec));
    assert!(output.contains("HELD:"), "{output}");
    // The host can still start processes, and soon.
    assert!(std::process::Command::new("true").status().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
});
