//! The magic number is wrong on purpose: only the way there is tried.

use crate::harness::{Attack, Control};

attack!(
    the_machine_cannot_be_rebooted,
    Attack::python(
        r#"
reach(SYS_reboot, 0, 0, 0, None)
"#
    )
    .control(Control::Root)
);
