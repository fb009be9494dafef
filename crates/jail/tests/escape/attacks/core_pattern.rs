//! `core_pattern` names a program that the kernel starts as root outside.

use crate::harness::{Attack, Control};

attack!(
    core_pattern_cannot_be_written,
    Attack::python(
        r#"
os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)
escaped("could write core_pattern")
"#
    )
    .control(Control::Root)
);
