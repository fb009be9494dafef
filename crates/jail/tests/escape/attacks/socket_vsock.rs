//! A vsock talks to the hypervisor.

use crate::harness::Attack;

attack!(
    vsock_sockets_cannot_be_made,
    Attack::python(
        r#"
try:
    call(SYS_socket, socket.AF_VSOCK, socket.SOCK_STREAM, 0)
except OSError as error:
    if error.errno == errno.EAFNOSUPPORT and not inside:
        absent("this family of sockets")
    raise
escaped("have a socket")
"#
    )
);
