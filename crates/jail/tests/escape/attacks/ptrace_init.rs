//! The supervisor inside is traced; its control channel would be ours.

use crate::harness::Attack;

attack!(
    the_supervisor_cannot_be_traced,
    Attack::python(
        r#"
PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_DETACH = 16, 0x4206, 17
parent = os.getppid()
tries(
    lambda: call(SYS_ptrace, PTRACE_SEIZE, parent, None, None),
    lambda: call(SYS_ptrace, PTRACE_ATTACH, parent, None, None),
)
escaped("traced the supervisor")
"#
    )
);
