"""What a hostile tenant, a hostile program inside and an impatient client do."""

import json
import socket
import struct
import threading
import time
import urllib.parse
import urllib.request

import pytest
from e2b import CommandExitException, Sandbox, TimeoutException
from e2b.exceptions import AuthenticationException, RateLimitException, SandboxException


def ask(server, path, headers, data=None, method=None, seconds=20):
    request = urllib.request.Request(server.url + path, headers=headers, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def envelope(message):
    text = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(text)) + text


def headers_of(box, port="49983"):
    return {**box.connection_config.sandbox_headers, "E2b-Sandbox-Id": box.sandbox_id,
            "E2b-Sandbox-Port": port}


@pytest.mark.parametrize("path,port,body", [
    ("/process.Process/Start", "49983", envelope({"process": {"cmd": "/bin/id"}})),
    ("/filesystem.Filesystem/ListDir", "49983", b'{"path":"/"}'),
    ("/execute", "49999", b'{"code":"1"}'),
    ("/", "8000", None), ("/files", "8000", None), ("/health", "49983", None)])
def test_a_signed_link_opens_nothing_but_its_file(box, server, path, port, body):
    query = urllib.parse.urlparse(box.upload_url("/home/user/up")).query
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": port,
               "Authorization": "Basic cm9vdDo="}
    for token in ({}, {"X-Access-Token": "wrong"}):
        status, _ = ask(server, f"{path}?{query}", {**headers, **token}, body)
        assert status == 401


def test_a_link_of_one_sandbox_is_none_of_another(box, fresh, server):
    box.files.write("/home/user/secret", "of the box")
    query = urllib.parse.urlparse(box.download_url("/home/user/secret")).query
    status, text = ask(server, f"/files?{query}", {"E2b-Sandbox-Id": fresh.sandbox_id})
    assert status == 401 and b"of the box" not in text


def test_who_may_only_look_gets_no_token(server):
    server.fractal("key", "create", "--role", "runner", "--name", "worker", "--tenant", "team")
    rows = {}
    for role in ("runner", "viewer"):
        out = server.fractal("--json", "key", "create", "--role", role, "--tenant", "team")
        rows[role] = json.loads(out)["secret"]
    sandbox = Sandbox.create(api_key=rows["runner"])
    try:
        look = lambda role: json.loads(ask(
            server, f"/sandboxes/{sandbox.sandbox_id}", {"X-API-Key": rows[role]})[1])
        assert look("runner")["envdAccessToken"]
        assert "envdAccessToken" not in look("viewer")
        assert ask(server, f"/sandboxes/{sandbox.sandbox_id}/connect", {"X-API-Key": rows["viewer"]},
                   b"{}")[0] == 403
    finally:
        sandbox.kill()


def test_a_program_inside_that_stands_still_stops_nobody_else(box, fresh, server):
    fresh.commands.run("pkill -STOP -x fractal", user="root", background=True)
    time.sleep(0.5)
    host, port = server.url.removeprefix("http://").split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers_of(fresh).items())
    stuck = []
    try:
        for _ in range(600):
            one = socket.create_connection((host, int(port)))
            one.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\n{head}\r\n".encode())
            stuck.append(one)
        start = time.monotonic()
        assert box.commands.run("echo well").stdout == "well\n"
        assert Sandbox.list().next_items()
        assert time.monotonic() - start < 50
    finally:
        [one.close() for one in stuck]
    assert fresh.kill() is True


def test_a_program_inside_that_never_answers_stops_nobody_else(box, fresh, server):
    # In its place, whatever this program is called.
    own = fresh.commands.run("readlink /proc/$(pgrep -ox fractal)/exe", user="root").stdout.strip()
    fresh.commands.run(f"rm {own}; printf '#!/bin/sh\\nexec sleep 100000\\n' > {own}; chmod 755 {own}",
                       user="root")
    fresh.pause()
    done = []

    def wake():
        done.append(ask(server, f"/sandboxes/{fresh.sandbox_id}/connect",
                        {"X-API-Key": __import__("os").environ["E2B_API_KEY"]}, b"{}", seconds=60)[0])

    threads = [threading.Thread(target=wake) for _ in range(30)]
    [thread.start() for thread in threads]
    time.sleep(1)
    start = time.monotonic()
    assert box.commands.run("echo well").stdout == "well\n"
    other = Sandbox.create(timeout=2)
    while other.is_running():
        assert time.monotonic() - start < 60, "its time is over"
        time.sleep(0.2)
    assert fresh.kill() is True
    [thread.join() for thread in threads]
    assert time.monotonic() - start < 150 and all(status >= 400 for status in done)


def test_what_is_paused_while_it_is_used_stays_paused(fresh):
    stop = threading.Event()

    def use():
        while not stop.is_set():
            try:
                fresh.commands.run("true", timeout=5)
            except (SandboxException, TimeoutException, CommandExitException, Exception):
                pass

    threads = [threading.Thread(target=use) for _ in range(5)]
    [thread.start() for thread in threads]
    try:
        for _ in range(5):
            time.sleep(0.2)
            fresh.pause()
            time.sleep(0.3)
            assert not fresh.is_running()
            fresh.connect()
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert fresh.commands.run("pgrep -cx fractal", user="root").stdout.strip() in ("1", "2")


def test_nothing_is_lost_of_who_goes_away_while_it_is_made(server, variables):
    host, port = server.url.removeprefix("http://").split(":")
    body = b'{"templateID":"base","timeout":3,"metadata":{"gone":"yes"}}'
    head = (f"POST /sandboxes HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {variables['E2B_API_KEY']}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    before = len(json.loads(server.fractal("--json", "list"))["sandboxes"])
    for number in range(20):
        with socket.create_connection((host, int(port))) as one:
            one.sendall(head + body)
            time.sleep(number * 0.002)
    until = time.monotonic() + 90
    while len(json.loads(server.fractal("--json", "list"))["sandboxes"]) > before:
        assert time.monotonic() < until, "each of them ends in its time"
        time.sleep(0.5)


def test_listeners_that_left_make_room(box):
    handle = box.commands.run("sleep 3; echo end", background=True, timeout=0)
    for _ in range(80):
        box.commands.connect(handle.pid, timeout=0).disconnect()
    assert box.commands.connect(handle.pid).wait().stdout == "end\n"


def test_others_that_go_on_writing_hold_no_command_up(box):
    start = time.monotonic()
    done = box.commands.run("(for i in $(seq 4000); do echo x; sleep .05; done) & echo started", timeout=150)
    assert "started" in done.stdout and time.monotonic() - start < 90
    box.commands.run("pkill -f '[s]eq 4000' || true")


def test_a_revoked_key_ends_what_runs(server):
    names = server.variables()
    listed = json.loads(server.fractal("--json", "key", "list"))
    name = (listed if isinstance(listed, list) else listed["keys"])[-1]["name"]
    sandbox = Sandbox.create(api_key=names["E2B_API_KEY"])
    try:
        handle = sandbox.commands.run("while :; do echo x; sleep .1; done", background=True, timeout=0)
        server.fractal("key", "revoke", name)
        start = time.monotonic()
        with pytest.raises((SandboxException, AuthenticationException, RateLimitException)):
            handle.wait()
        assert time.monotonic() - start < 60
    finally:
        server.fractal("drop", "--force", sandbox.sandbox_id.upper())


def test_many_uploads_that_stall_block_nothing(box, server):
    host, port = server.url.removeprefix("http://").split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers_of(box).items())
    stuck = []
    try:
        for number in range(150):
            one = socket.create_connection((host, int(port)))
            one.sendall(f"POST /files?path=/home/user/stall{number} HTTP/1.1\r\nHost: {host}\r\n{head}"
                        "Content-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\nx".encode())
            stuck.append(one)
        time.sleep(0.5)
        assert box.files.list("/etc")
        assert box.commands.run("echo well").stdout == "well\n"
    finally:
        [one.close() for one in stuck]
    box.files.write("/home/user/after", "x")


def test_what_is_no_gzip_leaves_the_old_content(box, place, server):
    box.files.write(f"{place}/a", "old")
    status, _ = ask(server, f"/files?path={place}/a", {
        **headers_of(box), "Content-Encoding": "gzip", "Content-Type": "application/octet-stream"},
        b"plain text", "POST")
    assert status == 400 and box.files.read(f"{place}/a") == "old"


def test_odds_and_ends(box, place):
    assert box.files.read("/sys/class/net/lo/address").strip() == "00:00:00:00:00:00"
    with pytest.raises(SandboxException):
        box.files.write(f"{place}/dir/", "x")
    with pytest.raises(SandboxException, match="not a directory"):
        box.commands.run("true", cwd="/etc/hostname")
    with pytest.raises(SandboxException):
        box.commands.run("true", envs={"A=B": "x"})
    box.commands.run(f"ln -s loop {place}/loop")
    with pytest.raises(SandboxException):
        box.files.read(f"{place}/loop")
