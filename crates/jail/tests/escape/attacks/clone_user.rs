//! The same through `clone`.

use crate::harness::Attack;

attack!(
    a_child_cannot_be_born_into_a_user_namespace,
    Attack::python(
        r#"
NEWUSER = 0x10000000
pid = call(SYS_clone, NEWUSER | signal.SIGCHLD, None, None, None, None)
if pid == 0:
    os._exit(0)
escaped("a child has a new namespace")
"#
    )
);
