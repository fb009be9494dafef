//! Read-only mounts are made writable again.

use crate::harness::{Attack, Control};

attack!(
    read_only_mounts_stay_read_only,
    Attack::python(
        r#"
MS_REMOUNT, MS_BIND = 32, 4096
for place in (f"{arena}/outside", "/sys", "/proc/sys", "/proc", "/", "/usr"):
    for flags in (MS_REMOUNT | MS_BIND, MS_REMOUNT):
        if place != "/" and flags == MS_REMOUNT:
            continue
        try:
            call(SYS_mount, None, place.encode(), None, MS_REMOUNT | MS_BIND, None)
            escaped(f"remounted {place}")
        except OSError as error:
            note(f"{place}: {error}")
attributes = struct.pack("QQQQ", 0, 1, 0, 0)
call(SYS_mount_setattr, -100, f"{arena}/outside".encode(), 0, attributes, len(attributes))
escaped("cleared read-only")
"#
    )
    .spec(|spec, arena| spec.read_only.push(arena.path("outside")))
    .control(Control::Root)
);
