//! A process of the host shares memory by a System V key.

use crate::harness::Attack;

attack!(
    shared_memory_of_the_host_cannot_be_attached,
    Attack::python(
        r#"
shm = call(SYS_shmget, int(answer), 4096, 0)
address = call(SYS_shmat, shm, None, 0)
leak(ctypes.string_at(address))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
answer = 1 + int(secret[-6:], 16)
libc.shmat.restype = ctypes.c_void_p
shm = libc.shmget(answer, 4096, 0o1666)
ctypes.memmove(libc.shmat(shm, None, 0), secret.encode() + b"\0", len(secret) + 1)
atexit.register(lambda: libc.shmctl(shm, 0, None))
"#,
        );
    })
);
