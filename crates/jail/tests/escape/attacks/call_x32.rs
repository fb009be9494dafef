//! x32 calls carry a bit that hides their number.

use crate::harness::Attack;

#[cfg(target_arch = "x86_64")]
attack!(
    calls_with_x32_numbers_do_not_pass_the_filter,
    Attack::python(
        r#"
try:
    call(0x40000000 | SYS_unshare, 0x10000000)
except OSError as error:
    if error.errno == errno.ENOSYS and not inside:
        absent("x32 calls")
    raise
escaped("have a user namespace")
"#
    )
);
