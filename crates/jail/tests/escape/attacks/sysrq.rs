//! `sysrq-trigger` reboots the machine.

use crate::harness::{Attack, Control};

attack!(
    sysrq_cannot_be_triggered,
    Attack::python(
        r#"
try:
    os.open("/proc/sysrq-trigger", os.O_WRONLY)
except FileNotFoundError:
    absent("sysrq") if not inside else held("none here")
escaped("could press sysrq")
"#
    )
    .control(Control::Root)
);
