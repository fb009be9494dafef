"""Which sandbox a client works in, who may, and how it ends."""

import asyncio
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import aiohttp
import pytest
from conftest import FRACTAL, PATIENCE, Shell, run, serving
from swerex.deployment.remote import RemoteDeployment
from swerex.exceptions import SessionDoesNotExistError, SwerexException
from swerex.runtime.abstract import (
    BashAction,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    WriteFileRequest,
)

SESSION = CreateBashSessionRequest(startup_timeout=PATIENCE)


def execute(runtime, command, **more):
    return run(runtime.execute(Command(command=command, shell=True, **more))).stdout


def ask(server, path, headers, body=None, method=None):
    """A request that no client would make."""
    request = urllib.request.Request(server.url + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def until(is_so, what):
    end = time.time() + PATIENCE
    while not is_so():
        assert time.time() < end, what
        time.sleep(0.1)


def processes(word):
    """How many processes of this machine have a word in their command line."""
    listed = subprocess.run(["ps", "-e", "-o", "args"], text=True, capture_output=True, check=True)
    return sum(word in line for line in listed.stdout.splitlines())


def test_a_deployment_needs_an_address_and_a_key(server):
    key = server.key("deployment")

    async def work():
        deployment = RemoteDeployment(
            host="http://127.0.0.1", port=server.port, auth_token=key, timeout=PATIENCE)
        await deployment.start()
        assert await deployment.is_alive()
        await deployment.runtime.create_session(SESSION)
        seen = await deployment.runtime.run_in_session(BashAction(command="cat README; echo x > new"))
        await deployment.stop()
        return seen.output

    before = server.sandboxes()
    assert run(work()) == "a project\n"
    assert server.sandboxes() == before, "it goes with its client"
    assert not (server.project / "new").exists(), "reality is as it was"


def test_each_key_has_a_sandbox_of_its_own(server):
    first, second = (server.runtime(server.key(f"own-{name}")) for name in "ab")
    execute(first, "echo secret > note; sleep 3001 >/dev/null 2>&1 &")
    assert execute(second, "cat note; ps -e -o args | grep -c '[s]leep 3001'") == "0\n"
    run(first.create_session(SESSION))
    with pytest.raises(SessionDoesNotExistError):
        run(second.run_in_session(BashAction(command="true")))
    assert execute(first, "cat note") == "secret\n"
    run(first.close()), run(second.close())


def test_a_sandbox_with_a_name_stays_and_can_be_looked_at(server, key):
    box = server.runtime(key, "kept")
    run(box.create_session(SESSION))
    Shell(box).run("echo new > made")
    run(box.close())
    assert "made" in server.fractal("diff", "kept")
    with pytest.raises(SessionDoesNotExistError):
        run(box.run_in_session(BashAction(command="true")))
    assert execute(box, "cat made") == "new\n"
    run(box.close())
    server.fractal("drop", "kept")


def test_a_sandbox_that_was_made_before_is_worked_in(server):
    server.fractal("run", "--name", "prepared", "sh", "-c", "echo before > note")
    box = server.runtime(server.key("owners", "operator", "--tenant", "owner"), "prepared")
    assert execute(box, "cat note; echo after >> note") == "before\n"
    run(box.close())
    assert server.fractal("run", "--in", "prepared", "cat", "note") == "before\nafter\n"


def test_names_of_tenants_do_not_meet(server):
    boxes = [server.runtime(server.key(f"tenant-{name}"), "same") for name in "ab"]
    for number, box in enumerate(boxes):
        execute(box, f"echo {number} > note")
    assert [execute(box, "cat note") for box in boxes] == ["0\n", "1\n"]
    for box in boxes:
        run(box.close())


def test_a_key_that_may_less_does_not_use_what_a_wider_one_started(server):
    wide = server.runtime(server.key("wide", "operator", "--tenant", "team"), "shared")
    tight = server.runtime(
        server.key("narrow", "operator", "--tenant", "team", "--pids", "40"), "shared")
    run(wide.create_session(SESSION))
    execute(wide, "echo wide > note; sleep 3501 >/dev/null 2>&1 &")
    with pytest.raises(SessionDoesNotExistError):
        run(tight.run_in_session(BashAction(command="true")))
    assert execute(tight, "cat note; ps -e -o args | grep -c '[s]leep 3501'") == "wide\n0\n"
    assert "all" not in execute(tight, "for i in $(seq 100); do sleep 20 & done; echo all")
    server.fractal("key", "revoke", "narrow")
    run(wide.run_in_session(BashAction(command="sleep 3; true")))
    run(wide.close())


def test_a_template_is_named_behind_the_sandbox(server, key):
    (server.project / "fractal.toml").write_text('[templates.small.limits]\nmemory = "256m"\n')
    try:
        box = server.runtime(key, "templated@small")
        assert execute(box, "echo a") == "a\n"
        run(box.close())
        shown = json.loads(server.fractal("--json", "show", "templated"))
        assert "small" in json.dumps(shown)
        with pytest.raises(SwerexException, match="nosuch"):
            execute(server.runtime(key, "other@nosuch"), "true")
    finally:
        (server.project / "fractal.toml").unlink()


def test_who_has_no_key_or_a_wrong_one_is_sent_away(server):
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": "frk_no"}, {"X-API-Key": "x" * 5000}):
        for path in ("/is_alive", "/execute", "/upload", "/swerex/a/execute", "/close"):
            method = "GET" if path == "/is_alive" else "POST"
            status, text = ask(server, path, headers, None if method == "GET" else b"{}", method)
            assert status in (401, 429) and "detail" in json.loads(text), (path, headers)
    alive = run(server.runtime("frk_wrong").is_alive())
    assert not alive.is_alive and "401" in alive.message or "429" in alive.message


def test_who_may_only_look_may_do_nothing_here(server, key):
    viewer = server.runtime(server.key("viewer", "viewer"), "looked-at")
    assert not run(viewer.is_alive())
    with pytest.raises(SwerexException, match="may not"):
        execute(viewer, "true")
    assert "looked-at" not in server.sandboxes()


def test_a_key_that_ends_ends_what_it_began(server):
    key = server.key("short")
    box = server.runtime(key, "of-short")
    execute(box, "sleep 3101 >/dev/null 2>&1 &")
    until(lambda: processes("sleep 3101") > 0, "it did not start")
    server.fractal("key", "revoke", "short")
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        execute(box, "true")
    assert raised.value.status == 401
    until(lambda: processes("sleep 3101") == 0, "its programs go on")


def test_asking_whether_it_is_alive_makes_nothing(server, key):
    before = server.sandboxes()
    assert run(server.runtime(key, "asked-for").is_alive())
    run(server.runtime(key, "asked-for").close())
    assert server.sandboxes() == before


def test_a_name_that_is_none(server, key):
    for name in ("a%2Fb", "-a", "a%20b", "%00", "x" * 80):
        with pytest.raises(Exception) as raised:
            execute(server.runtime(key, name), "true")
        assert isinstance(raised.value, (SwerexException, aiohttp.ClientError, json.JSONDecodeError))
    with pytest.raises(SwerexException):
        execute(server.runtime(key, "reality"), "true")
    status, _ = ask(server, "/swerex/../execute", {"X-API-Key": key}, b'{"command": "true"}')
    assert status == 511


def test_a_sandbox_that_is_dropped_meanwhile_is_told_once(server, key):
    box = server.runtime(key, "dropped")
    run(box.create_session(SESSION))
    execute(box, "echo x > note")
    server.fractal("drop", "--force", "dropped")
    with pytest.raises(SwerexException, match="was dropped"):
        run(box.run_in_session(BashAction(command="true")))
    with pytest.raises(SessionDoesNotExistError):
        run(box.run_in_session(BashAction(command="true")))
    assert execute(box, "cat note 2>/dev/null; echo fresh") == "fresh\n"
    run(box.close())


def test_a_program_inside_that_is_killed_is_told_and_comes_back(server, key):
    box = server.runtime(key, "killed")
    run(box.create_session(SESSION))
    execute(box, "echo x > note")
    with pytest.raises(SwerexException, match="ended meanwhile"):
        run(box.run_in_session(BashAction(command="kill -9 $PPID; sleep 1000")))
    with pytest.raises(SessionDoesNotExistError):
        run(box.run_in_session(BashAction(command="true")))
    assert execute(box, "cat note") == "x\n"
    run(box.close())


def test_a_program_inside_that_stands_still_holds_up_nobody_else(server, key, box):
    still = server.runtime(key, "still")
    run(still.create_session(SESSION))

    async def stop():
        action = BashAction(command="kill -STOP $PPID; sleep 1000")
        await asyncio.wait_for(still.run_in_session(action), 2)

    with pytest.raises(asyncio.TimeoutError):
        run(stop())
    assert execute(box, "echo a") == "a\n"
    run(still.close())
    assert execute(still, "echo again") == "again\n"
    run(still.close())


def test_memory_that_is_used_up_ends_the_command_or_is_told(server):
    key = server.key("tight", "operator", "--memory", "300m", "--pids", "200")
    box = server.runtime(key, "tight")
    run(box.create_session(SESSION))
    hungry = "python3 -c 'x=[bytearray(1<<20) for _ in range(2000)]; print(len(x))'"
    try:
        assert "2000" not in Shell(box).run(f"/usr/bin/{hungry}").output
    except SwerexException as error:
        assert "ended meanwhile" in str(error)
    assert execute(box, "echo alive") == "alive\n"
    run(box.close())


def test_a_connection_that_is_cut_leaves_all_healthy(server, key, box):
    run(box.create_session(SESSION))
    body = json.dumps({"action_type": "bash", "command": "sleep 2; echo done > cut; echo shown"})
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(
                f"POST /swerex/{box.sandbox}/run_in_session HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"X-API-Key: {key}\r\nX-Request-ID: one-name\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            time.sleep(0.3)
    # Whoever asks again under the same name gets the same answer, done once.
    headers = {"X-API-Key": key, "X-Request-ID": "one-name", "Content-Type": "application/json"}
    for _ in range(2):
        status, text = ask(server, f"/swerex/{box.sandbox}/run_in_session", headers, body.encode())
        assert status == 200 and json.loads(text)["output"] == "shown\n"
    assert Shell(box).output("cat cut; echo next") == "done\nnext\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(
            f"POST /swerex/{box.sandbox}/execute HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"X-API-Key: {key}\r\nContent-Length: 1000000\r\n\r\n{{".encode())
    assert execute(box, "echo a") == "a\n"


def test_a_request_that_is_none_is_refused_and_harms_nothing(server, key, box):
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    at = f"/swerex/{box.sandbox}"
    for path, body in [("/execute", b""), ("/execute", b"[]"), ("/execute", b'{"command": 5}'),
                       ("/run_in_session", b'{"action_type":"sing"}'), ("/read_file", b"\xff"),
                       ("/write_file", b'{"path": "x"}'), ("/upload", b"no form")]:
        status, text = ask(server, at + path, headers, body)
        assert status in (400, 422), (path, body, status, text)
    assert ask(server, at + "/nowhere", headers, b"{}")[0] == 404
    assert ask(server, at + "/execute", headers)[0] == 405
    deep = b"[" * 100_000
    assert ask(server, at + "/execute", headers, deep)[0] == 422
    assert execute(box, "echo a") == "a\n"


def test_an_archive_cannot_lead_out_of_its_target(server, key, box):
    import io
    import zipfile
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("../outside", "x")
    status, text = ask(server, f"/swerex/{box.sandbox}/upload", *form(key, archive.getvalue()))
    assert status == 511 and b"BadZipFile" in text
    assert execute(box, "ls; ls ..").count("outside") == 0
    status, text = ask(server, f"/swerex/{box.sandbox}/upload", *form(key, b"no archive"))
    assert status == 511 and b"BadZipFile" in text


def form(key, content):
    edge = "edge"
    parts = [("file", 'filename="x.zip"', content), ("target_path", "", b"target"),
             ("unzip", "", b"true")]
    body = b"".join(
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"; {more}\r\n\r\n'
        .replace('; \r\n', '\r\n').encode() + value + b"\r\n" for name, more, value in parts)
    headers = {"X-API-Key": key, "Content-Type": f"multipart/form-data; boundary={edge}"}
    return headers, body + f"--{edge}--\r\n".encode()


def test_many_clients_at_once(server, key):
    boxes = [server.runtime(key, f"many-{number}") for number in range(6)]

    async def work(number, box):
        await box.create_session(SESSION)
        for turn in range(5):
            await box.run_in_session(BashAction(command=f"x=${{x}}{turn}"))
        seen = await box.run_in_session(BashAction(command=f"echo {number} $x"))
        await box.close()
        return seen.output

    async def all_of_them():
        return await asyncio.gather(*[work(*pair) for pair in enumerate(boxes)])

    assert run(all_of_them()) == [f"{number} 01234\n" for number in range(6)]


def test_a_first_use_by_many_at_once_makes_one_sandbox(server):
    box = server.runtime(server.key("rush"))

    async def all_of_them():
        command = Command(command="echo $PPID; readlink /proc/self/ns/pid", shell=True)
        return await asyncio.gather(*[box.execute(command) for _ in range(12)])

    assert len({done.stdout for done in run(all_of_them())}) == 1
    run(box.close())


def test_a_server_that_is_told_to_stop_ends_the_sessions(own_server):
    server = own_server
    box = server.runtime(server.key("one"), "kept")
    run(box.create_session(SESSION))
    Shell(box).run("echo x > note; sleep 3201 &")
    until(lambda: processes("sleep 3201") > 0, "it did not start")
    server.stop()
    until(lambda: processes("sleep 3201") == 0, "they go on")
    server.start()
    with pytest.raises(SessionDoesNotExistError):
        run(box.run_in_session(BashAction(command="true")))
    assert run(box.read_file(ReadFileRequest(path="note"))).content == "x\n"


def test_a_server_that_is_killed_leaves_no_process(own_server):
    server = own_server
    box = server.runtime(server.key("one"), "kept")
    run(box.create_session(SESSION))
    Shell(box).run("nohup setsid sleep 3301 >/dev/null 2>&1 &")
    run(box.write_file(WriteFileRequest(path="note", content="x")))
    until(lambda: processes("sleep 3301") > 0, "it did not start")
    server.kill()
    until(lambda: processes("sleep 3301") == 0, "they go on")
    server.start()
    assert execute(box, "cat note") == "x"


def test_a_request_in_flight_is_told_when_the_server_stops(own_server):
    server = own_server
    box = server.runtime(server.key("one"), "kept")
    run(box.create_session(SESSION))

    async def both():
        waiting = asyncio.create_task(box.run_in_session(BashAction(command="sleep 3401")))
        await asyncio.sleep(1)
        await asyncio.to_thread(server.stop)
        return await asyncio.gather(waiting, return_exceptions=True)

    [error] = run(both())
    assert isinstance(error, (SwerexException, aiohttp.ClientError))
    until(lambda: processes("sleep 3401") == 0, "it goes on")
