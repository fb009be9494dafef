//! Programs for the kernel's own machine.

use crate::harness::{Attack, Control};

attack!(
    kernel_programs_cannot_be_loaded,
    Attack::python(
        r#"
attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1), 128)
call(SYS_bpf, 0, attributes, 128)
escaped("made a map")
"#
    )
    .control(Control::Root)
);
