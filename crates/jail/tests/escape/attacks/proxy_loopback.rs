//! The proxy stands on the host: asked nicely, it would connect to itself.

use crate::harness::{Attack, Control};
use fractal_model::Network;

attack!(
    the_proxy_does_not_lead_to_the_hosts_loopback,
    Attack::python(
        r#"
port, replies = int(answer), 0
for host in ("127.0.0.1", "localhost", "127.1", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433",
             "169.254.169.254", "LOCALHOST."):
    for request in (f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n",
                    f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"):
        try:
            peer = socket.create_connection(("127.0.0.1", int(env["PROXY"])), timeout=3)
            peer.sendall(request.encode())
            reply = peer.recv(200)
            replies += bool(reply)
            leak(reply + peer.recv(200))
        except OSError as error:
            note(f"{host}: {error}")
if inside and not replies:
    raise RuntimeError("nobody spoke to the proxy")
"#
    )
    .prepare(|arena| {
        arena.give("PROXY", fractal_jail::proxy::PORT);
        arena.victim(
            r#"
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
answer = listener.getsockname()[1]
serve(listener)
"#,
        );
    })
    .spec(|spec, _| {
        let hosts = ["127.0.0.1", "localhost", "127.1", "0.0.0.0", "::1", "[::1]", "2130706433"];
        spec.network = Network::Allow(hosts.into_iter().map(Into::into).collect());
    })
    .control(Control::Never("there is no proxy outside"))
    .not_in_copied("single hosts cannot be allowed, the run is refused")
);
