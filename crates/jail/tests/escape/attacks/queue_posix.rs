//! A process of the host sends messages by a POSIX name.

use crate::harness::Attack;

attack!(
    posix_messages_of_the_host_cannot_be_received,
    Attack::python(
        r#"
queue = call(SYS_mq_open, answer.encode(), os.O_RDONLY | os.O_NONBLOCK, 0, None)
buffer = ctypes.create_string_buffer(9000)
call(SYS_mq_timedreceive, queue, buffer, 9000, None, None)
leak(buffer.value)
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
answer = os.path.basename(arena.rstrip("/"))
library = ctypes.CDLL("librt.so.1")
queue = library.mq_open(b"/" + answer.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
assert queue != -1
library.mq_send(queue, secret.encode(), len(secret), 0)
atexit.register(lambda: library.mq_unlink(b"/" + answer.encode()))
"#,
        );
    })
);
