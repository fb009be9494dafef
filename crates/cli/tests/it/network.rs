//! `--net allow:…` against web servers, in networks that exist only for the
//! test: one for this machine, one for the world, each with an address from the
//! range for documentation, and names for them.

use crate::world::{Answer, FRACTAL, World, able, is_root};

/// Makes the networks, serves the project on both and runs a script in the
/// first: whatever is at 203.0.113.1 is this machine, 203.0.113.5 is not.
const NETWORK: &str = r#"
set -e
ip link set lo up
printf '%s\n' '127.0.0.1 localhost inwards.test' '203.0.113.1 own.test' \
    '203.0.113.5 shop.test www.shop.test other.test' '169.254.169.254 metadata.test' > hosts
mount --bind hosts /etc/hosts
echo 'passwd: files
hosts: files' > nsswitch
mount --bind nsswitch /etc/nsswitch.conf
cat > serve.py <<'END'
import http.server, urllib.parse
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith("/go/"):
            return super().do_GET()
        self.send_response(302)
        self.send_header("Location", urllib.parse.unquote(self.path[4:]))
        self.end_headers()
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
END
unshare --net python3 serve.py >/dev/null 2>&1 &
world=$!
python3 serve.py >/dev/null 2>&1 &
near=$!
trap 'kill $world $near' EXIT
until [ "$(readlink /proc/$world/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
ip link add near type veth peer name far
ip link set far netns $world
nsenter -t $world -n ip addr add 203.0.113.5/24 dev far
nsenter -t $world -n ip link set far up
ip addr add 203.0.113.1/24 dev near
ip link set near up
for place in 203.0.113.5 203.0.113.1; do
    for _ in $(seq 200); do
        python3 -c "import socket; socket.create_connection(('$place', 8080), 1)" 2>/dev/null && break
        sleep 0.05
    done
done
"#;

fn online(world: &World, script: &str) -> Answer {
    let script = format!("{NETWORK}\n{script}");
    let mut command = world.command("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script]).env("FRACTAL", FRACTAL);
    Answer::of(&mut command)
}

/// Fetches with whatever proxy the environment names, and prints the text or
/// why not.
const FETCH: &str = r#"
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode().strip())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode().strip())
except OSError as error:
    print("unreachable")
"#;

fn check(allow: &str, url: &str, expect: &str) {
    if !able() || !is_root() {
        return eprintln!("skipped: no root, who can make a network for the test");
    }
    let world = World::new();
    world.write("page.txt", "goods\n");
    world.write("fetch.py", FETCH);
    let script = format!("\"$FRACTAL\" run -q --rm --net {allow} -- python3 fetch.py {url}");
    let answer = online(&world, &script);
    assert_eq!(answer.status, 0, "{}{}", answer.out, answer.err);
    assert!(answer.out.trim().starts_with(expect), "{allow} {url}: {}{}", answer.out, answer.err);
}

#[test]
fn a_host_on_the_list_is_reached() {
    check("allow:shop.test", "http://shop.test:8080/page.txt", "goods");
}

#[test]
fn a_host_that_is_not_on_the_list_is_refused() {
    check("allow:shop.test", "http://other.test:8080/page.txt", "403");
}

#[test]
fn a_name_that_leads_inwards_is_refused() {
    check("allow:inwards.test", "http://inwards.test:8080/page.txt", "502");
}

#[test]
fn an_address_of_this_machine_is_refused_whatever_its_name() {
    check("allow:own.test", "http://own.test:8080/page.txt", "502");
    check("allow:203.0.113.1", "http://203.0.113.1:8080/page.txt", "502");
}

#[test]
fn metadata_services_and_odd_spellings_of_this_machine_are_refused() {
    check("allow:metadata.test", "http://metadata.test/latest", "502");
    for host in ["169.254.169.254", "127.1", "2130706433", "0x7f000001", "0"] {
        check(&format!("allow:{host}"), &format!("http://{host}:8080/page.txt"), "502");
    }
    for host in ["::1", "::ffff:127.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::"] {
        check(&format!("allow:{host}"), &format!("http://[{host}]:8080/page.txt"), "502");
    }
}

#[test]
fn a_redirect_leads_no_further_than_the_list() {
    let go = |to: &str| format!("http://shop.test:8080/go/{to}");
    check("allow:shop.test", &go("http:%2F%2Fshop.test:8080%2Fpage.txt"), "goods");
    check("allow:shop.test", &go("http:%2F%2Fother.test:8080%2Fpage.txt"), "403");
    // That is the sandbox's own loopback, where nobody listens.
    check("allow:shop.test", &go("http:%2F%2F127.0.0.1:8080%2Fpage.txt"), "unreachable");
    check("allow:shop.test,inwards.test", &go("http:%2F%2Finwards.test:8080%2Fpage.txt"), "502");
    check("allow:shop.test,metadata.test", &go("http:%2F%2Fmetadata.test%2Flatest"), "502");
}

#[test]
fn without_a_list_nothing_is_reached_and_with_the_host_all() {
    check("none", "http://203.0.113.5:8080/page.txt", "unreachable");
    check("host", "http://203.0.113.5:8080/page.txt", "goods");
}

#[test]
fn the_proxy_cannot_be_passed_by() {
    if !able() || !is_root() {
        return eprintln!("skipped: no root, who can make a network for the test");
    }
    let world = World::new();
    let direct = "import socket\ntry:\n    socket.create_connection((\"203.0.113.5\", 8080), 3)\n    \
                  print(\"out\")\nexcept OSError:\n    print(\"in\")\n";
    world.write("direct.py", direct);
    let script = "\"$FRACTAL\" run -q --rm --net allow:shop.test -- python3 direct.py";
    assert_eq!(online(&world, script).out, "in\n");
}
