//! Memory is used up through files that live in memory.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec, text_of};

trial!(files_in_memory_are_bounded_like_memory, |tier| {
    let text = script(
        r#"
written = 0
def fill(fd):
    global written
    try:
        for _ in range(300):
            written += os.write(fd, b"x" * (1 << 20))
    except OSError as error:
        note(error)
for place in ("/dev/shm/hog", "/dev/hog", "/run/hog"):
    try:
        fill(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        note(error)
time.sleep(0.2)
note(f"wrote {written >> 20} MiB")
if written > 300 << 20:
    escaped("past the limit")
"#,
    );
    let mut arena = Arena::new();
    let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
    spec.limits.memory_bytes = Some(96 << 20);
    let report = run(&mut arena, &spec);
    let output = text_of(&report);
    assert!(!output.contains("ESCAPED:") && !output.contains("BROKEN:"), "{output}");
});
