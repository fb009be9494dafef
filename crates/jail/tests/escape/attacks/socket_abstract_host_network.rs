//! An abstract name again, when the run was given the host's network.

use crate::harness::Attack;
use fractal_model::Network;

attack!(
    the_hosts_network_does_not_bring_its_abstract_sockets,
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
    .spec(|spec, _| spec.network = Network::Host)
);
