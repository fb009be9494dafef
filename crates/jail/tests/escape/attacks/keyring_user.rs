//! The user's keyring belongs to a user id, not to a namespace.

use crate::harness::Attack;

attack!(
    the_users_keyring_cannot_be_read,
    Attack::python(
        r#"
LINK, SEARCH, READ = 8, 10, 11
USER, PROCESS = -4, -2
call(SYS_keyctl, LINK, USER, PROCESS)
key = call(SYS_keyctl, SEARCH, PROCESS, b"user", answer.encode(), 0)
buffer = ctypes.create_string_buffer(100)
call(SYS_keyctl, READ, key, buffer, 100)
leak(buffer.value)
"#
    )
    .prepare(|arena| {
        arena.victim(crate::attacks::KEY_IN_USER_KEYRING);
    })
);
