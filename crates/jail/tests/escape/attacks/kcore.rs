//! `/proc/kcore` is the memory of the kernel.

use crate::harness::{Attack, Control};

attack!(
    kernel_memory_cannot_be_read,
    Attack::python(
        r#"
try:
    data = slurp("/proc/kcore")
except FileNotFoundError:
    absent("kcore") if not inside else held("none here")
if data:
    escaped("read kernel memory")
"#
    )
    .control(Control::Root)
);
