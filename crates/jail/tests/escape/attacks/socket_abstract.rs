//! A process of the host listens on an abstract name, which has no file.

use crate::harness::Attack;

attack!(
    a_host_abstract_socket_cannot_be_reached,
    Attack::python(
        r#"
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(5)
peer.connect("\0" + answer)
leak(peer.recv(100))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
answer = os.path.basename(arena.rstrip("/"))
listener = socket.socket(socket.AF_UNIX)
listener.bind("\0" + answer)
serve(listener)
"#,
        );
    })
);
