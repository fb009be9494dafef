//! Performance counters watch the whole machine.

use crate::harness::{Attack, Control};

attack!(
    counters_cannot_be_opened,
    Attack::python(
        r#"
attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0), 128)
tries(
    lambda: call(SYS_perf_event_open, attributes, -1, 0, -1, 0),
    lambda: call(SYS_perf_event_open, attributes, 0, -1, -1, 0),
)
escaped("opened a counter")
"#
    )
    .control(Control::Root)
);
