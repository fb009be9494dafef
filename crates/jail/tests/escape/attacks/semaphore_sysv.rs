//! A semaphore of the host is set, and its owners wait for ever.

use crate::harness::Attack;

attack!(
    semaphores_of_the_host_cannot_be_set,
    Attack::python(
        r#"
SETVAL = 16
semaphore = call(SYS_semget, int(answer), 1, 0)
call(SYS_semctl, semaphore, 0, SETVAL, 0)
escaped("set a semaphore of the host")
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
answer = 1 + int(secret[-6:], 16)
semaphore = libc.semget(answer, 1, 0o1666)
atexit.register(lambda: libc.semctl(semaphore, 0, 0))
"#,
        );
    })
);
