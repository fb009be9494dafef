//! A module is code in the kernel; this one is empty.

use crate::harness::{Attack, Control};

attack!(
    modules_cannot_be_loaded,
    Attack::python(
        r#"
reach(SYS_init_module, None, 0, b"")
reach(SYS_finit_module, -1, b"", 0)
reach(SYS_delete_module, b"no-such-module", 0o4000)
"#
    )
    .control(Control::Root)
);
