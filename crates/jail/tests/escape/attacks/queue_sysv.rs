//! A process of the host sends messages by a System V key.

use crate::harness::Attack;

attack!(
    messages_of_the_host_cannot_be_received,
    Attack::python(
        r#"
queue = call(SYS_msgget, int(answer), 0)
buffer = ctypes.create_string_buffer(200)
call(SYS_msgrcv, queue, buffer, 190, 0, 0o4000)
leak(buffer.raw[8:])
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
import struct
answer = 1 + int(secret[-6:], 16)
queue = libc.msgget(answer, 0o1666)
libc.msgsnd(queue, struct.pack("q", 1) + secret.encode(), len(secret), 0)
atexit.register(lambda: libc.msgctl(queue, 0, None))
"#,
        );
    })
);
