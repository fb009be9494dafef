//! The network is configured anew over netlink.

use crate::harness::{Attack, Control};

attack!(
    the_network_cannot_be_configured,
    Attack::python(
        r#"
RTM_NEWLINK, REQUEST_ACK, IFF_UP = 16, 5, 1
# Takes the loopback interface down: everything inside still relies on it.
body = struct.pack("BxHiII", 0, 0, 1, 0, IFF_UP)
head = struct.pack("IHHII", 16 + len(body), RTM_NEWLINK, REQUEST_ACK, 1, 0)
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
link.send(head + body)
reply = link.recv(4096)
code = -struct.unpack("i", reply[16:20])[0]
if code:
    raise OSError(code, os.strerror(code))
escaped("took loopback down")
"#
    )
    .control(Control::RootIn(&["--net"]))
);
