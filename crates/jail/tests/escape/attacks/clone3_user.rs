//! The same through `clone3`, whose flags no filter can see.

use crate::harness::Attack;

attack!(
    clone3_does_not_pass_the_filter,
    Attack::python(
        r#"
NEWUSER = 0x10000000
args = ctypes.create_string_buffer(struct.pack("11Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0))
pid = call(SYS_clone3, args, 88)
if pid == 0:
    os._exit(0)
escaped("a child has a new namespace")
"#
    )
);
