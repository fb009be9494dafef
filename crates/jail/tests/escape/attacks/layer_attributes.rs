//! A first run writes the marks that overlayfs keeps in attributes, so that
//! the second one shows a hidden directory under another name.

use crate::arena::{Arena, PYTHON};
use crate::harness::{run, script, spec, text_of};
use fractal_jail::Top;

trial!(marks_of_the_overlay_cannot_be_forged, |tier| {
    let forge = script(
        r#"
os.mkdir("door")
spill("file", "")
for prefix in ("trusted", "user"):
    for name, value in (("redirect", f"{arena}/home/.ssh"), ("redirect", ".ssh"), ("opaque", "y"),
                        ("metacopy", ""), ("origin", "")):
        for path in ("door", "file"):
            try:
                os.setxattr(path, f"{prefix}.overlay.{name}", value.encode())
                note(f"set {prefix}.overlay.{name}")
            except OSError as error:
                note(error)
"#,
    );
    let look = script(
        r#"
for path in ("door/id_rsa", "file", f"{arena}/home/.ssh/id_rsa"):
    try:
        leak(slurp(path))
    except OSError as error:
        note(error)
leak(os.listdir("door"))
"#,
    );
    let mut arena = Arena::new();
    arena.secret_file("home/.ssh/id_rsa");
    for dir in ["state/layers/top/tree", "state/layers/top/work"] {
        std::fs::create_dir_all(arena.path(dir)).unwrap();
    }
    for (number, text) in [forge, look].iter().enumerate() {
        let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", text]);
        spec.stack.top = Top::Disk("top".to_owned());
        spec.hidden.push(arena.path("home/.ssh"));
        spec.label.push_str(&format!("-{number}"));
        let output = text_of(&run(&mut arena, &spec));
        fractal_jail::settle();
        crate::harness::clear_work(&arena);
        assert!(output.contains("HELD: to the end"), "{output}");
        assert!(!output.contains(&arena.secret) && !output.contains("['id_rsa']"), "{output}");
    }
});
