//! A process of the host listens on a socket in the home directory, like an ssh agent's.

use crate::harness::Attack;

attack!(
    a_host_unix_socket_in_home_cannot_be_reached,
    Attack::python(
        r#"
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(5)
peer.connect(f"{arena}/home/.agent/socket")
leak(peer.recv(100))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
path = f"{arena}/home/.agent/socket"
os.makedirs(os.path.dirname(path), exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
serve(listener)
"#,
        );
    })
);
