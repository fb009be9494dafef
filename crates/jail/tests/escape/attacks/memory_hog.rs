//! Memory is used up, by one process and by several, against the limit.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec, text_of};
use fractal_jail::Why;

const LIMIT_BYTES: u64 = 96 << 20;

trial!(memory_stops_at_its_limit, |tier| {
    for workers in [1, 6] {
        let text = script(&format!(
            r#"
for _ in range({workers} - 1):
    if os.fork() == 0:
        break
kept = []
for _ in range(400 // {workers}):
    kept.append(b"x" * (1 << 20))
    time.sleep(0.003)
# Who is left alone when the others were ended holds less than the limit, and is
# ended with them a moment later.
time.sleep(20)
escaped("had 400 MiB")
"#
        ));
        let mut arena = Arena::new();
        let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
        spec.limits.memory_bytes = Some(LIMIT_BYTES);
        let report = run(&mut arena, &spec);
        let output = text_of(&report);
        assert!(!output.contains("ESCAPED:"), "{workers} workers: {:?} {output}", report.why);
        // A single process may also meet its own limit and see MemoryError.
        let noticed = output.contains("MemoryError") && workers == 1;
        assert!(report.why == Why::Memory || noticed, "{:?} {output}", report.why);
    }
});
