//! A file becomes memory of the kernel.

use crate::harness::{Attack, Control};

attack!(
    swap_cannot_be_added,
    Attack::python(
        r#"
reach(SYS_swapon, b"/nonexistent/file", 0)
"#
    )
    .control(Control::Root)
);
