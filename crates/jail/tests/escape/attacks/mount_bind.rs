//! A bind mount shows a hidden directory's parent somewhere else.

use crate::harness::{Attack, Control};

attack!(
    bind_mounts_cannot_be_made,
    Attack::python(
        r#"
MS_BIND, MS_REC, MS_MOVE = 4096, 16384, 8192
os.makedirs("here")
tries(
    lambda: call(SYS_mount, f"{arena}/home".encode(), b"here", None, MS_BIND, None),
    lambda: call(SYS_mount, b"/", b"here", None, MS_BIND | MS_REC, None),
    lambda: call(SYS_mount, b"/dev", b"here", None, MS_MOVE, None),
)
escaped("bound")
"#
    )
    .control(Control::Root)
);
