//! A process of the host has a secret in its environment and memory.

use crate::harness::Attack;

attack!(
    processes_of_the_host_are_not_in_proc,
    Attack::python(
        r#"
for name in ("environ", "cmdline", "root" + target, "cwd/outside/secret"):
    try:
        leak(slurp(f"/proc/{victim}/{name}"))
    except OSError as error:
        note(error)
for entry in os.listdir("/proc"):
    if env.get("LISTED") == "visible":
        break
    if entry.isdigit() and int(entry) == victim:
        escaped("the victim is listed")
"#
    )
    .prepare(|arena| {
        arena.file("outside/secret", &arena.secret.clone());
        arena.victim("os.chdir(arena)");
    })
    .spec(|spec, _| {
        if spec.tier == fractal_model::Tier::Copied {
            crate::harness::notice("does not apply in copied: processes are listed, no more");
            spec.env.push(("LISTED".into(), "visible".into()));
        }
    })
);
