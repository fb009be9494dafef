//! A fresh sysfs is mounted, without the masks of the first.

use crate::harness::{Attack, Control};

attack!(
    a_fresh_sysfs_cannot_be_mounted,
    Attack::python(
        r#"
os.makedirs("here")
call(SYS_mount, b"none", b"here", b"sysfs", 0, None)
escaped(os.listdir("here")[:5])
"#
    )
    .control(Control::Root)
);
