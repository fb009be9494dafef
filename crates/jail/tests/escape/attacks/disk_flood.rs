//! The disk is filled, against the limit of a layer on disk and in memory.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec, text_of};
use fractal_jail::{Top, Why};

const FLOOD: &str = r#"
for number in range(400):
    spill(f"file{number}", "x" * (1 << 20))
    time.sleep(0.005)
escaped("wrote 400 MiB")
"#;

trial!(writing_stops_at_the_disk_limit, |tier| {
    let text = script(FLOOD);
    for on_disk in [false, true] {
        let mut arena = Arena::new();
        let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
        spec.limits.disk_bytes = Some(32 << 20);
        spec.stack.top = Top::Memory { size_bytes: 32 << 20 };
        if on_disk {
            std::fs::create_dir_all(arena.path("state/layers/top/tree")).unwrap();
            std::fs::create_dir_all(arena.path("state/layers/top/work")).unwrap();
            spec.stack.top = Top::Disk("top".to_owned());
        }
        let report = run(&mut arena, &spec);
        let output = text_of(&report);
        assert!(!output.contains("ESCAPED:"), "on disk {on_disk}: {output}");
        assert!(report.why == Why::Disk || output.contains("HELD:"), "{:?} {output}", report.why);
        drop(report);
        fractal_jail::settle();
    }
});

const HIDDEN: &str = r#"
for level in range(300):
    os.mkdir("d")
    os.chdir("d")
for number in range(100):
    spill(f"file{number}", "x" * (1 << 20))
    time.sleep(0.05)
escaped("wrote 100 MiB out of sight")
"#;

trial!(bytes_cannot_be_hidden_from_the_limit_in_depth, |tier| {
    let text = script(HIDDEN);
    let mut arena = Arena::new();
    let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &text]);
    std::fs::create_dir_all(arena.path("state/layers/top/tree")).unwrap();
    std::fs::create_dir_all(arena.path("state/layers/top/work")).unwrap();
    spec.limits.disk_bytes = Some(32 << 20);
    spec.stack.top = Top::Disk("top".to_owned());
    let report = run(&mut arena, &spec);
    let output = text_of(&report);
    assert!(!output.contains("ESCAPED:"), "{output}");
    assert_eq!(report.why, Why::Disk, "{output}");
    drop(report);
    fractal_jail::settle();
});
