//! The supervisor inside was born with the launcher's environment.

use crate::harness::Attack;

attack!(
    the_environment_of_the_supervisor_cannot_be_read,
    Attack::python(
        r#"
if slurp(f"/proc/{os.getppid()}/environ"):
    escaped("read the supervisor's environment")
"#
    )
);
