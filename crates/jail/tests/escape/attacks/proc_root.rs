//! `/proc/<pid>/root` and `cwd` lead to another process's view of files.

use crate::arena::canary_sings;
use crate::harness::Attack;

attack!(
    proc_root_links_lead_nowhere_else,
    Attack::python(
        r#"
parent = os.getppid()
for root in [f"/proc/{parent}/root", f"/proc/{parent}/cwd", "/proc/self/root", f"/proc/{parent}/root/.."]:
    try:
        leak(slurp(f"{root}/{target}"))
        leak(slurp(f"{root}/../../../../../../../..{target}"))
        spill(f"{root}/{arena}/outside/canary", "owned")
    except OSError as error:
        note(error)
"#
    )
    .prepare(|arena| {
        arena.canary("outside/canary");
        arena.secret_file("state/secret");
    })
    .verdict(|arena| canary_sings(&arena.path("outside/canary")))
);
