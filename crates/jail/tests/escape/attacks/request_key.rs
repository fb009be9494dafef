//! The kernel is asked to find, or make, a key by its name.

use crate::harness::Attack;

attack!(
    keys_cannot_be_requested,
    Attack::python(
        r#"
add = lambda: call(SYS_add_key, b"user", b"planted", b"x", 1, -2)
call(SYS_keyctl, 8, -4, -2) if not inside else None
tries(lambda: call(SYS_request_key, b"user", answer.encode(), None, 0), add)
escaped("have a key")
"#
    )
    .prepare(|arena| {
        arena.victim(crate::attacks::KEY_IN_USER_KEYRING);
    })
);
