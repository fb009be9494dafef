//! The launcher is drowned in output.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec};
use fractal_jail::Why;

trial!(output_stops_at_its_limit, |tier| {
    let text = script("while True:\n    os.write(1, b'x' * 65536)");
    let mut arena = Arena::new();
    let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
    spec.limits.output_bytes = Some(4 << 20);
    let report = run(&mut arena, &spec);
    assert_eq!(report.why, Why::Output);
    assert!(report.output.bytes.len() <= 1 << 20);
});
