//! A process of the host listens on the loopback address.

use crate::harness::Attack;

attack!(
    a_host_tcp_listener_cannot_be_reached,
    Attack::python(
        r#"
port = int(answer)
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"),
                     (socket.AF_INET6, "::ffff:127.0.0.1")):
    try:
        peer = socket.socket(family)
        peer.settimeout(3)
        peer.connect((host, port))
        leak(peer.recv(100))
    except OSError as error:
        note(f"{host}: {error}")
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
answer = listener.getsockname()[1]
serve(listener)
"#,
        );
    })
);
