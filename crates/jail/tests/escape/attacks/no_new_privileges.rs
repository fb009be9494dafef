//! Without it a set-uid program would be one.

use crate::harness::Attack;

attack!(
    the_promise_of_no_new_privileges_stands,
    Attack::python(
        r#"
PR_SET_NO_NEW_PRIVS = 38
libc.prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
status = slurp("/proc/self/status").decode()
if "NoNewPrivs:\t1" not in status or "Seccomp:\t2" not in status:
    escaped(status)
"#
    )
);
