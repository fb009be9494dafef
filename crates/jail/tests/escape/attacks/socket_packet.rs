//! A packet socket hears everybody.

use crate::harness::{Attack, Control};

attack!(
    packet_sockets_cannot_be_made,
    Attack::python(
        r#"
try:
    call(SYS_socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
except OSError as error:
    if error.errno == errno.EAFNOSUPPORT and not inside:
        absent("this family of sockets")
    raise
escaped("have a socket")
"#
    )
    .control(Control::Root)
);
