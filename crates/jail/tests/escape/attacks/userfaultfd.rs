//! Held-up page faults win races in the kernel.

use crate::harness::Attack;

attack!(
    page_faults_cannot_be_held_up,
    Attack::python(
        r#"
tries(lambda: call(SYS_userfaultfd, 0), lambda: call(SYS_userfaultfd, 1))
escaped("have a userfaultfd")
"#
    )
);
