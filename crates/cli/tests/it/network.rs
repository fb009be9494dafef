//! `--net allow:…` against a web server, in a network that exists only for the
//! test: one address from the range for documentation, and a name for it.

use crate::world::{Answer, FRACTAL, World, able, is_root};

/// Makes the network, serves the project on it and runs a script there.
const NETWORK: &str = r#"
set -e
ip link set lo up
ip addr add 203.0.113.5/32 dev lo
printf '127.0.0.1 localhost inwards.test\n203.0.113.5 shop.test www.shop.test other.test\n' > hosts
mount --bind hosts /etc/hosts
echo 'passwd: files
hosts: files' > nsswitch
mount --bind nsswitch /etc/nsswitch.conf
python3 -m http.server --bind 0.0.0.0 8080 >/dev/null 2>&1 &
server=$!
trap 'kill $server' EXIT
for _ in $(seq 200); do
    python3 -c 'import socket; socket.create_connection(("203.0.113.5", 8080), 1)' 2>/dev/null && break
    sleep 0.05
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
