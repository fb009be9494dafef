//! A process of the host listens on a socket in the project.

use crate::harness::Attack;

attack!(
    a_host_unix_socket_in_the_project_cannot_be_reached,
    Attack::python(
        r#"
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(5)
peer.connect(f"{arena}/project/socket")
leak(peer.recv(100))
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
path = f"{arena}/project/socket"
os.makedirs(os.path.dirname(path), exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
serve(listener)
"#,
        );
    })
);
