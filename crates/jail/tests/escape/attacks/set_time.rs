//! Neither time nor zone is given: only the right to set them is tried.

use crate::harness::{Attack, Control};

attack!(
    the_clock_cannot_be_set,
    Attack::python(
        r#"
reach(SYS_settimeofday, None, None)
"#
    )
    .control(Control::Root)
);
