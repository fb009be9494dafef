//! A process that ignores every signal, with children in sessions of their
//! own, against the limit of time.

use crate::arena::{Arena, PYTHON};
use crate::harness::{marked_processes, run, script, spec, text_of};
use fractal_jail::Why;
use std::time::{Duration, Instant};

trial!(the_time_limit_ends_what_ignores_all_signals, |tier| {
    let text = script(
        r#"
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
        while True:
            time.sleep(0.01)
note("all started")
while True:
    time.sleep(0.01)
"#,
    );
    let mut arena = Arena::new();
    let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
    spec.limits.time_ms = Some(700);
    let start = Instant::now();
    let report = run(&mut arena, &spec);
    assert!(text_of(&report).contains("all started"), "{}", text_of(&report));
    assert_eq!(report.why, Why::Time);
    assert!(start.elapsed() < Duration::from_secs(4), "took {:?}", start.elapsed());
    fractal_jail::settle();
    assert_eq!(marked_processes(&arena), Vec::<String>::new());
});
