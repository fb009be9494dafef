//! Kernel crypto by socket has a history of holes.

use crate::harness::Attack;

attack!(
    crypto_sockets_cannot_be_made,
    Attack::python(
        r#"
try:
    call(SYS_socket, 38, socket.SOCK_SEQPACKET, 0)
except OSError as error:
    if error.errno == errno.EAFNOSUPPORT and not inside:
        absent("this family of sockets")
    raise
escaped("have a socket")
"#
    )
);
