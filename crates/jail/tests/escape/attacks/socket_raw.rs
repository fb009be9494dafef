//! A raw socket says what it likes.

use crate::harness::{Attack, Control};

attack!(
    raw_sockets_cannot_be_made,
    Attack::python(
        r#"
try:
    call(SYS_socket, socket.AF_INET, socket.SOCK_RAW, 1)
except OSError as error:
    if error.errno == errno.EAFNOSUPPORT and not inside:
        absent("this family of sockets")
    raise
escaped("have a socket")
"#
    )
    .control(Control::Root)
);
