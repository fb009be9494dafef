"""Sandboxes: made, found, timed, paused, forked, kept, ended; and who may."""

import asyncio
import json
import os
import socket
import subprocess
import time
import urllib.request

import pytest
from e2b import (AsyncSandbox, InvalidArgumentException, NotFoundException, Sandbox, SandboxException,
                 SandboxQuery, SandboxState, TimeoutException)
from e2b.exceptions import AuthenticationException, SandboxNotFoundException


def ids(**query):
    found, pages = [], Sandbox.list(query=SandboxQuery(**query) if query else None)
    while pages.has_next:
        found += pages.next_items()
    return [info.sandbox_id for info in found]


def test_a_sandbox_is_there_until_it_is_killed(variables):
    sandbox = Sandbox.create()
    assert sandbox.is_running()
    assert sandbox.sandbox_id in ids()
    assert sandbox.kill() is True
    assert not sandbox.is_running()
    assert sandbox.kill() is False
    assert sandbox.sandbox_id not in ids()


def test_what_is_killed_says_so(variables):
    sandbox = Sandbox.create()
    sandbox.kill()
    with pytest.raises(TimeoutException, match="not found"):
        sandbox.commands.run("true")
    with pytest.raises(TimeoutException):
        sandbox.files.read("/etc/hostname")
    with pytest.raises(SandboxNotFoundException):
        sandbox.get_info()
    with pytest.raises(SandboxNotFoundException):
        sandbox.set_timeout(10)
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)


def test_metadata_and_variables_stay(variables):
    with Sandbox.create(metadata={"user": "a b&c"}, envs={"MARK": "here"}, timeout=120) as sandbox:
        info = sandbox.get_info()
        assert info.metadata == {"user": "a b&c"} and info.template_id == "base"
        assert 60 < (info.end_at - info.started_at).total_seconds() <= 121
        assert sandbox.commands.run("echo $MARK").stdout == "here\n"
        assert sandbox.sandbox_id in ids(metadata={"user": "a b&c"})
        assert sandbox.sandbox_id not in ids(metadata={"user": "other"})


def test_lists_come_in_pages(variables):
    boxes = [Sandbox.create(metadata={"pages": "yes"}) for _ in range(5)]
    try:
        for order in ("asc", "desc"):
            pages = Sandbox.list(query=SandboxQuery(metadata={"pages": "yes"}), limit=2, order=order)
            found = []
            while pages.has_next:
                page = pages.next_items()
                assert len(page) <= 2
                found += [info.sandbox_id for info in page]
            assert sorted(found) == sorted(box.sandbox_id for box in boxes)
    finally:
        [box.kill() for box in boxes]


def test_one_connects_by_id(fresh):
    other = Sandbox.connect(fresh.sandbox_id)
    other.files.write("/home/user/a", "from the other")
    assert fresh.files.read("/home/user/a") == "from the other"


def test_time_runs_out(variables):
    sandbox = Sandbox.create(timeout=2)
    until = time.monotonic() + 30
    while sandbox.is_running():
        assert time.monotonic() < until
        time.sleep(0.2)
    assert sandbox.sandbox_id not in ids()


def test_time_is_set_and_extended(fresh):
    fresh.set_timeout(5)
    near = fresh.get_info().end_at
    fresh.connect(timeout=300)
    far = fresh.get_info().end_at
    assert (far - near).total_seconds() > 200
    fresh.connect(timeout=1)
    assert fresh.get_info().end_at == far, "connecting never takes time away"
    with pytest.raises((InvalidArgumentException, SandboxException)):
        fresh.set_timeout(-1)


def test_pausing_keeps_files_and_ends_processes(fresh):
    fresh.files.write("/home/user/kept", "still here")
    fresh.commands.run("sleep 4325", background=True, timeout=0)
    assert fresh.pause() is True
    assert fresh.pause() is False
    assert not fresh.is_running()
    assert fresh.sandbox_id in ids(state=[SandboxState.PAUSED])
    assert fresh.sandbox_id not in ids(state=[SandboxState.RUNNING])
    fresh.connect()
    assert fresh.is_running()
    assert fresh.files.read("/home/user/kept") == "still here"
    assert fresh.commands.run("pgrep -fc '[s]leep 4325' || true").stdout.strip() == "0"


def test_time_that_runs_out_may_pause(variables):
    sandbox = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause"})
    try:
        sandbox.files.write("/home/user/a", "kept")
        until = time.monotonic() + 30
        while sandbox.get_info().state != SandboxState.PAUSED:
            assert time.monotonic() < until
            time.sleep(0.2)
        sandbox.connect(timeout=60)
        assert sandbox.files.read("/home/user/a") == "kept"
    finally:
        sandbox.kill()


def test_use_wakes_what_may_be_woken(variables):
    sandbox = Sandbox.create(timeout=120, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        sandbox.files.write("/home/user/a", "kept")
        sandbox.pause()
        assert sandbox.files.read("/home/user/a") == "kept"
        assert sandbox.get_info().state == SandboxState.RUNNING
    finally:
        sandbox.kill()


def test_forks_go_their_own_ways(fresh):
    fresh.files.write("/home/user/a", "common")
    children = fresh.fork(count=3, timeout=120)
    try:
        assert len({child.sandbox_id for child in children} | {fresh.sandbox_id}) == 4
        for number, child in enumerate(children):
            assert child.files.read("/home/user/a") == "common"
            child.files.write("/home/user/a", str(number))
        assert [child.files.read("/home/user/a") for child in children] == ["0", "1", "2"]
        assert fresh.files.read("/home/user/a") == "common"
    finally:
        [child.kill() for child in children]


def test_a_sandbox_starts_from_a_snapshot(fresh):
    fresh.files.write("/home/user/a", "then")
    snapshot = fresh.create_snapshot(name="good-state")
    fresh.files.write("/home/user/a", "now")
    for name in (snapshot.snapshot_id, "good-state"):
        with Sandbox.create(name) as other:
            assert other.files.read("/home/user/a") == "then"
    assert fresh.files.read("/home/user/a") == "now"
    listed = fresh.list_snapshots().next_items()
    assert [(one.snapshot_id, one.names) for one in listed] == [(snapshot.snapshot_id, ["good-state"])]
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False
    with pytest.raises(SandboxException):
        Sandbox.create(snapshot.snapshot_id)


def network_of(server, sandbox):
    shown = json.loads(server.fractal("--json", "show", sandbox.sandbox_id.upper()))
    return shown["sandbox"]["policy"]["network"] if "sandbox" in shown else shown["policy"]["network"]


def test_a_snapshot_gives_no_more_network_than_is_wanted(fresh, server):
    snapshot = fresh.create_snapshot()
    with Sandbox.create(snapshot.snapshot_id) as same:
        assert network_of(server, same) == network_of(server, fresh) == {"allow": ["*"]}
    with Sandbox.create(snapshot.snapshot_id, allow_internet_access=False) as none:
        assert network_of(server, none) == "none"
    with Sandbox.create(allow_internet_access=False) as closed:
        kept = closed.create_snapshot()
        with pytest.raises(SandboxException):
            Sandbox.create(kept.snapshot_id, allow_internet_access=True).kill()
        assert network_of(server, closed) == "none"


def test_a_template_that_is_missing_is_named(variables):
    with pytest.raises((NotFoundException, SandboxException), match="no-such-template"):
        Sandbox.create("no-such-template")


def test_what_it_uses_is_measured(fresh):
    metrics = fresh.get_metrics()
    assert metrics[0].mem_used > 0 and metrics[0].cpu_count >= 1 and metrics[0].disk_total > 0


def test_there_is_no_way_out_when_none_is_wanted(variables):
    with Sandbox.create(allow_internet_access=False) as sandbox:
        done = sandbox.commands.run("curl -s -m 5 http://127.0.0.1:9 http://10.0.0.1 || echo none")
        assert "none" in done.stdout


def test_rules_that_cannot_be_held_are_refused(variables):
    for network in ({"deny_out": ["1.2.3.4"]}, {"rules": {"a.org": [{"transform": {}}]}}):
        with pytest.raises((InvalidArgumentException, SandboxException)):
            Sandbox.create(network=network).kill()


def test_the_network_is_set_once(fresh):
    with pytest.raises((InvalidArgumentException, SandboxException), match="when it is made"):
        fresh.update_network({"allow_out": ["a.org"]})


def test_a_service_inside_is_reached_by_its_port(fresh, server):
    fresh.files.write("/home/user/www/index.html", "from inside")
    fresh.commands.run("python3 -m http.server 8123 -d /home/user/www", background=True, timeout=0)
    headers = {**fresh.connection_config.sandbox_headers, "E2b-Sandbox-Id": fresh.sandbox_id,
               "E2b-Sandbox-Port": "8123"}
    until = time.monotonic() + 20
    while True:
        try:
            request = urllib.request.Request(f"{server.url}/index.html", headers=headers)
            with urllib.request.urlopen(request) as answer:
                assert answer.read() == b"from inside"
                break
        except urllib.error.HTTPError as error:
            assert error.code == 502 and time.monotonic() < until
            time.sleep(0.2)


def test_the_asynchronous_client(variables):
    async def work():
        sandbox = await AsyncSandbox.create(timeout=120)
        try:
            done = await asyncio.gather(*(sandbox.commands.run(f"echo {n}") for n in range(5)))
            assert [one.stdout for one in done] == [f"{n}\n" for n in range(5)]
            await sandbox.files.write("/home/user/a", "async")
            assert await sandbox.files.read("/home/user/a") == "async"
            seen = []
            handle = await sandbox.files.watch_dir("/home/user", on_event=seen.append)
            await sandbox.files.write("/home/user/b", "x")
            for _ in range(100):
                if any(event.name == "b" for event in seen):
                    break
                await asyncio.sleep(0.1)
            assert any(event.name == "b" for event in seen)
            await handle.stop()
        finally:
            await sandbox.kill()
    asyncio.run(work())


def test_a_wrong_key_is_refused(variables):
    for key in ("e2b_00", "e2b_" + "0" * 80, "x", variables["E2B_API_KEY"][:-2]):
        with pytest.raises(AuthenticationException):
            Sandbox.create(api_key=key)


def test_another_tenant_sees_nothing(fresh, server):
    other = server.variables()["E2B_API_KEY"]
    opts = {"api_key": other}
    assert fresh.sandbox_id not in [
        info.sandbox_id for info in Sandbox.list(**opts).next_items()]
    with pytest.raises(SandboxNotFoundException):
        Sandbox.get_info(fresh.sandbox_id, **opts)
    assert Sandbox.kill(fresh.sandbox_id, **opts) is False
    for act in (Sandbox.connect, Sandbox.pause, Sandbox.fork, Sandbox.create_snapshot):
        with pytest.raises(SandboxNotFoundException):
            act(fresh.sandbox_id, **opts)
    snapshot = fresh.create_snapshot()
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **opts) is False
    with pytest.raises(SandboxException):
        Sandbox.create(snapshot.snapshot_id, **opts)
    assert fresh.is_running()


def ask(server, path, headers, data=None, method=None):
    request = urllib.request.Request(server.url + path, headers=headers, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_token_is_for_its_own_sandbox(fresh, box, server):
    ours = {"E2b-Sandbox-Id": fresh.sandbox_id}
    for token in ({}, {"X-Access-Token": "x"},
                  {"X-Access-Token": box.connection_config.sandbox_headers["X-Access-Token"]}):
        status, _ = ask(server, "/files?path=/etc/hostname", {**ours, **token})
        assert status == 401
    status, text = ask(server, "/health", {"E2b-Sandbox-Id": "01m7jg3d8e1mv1yppav0wgszfx"})
    assert status == 502 and b"was not found" in text
    status, _ = ask(server, "/health", {"E2b-Sandbox-Id": "../../etc"})
    assert status == 502


def test_the_token_ends_with_the_key(server):
    names = server.variables()
    key = json.loads(server.fractal("--json", "key", "list"))
    name = key[-1]["name"] if isinstance(key, list) else key["keys"][-1]["name"]
    sandbox = Sandbox.create(api_key=names["E2B_API_KEY"])
    try:
        assert sandbox.commands.run("echo in").stdout == "in\n"
        server.fractal("key", "revoke", name)
        with pytest.raises(AuthenticationException):
            sandbox.commands.run("echo in")
    finally:
        server.fractal("drop", "--force", sandbox.sandbox_id.upper())


@pytest.mark.parametrize("body", [
    b"", b"\x00", b"\x00\x00\x00\x00\xff{}", b"\x00\xff\xff\xff\xff", b"\x01\x00\x00\x00\x02{}",
    b"\x00\x00\x00\x00\x01[", b"\x00\x00\x00\x00\x04null", b"\xff" * 100])
def test_malformed_frames_are_answered(box, server, body):
    headers = {**box.connection_config.sandbox_headers, "E2b-Sandbox-Id": box.sandbox_id,
               "E2b-Sandbox-Port": "49983", "Content-Type": "application/connect+json"}
    status, text = ask(server, "/process.Process/Start", headers, body)
    assert status == 200 and b'"error"' in text
    assert box.commands.run("echo well").stdout == "well\n"


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b'{"timeout":"x"}', b'{"timeout":-1}',
                                  b'{"envVars":{"A=B":"x"}}', b'{"volumeMounts":[{"name":"v","path":"/v"}]}'])
def test_requests_that_do_not_read_are_refused(server, variables, body):
    headers = {"X-API-Key": variables["E2B_API_KEY"], "Content-Type": "application/json"}
    status, text = ask(server, "/v2/sandboxes", headers, body)
    assert status == 400 and json.loads(text)["message"]


def test_cut_connections_leave_everything_healthy(box, server):
    host, port = server.url.removeprefix("http://").split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in {
        **box.connection_config.sandbox_headers, "E2b-Sandbox-Id": box.sandbox_id,
        "E2b-Sandbox-Port": "49983", "Host": f"{host}:{port}"}.items())
    for path, length in (("/files?path=/home/user/cut", 1 << 20), ("/process.Process/Start", 500)):
        for _ in range(10):
            with socket.create_connection((host, int(port))) as cut:
                cut.sendall(f"POST {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n"
                            "Content-Type: application/octet-stream\r\n\r\nabc".encode())
    assert box.commands.run("echo well").stdout == "well\n"
    assert ask(server, "/healthz", {})[0] == 200


def test_huge_headers_are_refused(server, variables):
    status, _ = ask(server, "/v2/sandboxes", {"X-API-Key": "x" * 200_000})
    assert status in (400, 431)


def test_the_same_request_twice_makes_one(variables):
    key = f"once-{os.getpid()}"
    first = Sandbox.create(idempotency_key=key)
    try:
        assert Sandbox.create(idempotency_key=key).sandbox_id == first.sandbox_id
    finally:
        first.kill()


def test_work_is_a_sandbox_like_any_other(fresh, server):
    fresh.commands.run("echo two > $FRACTAL_DIRECTORY/README", user="root")
    patch = server.fractal("diff", fresh.sandbox_id.upper())
    assert "+two" in patch
    assert (server.project / "README").read_text() == "a project\n"


def test_files_survive_the_death_of_the_server(server):
    sandbox = Sandbox.create(timeout=600, metadata={"survives": "yes"})
    sandbox.files.write("/home/user/a", "still here")
    sandbox.commands.run("sleep 4326", background=True, timeout=0)
    server.kill()
    server.start()
    try:
        assert sandbox.is_running()
        assert sandbox.get_info().metadata == {"survives": "yes"}
        assert sandbox.files.read("/home/user/a") == "still here"
        assert sandbox.commands.run("pgrep -fc '[s]leep 4326' || true").stdout.strip() == "0"
        left = subprocess.run(["pgrep", "-fc", "[s]leep 4326"], text=True, capture_output=True,
                              check=False)
        assert left.stdout.strip() == "0", "nothing is left of what ran before"
    finally:
        sandbox.kill()
