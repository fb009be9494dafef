//! The newer calls for mounts, which older filters forget.

use crate::harness::{Attack, Control};

attack!(
    the_new_mount_calls_are_closed_too,
    Attack::python(
        r#"
OPEN_TREE_CLONE, FSCONFIG_CREATE = 1, 6
def fresh():
    fd = call(SYS_fsopen, b"tmpfs", 0)
    call(SYS_fsconfig, fd, FSCONFIG_CREATE, None, None, 0)
    return call(SYS_fsmount, fd, 0, 0)
tries(
    lambda: call(SYS_open_tree, -100, b"/", OPEN_TREE_CLONE),
    lambda: call(467, -100, b"/", OPEN_TREE_CLONE, None, 0),
    fresh,
)
escaped("have a detached mount")
"#
    )
    .control(Control::Root)
);
