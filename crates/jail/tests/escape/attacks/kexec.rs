//! Another kernel is loaded.

use crate::harness::{Attack, Control};

attack!(
    another_kernel_cannot_be_loaded,
    Attack::python(
        r#"
try:
    call(SYS_kexec_load, 0, 17, None, 0)
except OSError as error:
    if error.errno == errno.EPERM:
        raise
    if error.errno == errno.ENOSYS and not inside:
        absent("kexec")
escaped("the call reached the kernel")
"#
    )
    .control(Control::Root)
);
