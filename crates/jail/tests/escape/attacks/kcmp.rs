//! Comparing kernel pointers helps exploits.

use crate::harness::Attack;

attack!(
    kernel_pointers_cannot_be_compared,
    Attack::python(
        r#"
call(SYS_kcmp, os.getpid(), os.getpid(), 1, 0, 0)
escaped("compared")
"#
    )
);
