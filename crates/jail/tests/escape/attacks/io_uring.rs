//! Calls through a ring pass no filter.

use crate::harness::Attack;

attack!(
    rings_cannot_be_made,
    Attack::python(
        r#"
call(SYS_io_uring_setup, 4, ctypes.create_string_buffer(120))
escaped("have a ring")
"#
    )
);
