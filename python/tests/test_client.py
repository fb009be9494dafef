"""The same sandboxes in this process, by a server's socket, and with a key."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

import fractal
from conftest import program
from serving import serving
from fractal import ConfigManager, Sandbox, SandboxClient, ToolRegistry


@pytest.fixture(scope="module")
def project(home: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("project")
    (path / "notes.txt").write_text("one\n")
    return path


def binary() -> str:
    found = os.environ.get("FRACTAL")
    if not found:
        pytest.skip("skipped: no `fractal` (set FRACTAL)")
    return found


@pytest.fixture(scope="module")
def served(home: pathlib.Path, project: pathlib.Path) -> Iterator[tuple[str, str]]:
    """A server's address, and a key."""
    binary()
    with serving(project) as served:
        yield served


@pytest.fixture(scope="module", params=["in process", "socket", "key"])
def client(request: pytest.FixtureRequest, home: pathlib.Path) -> Iterator[SandboxClient]:
    if request.param == "in process":
        yield SandboxClient()
        return
    url, key = request.getfixturevalue("served")
    if request.param == "socket":
        url, key = f"unix://{home}/server.sock", None
    with SandboxClient(url, key, timeout=120) as client:
        yield client


@pytest.fixture
def at(client: SandboxClient, project: pathlib.Path) -> pathlib.Path | None:
    """The directory to name; who comes with a key names none."""
    return None if client.url and client.url.startswith("http") else project


@pytest.fixture
def box(client: SandboxClient, at: pathlib.Path | None) -> Iterator[Sandbox]:
    with client.create(at) as box:
        yield box


def test_a_program_runs_and_reality_stays(box: Sandbox, project: pathlib.Path) -> None:
    done = box.run("cat notes.txt; echo two >> notes.txt; echo oops >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == ("one\n", "oops\n", 3)
    assert done.error == "exit status 3" and box.run("true").error is None
    assert [(c.path, c.kind) for c in box.changes()] == [(f"{project}/notes.txt", "modified")]
    assert "+two" in box.diff()
    assert (project / "notes.txt").read_text() == "one\n"
    assert box.run(["cat"], stdin="in").stdout == "in"
    assert box.run(["wc", "-c"], stdin=b"\xff\x00" * 400_000).stdout.strip() == "800000"
    assert box.run("echo $A", env={"A": "x y"}).stdout == "x y\n"
    assert box.run("sleep 60", timeout=0.3).error == "ended by its time limit"


def test_forks_snapshots_and_promotions(box: Sandbox, project: pathlib.Path) -> None:
    box.run("echo 1 > n")
    good = box.create_snapshot("good")
    box.run("echo 2 > n")
    with box.fork() as child:
        assert child.run("cat n").stdout == "2\n"
        box.rollback(good)
        assert box.snapshots() == ["good"] and box.run("cat n").stdout == "1\n"
    assert box.promote(dry_run=True).verdict == "planned"
    brought = box.promote()
    assert brought.verdict == "applied" and (project / "n").read_text() == "1\n"
    assert box.undo(brought).verdict == "applied" and not (project / "n").exists()


def test_files_of_every_kind(box: Sandbox, project: pathlib.Path) -> None:
    files = box.files
    assert files.read("notes.txt") == files.read(f"{project}/notes.txt") == "one\n"
    every = bytes(range(256)) * 5000
    files.write("d/e/bin", every)
    assert files.read("d/e/bin", "bytes") == every
    with files.open("d/e/bin") as piece:
        assert piece.read(3) == b"\0\1\2"
    with pytest.raises(UnicodeDecodeError):
        files.read("d/e/bin")
    files.write("run.sh", "#!/bin/sh\necho ran", mode=0o755)
    assert box.run("./run.sh").stdout == "ran\n"
    files.write("secret", "x", mode=0o600)
    assert files.get_info("secret").mode == 0o600
    files.write_files([{"path": "a b", "data": "1"}, {"path": "-n", "data": b"2"}])
    names = [(entry.name, entry.type) for entry in files.list()]
    assert names == [
        ("-n", "file"), ("a b", "file"), ("d", "dir"), ("notes.txt", "file"),
        ("run.sh", "file"), ("secret", "file"),
    ]
    deep = [entry.path for entry in files.list("d", depth=2)]
    assert deep == [f"{project}/d/e", f"{project}/d/e/bin"]
    assert files.make_dir("m/n") and not files.make_dir("m/n")
    assert files.rename("a b", "m/ö\nx").path == f"{project}/m/ö\nx"
    assert not files.exists("a b") and files.read("m/ö\nx") == "1"
    box.run("ln -s nowhere link")
    link = files.get_info("link")
    assert (link.type, link.target) == ("symlink", "nowhere") and not files.exists("link")
    for path in ("m", "link", "-n"):
        files.remove(path)
    assert [e.name for e in files.list()] == ["d", "notes.txt", "run.sh", "secret"]
    assert sorted(path.name for path in project.iterdir()) == ["notes.txt"]


def test_files_beside_the_project(box: Sandbox) -> None:
    with open("/etc/passwd") as real:
        assert box.files.read("/etc/passwd") == real.read()
    large = os.urandom(900_000)
    box.files.write("/var/tmp/of/ours", large)
    assert box.files.read("/var/tmp/of/ours", "bytes") == large
    with io.BytesIO() as nothing:
        box.files.write("/var/tmp/of/none", nothing.getvalue())
    assert box.files.read("/var/tmp/of/none") == ""
    assert not os.path.exists("/var/tmp/of")


def test_errors_of_files_are_pythons_own(box: Sandbox) -> None:
    files = box.files
    box.run("mkdir d; echo > f")
    for wrong, work in [
        (FileNotFoundError, lambda: files.read("none")),
        (FileNotFoundError, lambda: files.list("none")),
        (FileNotFoundError, lambda: files.get_info("none")),
        (FileNotFoundError, lambda: files.remove("none")),
        (FileNotFoundError, lambda: files.rename("none", "x")),
        (IsADirectoryError, lambda: files.read("d")),
        (IsADirectoryError, lambda: files.write("d", "x")),
        (NotADirectoryError, lambda: files.list("f")),
        (FileExistsError, lambda: files.make_dir("f")),
        (ValueError, lambda: files.read("")),
        (ValueError, lambda: files.read("a\0b")),
        (ValueError, lambda: files.list(depth=0)),
    ]:
        with pytest.raises(wrong):
            work()


def test_output_is_heard_while_it_is_written(box: Sandbox) -> None:
    heard: list[str] = []
    first = threading.Event()

    def hear(text: str) -> None:
        heard.append(text)
        first.set()

    command = box.commands.run("echo ä; read line; echo got $line; exit 7", True, on_stdout=hear)
    assert first.wait(60) and command.is_running and command.stdout == "ä\n"
    assert box.commands.list() == [command]
    command.send_stdin("more\n")
    done = command.wait()
    assert (done.exit_code, done.stdout) == (7, "ä\ngot more\n")
    assert "".join(heard) == done.stdout and box.commands.list() == []
    errors: list[str] = []
    box.commands.run("echo a; echo b >&2", on_stdout=heard.append, on_stderr=errors.append)
    assert heard[-1] == "a\n" and errors == ["b\n"]


def test_what_hears_may_raise(box: Sandbox) -> None:
    def hear(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError, match="1"):
        box.commands.run("seq 100000", on_stdout=hear)


def test_a_command_reads_to_the_end(box: Sandbox) -> None:
    command = box.commands.run(["sha256sum"], True)
    with pytest.raises(TimeoutError):
        command.wait(0.05)
    for _ in range(3):
        command.send_stdin(b"\0" * 1_000_000)
    command.close_stdin()
    told = command.wait().stdout
    assert told.split()[0] == subprocess.run(
        ["sha256sum"], input=b"\0" * 3_000_000, capture_output=True, check=True
    ).stdout.decode().split()[0]
    with pytest.raises(BrokenPipeError):
        command.send_stdin("late")


def test_output_is_kept_as_bytes_too(box: Sandbox, client: SandboxClient) -> None:
    command = box.commands.run(r"printf 'a\377b'; echo err >&2", background=True)
    command.wait(60)
    in_process = client.url is None
    assert command.stdout_bytes == (b"a\xffb" if in_process else "a\ufffdb".encode())
    assert command.stdout == "a\ufffdb" and command.stderr_bytes == b"err\n"
    assert not command.truncated
    loud = box.commands.run("yes | head -c 5000000", background=True)
    loud.wait(120)
    assert loud.truncated and loud.stdout_bytes == b"y\n" * (2 << 20)


def test_files_are_written_while_something_runs(box: Sandbox) -> None:
    command = box.commands.run("echo 1 > begun; exec sleep 600", background=True)
    until = time.monotonic() + 60
    while not box.files.exists("begun"):
        assert time.monotonic() < until
    data = bytes(range(256)) * 12_000
    box.files.write("sub/data", data)
    box.files.write("sub/run", io.BytesIO(b"#!/bin/sh\necho ran\n"), mode=0o755)
    box.files.write("empty", "")
    assert box.files.read("sub/data", "bytes") == data and box.files.read("empty") == ""
    assert box.run(["sub/run"]).stdout == "ran\n"
    with pytest.raises(IsADirectoryError):
        box.files.write("sub", "x")
    assert command.is_running and command.kill()


def test_one_command_is_killed_and_others_go_on(box: Sandbox) -> None:
    stays = box.commands.run("cat > kept", True)
    goes = box.commands.run("echo here; sleep 600", True)
    while goes.stdout != "here\n":
        time.sleep(0.01)
    assert goes.kill() is True
    assert goes.wait(60).exit_code != 0 and goes.kill() is False
    assert stays.is_running
    stays.send_stdin("words")
    stays.close_stdin()
    assert stays.wait(60).exit_code == 0 and box.files.read("kept") == "words"


def test_pausing_ends_what_runs_and_keeps_files(box: Sandbox) -> None:
    command = box.commands.run("echo 1 > kept; echo begun; sleep 600", True)
    while command.stdout != "begun\n":
        time.sleep(0.01)
    box.pause()
    assert command.wait(60).exit_code != 0
    assert box.resume().files.read("kept") == "1\n"
    assert box.is_running() and box.kill() and not box.is_running() and not box.kill()


def test_scripts_in_memory_are_left_to_themselves_too(
    client: SandboxClient, at: pathlib.Path | None
) -> None:
    with client.create(at, world="virtual") as box:
        assert box.run("cat notes.txt").tier == "virtual"
        heard: list[str] = []
        assert box.commands.run("echo 1; echo 2", on_stdout=heard.append).stdout == "1\n2\n"
        assert "".join(heard) == "1\n2\n"
        command = box.commands.run("while :; do :; done", True)
        with pytest.raises(TimeoutError):
            command.wait(0.2)
        command.kill()
        assert command.wait(60).exit_code != 0


def test_attempts_are_ranked(client: SandboxClient, at: pathlib.Path | None) -> None:
    tried = client.attempts(
        {"good": "echo two >> notes.txt", "bad": ["sh", "-c", "rm notes.txt"]},
        at,
        checks={"there": "test -s notes.txt"},
    )
    try:
        assert tried.winner is not None and tried.winner.name == "good"
        assert tried.winner.rank == 1 and tried["bad"].rank is None
        assert [check.result for check in tried["bad"].checks] == ["fail"]
        assert tried.winner.box is not None and "+two" in tried.winner.box.diff()
        bad = tried["bad"].box
        assert bad is not None
        compared = tried.winner.box.compare(bad, checks=[{"name": "x", "command": "true"}])
        assert len(compared) == 2 and compared.base["kind"] == "live"
    finally:
        tried.drop()
    assert not any(attempt.box and attempt.box.is_running() for attempt in tried)


def test_tools_through_every_door(client: SandboxClient, at: pathlib.Path | None) -> None:
    tools = client.tools(at)
    assert "read" in tools and tools["read"].kind == "verb"
    with client.create(at) as box:
        tools.call("write", {"path": "x", "content": "1\n"}, sandbox=box)
        first, second = tools.call_many(
            [
                {"tool": "read", "input": {"path": "x"}, "sandbox": box},
                {"tool": "read", "input": {"path": "none"}, "sandbox": box},
            ]
        )
        assert first.error is None and second.error and second.error.code == "not_found"
        with pytest.raises(FileNotFoundError):
            tools.call("read", {"path": "none"}, sandbox=box)
    if client.url is not None:
        with pytest.raises(io.UnsupportedOperation):
            tools.register(len)


def test_refusals_are_the_same_everywhere(
    client: SandboxClient, at: pathlib.Path | None, box: Sandbox
) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        client.open("nothing-like-it")
    assert caught.value.code == "not_found" and caught.value.hint  # type: ignore[attr-defined]
    with pytest.raises(FileExistsError):
        client.create(at, box.name)
    with pytest.raises(ValueError, match="no command"):
        box.run([])
    with pytest.raises(ValueError, match="no command"):
        box.commands.run([], True).wait()
    assert client.open(box.name).directory == box.directory
    assert box.name in [info["name"] for info in client.list()]
    if client.url is not None:
        with pytest.raises(io.UnsupportedOperation):
            box.view()


def test_what_was_learned_is_found_through_every_door(
    client: SandboxClient, at: pathlib.Path | None, box: Sandbox
) -> None:
    word = "".join(chr(97 + int(digit)) for digit in str(time.time_ns()))
    start = time.time() - 1
    first = client.note(
        f"{word} breaks the build", "Seen twice.", at, kind="failure", tags=["b"], sandbox=box
    )
    fix = client.note(f"an older {word} helps", directory=at, relations={"fixes": first.id})
    assert (first.kind, fix.kind, fix.root) == ("Failure", "Insight", "notes")
    found = client.find(f"what about {word}?", at)
    assert {hit.title for hit in found} == {first.title, fix.title}
    assert len(found) == 2 and found.records >= 2 and found[0].score >= found[1].score
    only = client.find(word, at, kinds=["failure"], tags=["b"], sandbox=box.name, limit=1)
    assert [hit.key for hit in only] == [first.id] and "words" in only[0].why
    assert only[0].written is not None and only[0].written.timestamp() >= start
    assert [hit.title for hit in client.find(word, at, until=start)] == []
    learned = client.learned(start, at)
    assert fix.id in [one.key for one in learned.learned] and learned.passed == 0
    assert client.learned(datetime.now(timezone.utc) + timedelta(days=1), at).learned == ()
    with pytest.raises(ValueError, match="title"):
        client.note(" ", directory=at)
    with pytest.raises(FileNotFoundError):
        client.note("x", directory=at, relations=[("cites", "01AAAAAAAAAAAAAAAAAAAAAAAA")])
    # The key of this server is for everything, so it may know.
    assert first.file is not None and first.file.endswith(first.path)


def test_many_threads_share_a_client(client: SandboxClient, at: pathlib.Path | None) -> None:
    said: dict[int, str] = {}

    def work(number: int) -> None:
        with client.create(at) as box:
            for step in range(3):
                box.run(f"echo {number}-{step} >> notes.txt")
            said[number] = box.files.read("notes.txt")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {n: f"one\n{n}-0\n{n}-1\n{n}-2\n" for n in range(4)}


def test_addresses_and_keys(served: tuple[str, str], home: pathlib.Path) -> None:
    url, _ = served
    with pytest.raises(PermissionError):
        SandboxClient(url, "frk_wrong").list()
    with pytest.raises(ConnectionError, match="fractal serve"):
        SandboxClient("http://127.0.0.1:1", "x").list()
    with pytest.raises(ValueError):
        SandboxClient("ftp://example.org")
    with pytest.raises(ValueError):
        SandboxClient(url, home=home)
    with pytest.raises(ValueError, match="server's own directory"):
        SandboxClient(*served).create("/tmp")


def test_nobody_writes_into_anothers_input(served: tuple[str, str], project: pathlib.Path) -> None:
    url, _ = served
    made = subprocess.run(
        [binary(), "key", "create", "--role", "runner"],
        cwd=project, capture_output=True, text=True, check=True,
    )
    theirs = SandboxClient(url, made.stdout.strip())
    with SandboxClient(*served) as ours, ours.create() as box:
        command = box.commands.run("cat", True)
        command.send_stdin("mine\n")
        where = command._underway._where()  # type: ignore[attr-defined]
        with pytest.raises(FileNotFoundError):
            theirs.connection().give(where, b"theirs\n", ends=True)  # type: ignore[attr-defined]
        command.close_stdin()
        assert command.wait(60).stdout == "mine\n"


def test_settings_say_where_they_come_from(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    config = ConfigManager(tmp_path)
    assert config["limits.memory"] == "none" and config.origin("limits.memory") == "default"
    assert config.project_file is None and "ttl" in config and config.home == str(home)
    (tmp_path / "fractal.toml").write_text('[limits]\nmemory = "1g"\n')
    assert config["limits.memory"] == "1 GiB" or config["limits.memory"] == "1.0 GiB"
    assert config.origin("limits.memory") == config.project_file == str(tmp_path / "fractal.toml")
    (tmp_path / "fractal.toml").write_text('[limits]\nmemroy = "1g"\n')
    with pytest.raises(ValueError, match="fractal.toml:2"):
        config.settings()
    with pytest.raises(KeyError):
        ConfigManager("/")["no.such.thing"]
    assert config.client().url is None


def test_a_program_with_a_door_works_below_itself(project: pathlib.Path) -> None:
    code = (
        "from fractal import Sandbox\n"
        "with Sandbox.create() as box:\n"
        "    print(box.run('echo below').stdout, end='')\n"
        "from fractal import find, note\n"
        "note('marmots whistle')\n"
        "print([hit.title for hit in find('marmots')])\n"
    )
    done = subprocess.run(
        [binary(), "run", "--rm", "--door", "--", *program(code)],
        cwd=project, capture_output=True, text=True,
    )
    assert (done.returncode, done.stdout) == (0, "below\n['marmots whistle']\n"), done.stderr


def test_the_registry_is_made_as_before(home: pathlib.Path, project: pathlib.Path) -> None:
    tools = ToolRegistry(project)

    @tools.register
    def add(a: int, b: int = 1) -> int:
        "Add."
        return a + b

    assert tools.call("add", {"a": 2}) == 3
    assert fractal.SandboxClient().tools(project).list()


def test_other_settings_than_the_users_own(
    home: pathlib.Path, project: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[templates.named]\nenv = { WHO = "ann" }\n')
    with SandboxClient(settings=settings).create(project, template="named") as box:
        assert box.run("echo $WHO").stdout == "ann\n"
        with box.fork() as child:
            assert child.run("echo $WHO").stdout == "ann\n"
    with pytest.raises(FileNotFoundError, match="no template `named`"):
        SandboxClient().create(project, template="named")
    with pytest.raises(ValueError, match="a server has its own settings"):
        SandboxClient("http://127.0.0.1:1", settings=settings)
