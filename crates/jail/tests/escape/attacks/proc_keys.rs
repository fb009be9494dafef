//! `/proc/keys` lists the descriptions of keys.

use crate::harness::Attack;

attack!(
    the_names_of_keys_cannot_be_read,
    Attack::python(
        r#"
leak(slurp("/proc/keys"))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
key = libc.syscall(SYS_add_key, b"user", secret.encode(), b"x", ctypes.c_long(1), ctypes.c_long(-4))
assert key != -1
atexit.register(lambda: libc.syscall(SYS_keyctl, ctypes.c_long(9), ctypes.c_long(key), ctypes.c_long(-4)))
"#,
        );
    })
    .not_in_copied("NOT HELD, names (not content) of the user's keys are visible in /proc")
);
