//! A process of the host listens on a socket in /tmp.

use crate::harness::Attack;

attack!(
    a_host_unix_socket_in_tmp_cannot_be_reached,
    Attack::python(
        r#"
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(5)
peer.connect(f"{arena}/outside/socket")
leak(peer.recv(100))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
path = f"{arena}/outside/socket"
os.makedirs(os.path.dirname(path), exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
serve(listener)
"#,
        );
    })
);
