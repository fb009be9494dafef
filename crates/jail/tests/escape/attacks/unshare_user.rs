//! A user namespace of one's own gives all capabilities back.

use crate::harness::Attack;

attack!(
    a_user_namespace_cannot_be_unshared,
    Attack::python(
        r#"
NEWUSER, NEWNS, NEWNET, NEWPID = 0x10000000, 0x20000, 0x40000000, 0x20000000
tries(
    lambda: call(SYS_unshare, NEWUSER | NEWNS),
    lambda: call(SYS_unshare, NEWUSER),
    lambda: call(SYS_unshare, NEWUSER | 1 << 40),
    lambda: call(SYS_unshare, NEWNS),
    lambda: call(SYS_unshare, NEWNET),
    lambda: call(SYS_unshare, NEWPID),
)
escaped("have a new namespace")
"#
    )
);
