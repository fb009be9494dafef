//! One end of a pair of datagram sockets sends to a socket of the host.

use crate::harness::Attack;

attack!(
    a_datagram_pair_does_not_reach_host_sockets,
    Attack::python(
        r#"
one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.sendto(b"owned", f"{arena}/outside/log")
time.sleep(0.2)
"#
    )
    .prepare(|arena| {
        arena.victim(
            r#"
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind(f"{arena}/outside/log")
def watch():
    log.recv(10)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
"#,
        );
    })
);
