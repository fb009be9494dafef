//! A cgroup hierarchy of version 1 is mounted for its `release_agent`.

use crate::harness::{Attack, Control};

attack!(
    a_cgroup_hierarchy_cannot_be_mounted,
    Attack::python(
        r#"
os.makedirs("here")
tries(
    lambda: call(SYS_mount, b"none", b"here", b"cgroup", 0, b"memory"),
    lambda: call(SYS_mount, b"none", b"here", b"cgroup", 0, b"pids"),
    lambda: call(SYS_mount, b"none", b"here", b"cgroup", 0, b"cpu,cpuacct"),
    lambda: call(SYS_mount, b"none", b"here", b"cgroup2", 0, None),
)
escaped(os.listdir("here")[:5])
"#
    )
    .control(Control::Root)
);
