//! All capabilities are asked for; package managers need a few only.

use crate::harness::{Attack, Control};

attack!(
    capabilities_beyond_the_list_cannot_be_had,
    Attack::python(
        r#"
ALLOWED = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31))
header = struct.pack("Ii", 0x20080522, 0)
for low in (0xFFFFFFFF, ALLOWED | 1 << 21, ALLOWED | 1 << 19, ALLOWED | 1 << 12):
    try:
        call(SYS_capset, header, struct.pack("6I", low, low, 0, 0x1FF, 0x1FF, 0))
    except OSError as error:
        note(error)
for line in slurp("/proc/self/status").decode().splitlines():
    # A user without privileges cannot lower it either; no new privileges are
    # to be had by `exec`, so it bounds nothing.
    if line.startswith("CapBnd") and "INSIDE" in env and os.getuid():
        continue
    if line.startswith("Cap") and int(line.split()[1], 16) & ~ALLOWED:
        escaped(line)
"#
    )
    .control(Control::Root)
);
