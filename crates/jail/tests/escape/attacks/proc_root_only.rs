//! Files that the kernel shows to root only: maps of the host's memory.

use crate::harness::{Attack, Control};

attack!(
    what_only_root_may_read_in_proc_is_closed,
    Attack::python(
        r#"
for name in ("slabinfo", "vmallocinfo", "pagetypeinfo", "kpagecount", "kpageflags", "kpagecgroup"):
    try:
        data = slurp(f"/proc/{name}")
    except OSError as error:
        note(f"{name}: {error}")
        continue
    if data:
        escaped(f"read {name}")
"#
    )
    .control(Control::Root)
    .not_in_copied_as_root("NOT HELD, the kernel's statistics for root are visible in /proc")
);
