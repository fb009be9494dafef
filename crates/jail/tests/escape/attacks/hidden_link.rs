//! A hidden path is a link, as dotfile managers make them. A first run bends
//! the link, so that the second one hides something else.

use crate::arena::{Arena, PYTHON};
use crate::harness::{clear_work, run, script, spec, text_of};
use fractal_jail::Top;

const BEND: &str = r#"
for attempt in (
    lambda: leak(slurp(f"{arena}/home/.ssh/id_rsa")),
    lambda: leak(slurp(f"{arena}/outside/keys/id_rsa")),
    lambda: os.unlink(f"{arena}/home/.ssh"),
    lambda: os.symlink("/usr/games", f"{arena}/home/.ssh"),
):
    try:
        attempt()
    except OSError as error:
        note(error)
"#;

const LOOK: &str = r#"
leak(slurp(f"{arena}/outside/keys/id_rsa"))
"#;

trial!(bending_a_hidden_link_does_not_uncover_its_target, |tier| {
    let mut arena = Arena::new();
    arena.secret_file("outside/keys/id_rsa");
    std::os::unix::fs::symlink("../outside/keys", arena.path("home/.ssh")).unwrap();
    for dir in ["state/layers/top/tree", "state/layers/top/work"] {
        std::fs::create_dir_all(arena.path(dir)).unwrap();
    }
    for (number, text) in [BEND, LOOK].into_iter().enumerate() {
        let mut spec = spec(&arena, tier, &[PYTHON, "-S", "-c", &script(text)]);
        spec.stack.top = Top::Disk("top".to_owned());
        spec.hidden.push(arena.path("home/.ssh"));
        spec.label.push_str(&format!("-{number}"));
        let output = text_of(&run(&mut arena, &spec));
        fractal_jail::settle();
        clear_work(&arena);
        assert!(output.contains("HELD:"), "{output}");
        assert!(!output.contains(&arena.secret), "run {number}: {output}");
    }
});
