//! The launcher has a secret in its environment that the run was not given.

use crate::arena::Arena;
use crate::harness::launcher;

trial!(the_launchers_environment_is_not_visible, |tier| {
    let text = r#"
import glob
found = 0
for path in glob.glob("/proc/[0-9]*/environ") + ["/proc/self/environ", "/proc/self/../1/environ",
                                                 "/proc/thread-self/environ"]:
    try:
        leak(slurp(path))
        found += 1
    except OSError as error:
        note(error)
leak(repr(dict(env)))
note(f"read {found}")
"#;
    let arena = Arena::new();
    let run = |mut command: std::process::Command| {
        let output = command.env("LAUNCHER_SECRET", &arena.secret).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    let output = run(launcher(&arena, tier, text));
    assert!(output.contains("HELD:"), "{output}");
    assert!(!output.contains(&arena.secret), "{output}");
    assert!(!output.contains("LAUNCHER_SECRET"), "{output}");
    // The same look outside finds it.
    let mut outside = std::process::Command::new(crate::arena::PYTHON);
    outside.args(["-S", "-c", "print(open('/proc/self/environ').read())"]);
    assert!(run(outside).contains(&arena.secret));
});
