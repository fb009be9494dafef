//! A first run leaves links in its layer where the second one's mount points
//! are made, by path and with the launcher's rights.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec, text_of};
use fractal_jail::{Placed, Top};

/// With a directory in place of the link the same mount works, or refusing
/// the link would prove nothing. Rootless runs cannot have mounts there.
fn honest_runs(tier: fractal_model::Tier) {
    let mut arena = Arena::new();
    for dir in ["state/layers/top/tree", "state/layers/top/work", "source"] {
        std::fs::create_dir_all(arena.path(dir)).unwrap();
    }
    arena.file("source/hello", "hello");
    let at = arena.path("project/mount/planted/deep");
    let file = at.join("hello").display().to_string();
    let mut first = spec(&arena, tier, &["mkdir", "mount"]);
    first.stack.top = Top::Disk("top".to_owned());
    run(&mut arena, &first);
    fractal_jail::settle();
    crate::harness::clear_work(&arena);
    let mut second = spec(&arena, tier, &["cat", &file]);
    second.stack.top = Top::Disk("top".to_owned());
    second.stack.mounts = vec![Placed { at, source: Some(arena.path("source")), writable: false }];
    second.label.push_str("-2");
    assert_eq!(text_of(&run(&mut arena, &second)), "hello");
    fractal_jail::settle();
}

trial!(links_in_a_layer_do_not_lead_the_launcher_outside, |tier| {
    if tier == fractal_model::Tier::Copied {
        crate::harness::notice("does not apply in copied: mounts are refused");
    } else if tier != fractal_model::Tier::Rootless {
        honest_runs(tier);
    }
    let plant = script(
        r#"
os.symlink(f"{arena}/outside", f"{project}/mount")
os.symlink(f"{arena}/outside", f"{project}/scratch")
os.symlink(f"{arena}/outside", f"{project}/direct")
"#,
    );
    let mut arena = Arena::new();
    for dir in ["state/layers/top/tree", "state/layers/top/work", "source"] {
        std::fs::create_dir_all(arena.path(dir)).unwrap();
    }
    let mut first = spec(&arena, tier, &[PYTHON, "-S", "-c", &plant]);
    first.stack.top = Top::Disk("top".to_owned());
    let output = text_of(&run(&mut arena, &first));
    assert!(output.contains("HELD: to the end"), "{output}");
    fractal_jail::settle();
    crate::harness::clear_work(&arena);
    let write = script(r#"spill(f"{project}/direct/owned", "owned")"#);
    let mut second = spec(&arena, tier, &[PYTHON, "-S", "-c", &write]);
    second.stack.top = Top::Disk("top".to_owned());
    let placed = |at: &str, source| Placed { at: arena.path(at), source, writable: true };
    second.stack.mounts = vec![
        placed("project/mount/planted/deep", Some(arena.path("source"))),
        placed("project/scratch/planted/deep", None),
        placed("project/direct", None),
    ];
    second.label.push_str("-2");
    let streams = fractal_jail::Streams {
        stdin: fractal_jail::Input::Null,
        stdout: fractal_jail::Output::Capture(1 << 16),
        stderr: fractal_jail::Output::Capture(1 << 16),
        interactive: false,
        caller: None,
    };
    // Refusing to start is as good as not following the links.
    let _ = fractal_jail::run(&second, streams);
    fractal_jail::settle();
    let planted: Vec<_> = std::fs::read_dir(arena.path("outside")).unwrap().collect();
    assert!(planted.is_empty(), "made outside the layer: {planted:?}");
});
