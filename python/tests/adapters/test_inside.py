"""What works inside sandboxes for the adapters, in process and through a server."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from serving import serving

from fractal import Sandbox, SandboxClient
from fractal.adapters import _inside
from fractal.adapters._inside import Call, Gone, Inside, NoSuchUser, OneUserOnly, TooMuch

IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def project(home: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def served(home: pathlib.Path, project: pathlib.Path) -> Iterator[tuple[str, str]]:
    """A server's address, and a key."""
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
def box(client: SandboxClient, project: pathlib.Path) -> Iterator[Sandbox]:
    at = None if client.url and client.url.startswith("http") else project
    with client.create(at) as box:
        yield box


@pytest.fixture
def inside(box: Sandbox) -> Iterator[Inside]:
    inside = Inside(box)
    yield inside
    inside.close()


def test_programs_leave_what_they_wrote(inside: Inside) -> None:
    done = inside.run(["sh", "-c", "printf '\\377'; printf '\\376' >&2; exit 7"])
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"\xff", b"\xfe")
    data = bytes(range(256)) * 20_000
    assert inside.run(["cat"], stdin=data).stdout == data
    assert inside.run(["cat"]).stdout == b"" and inside.run(["cat"], stdin=b"").stdout == b""
    # It does not want all of it.
    assert inside.run(["head", "-c", "1"], stdin=data).stdout == b"\0"
    assert inside.run(["printf", "%s", "\udcff é"]).stdout == b"\xff \xc3\xa9"
    assert inside.run(["sh", "-c", "kill -TERM $$"]).exit_code == 143


def test_programs_get_what_the_sandbox_gives_them(inside: Inside, box: Sandbox) -> None:
    """The same variables, signals and limits as programs that are run for themselves."""
    what = "env | grep -v ^_= | sort; ulimit -a; "
    what += "grep -E 'Sig(Ign|Blk)|^Cap|Seccomp:' /proc/self/status"
    assert inside.run(["sh", "-c", what]).stdout.decode() == box.run(what).stdout
    with_more = inside.run(["sh", "-c", 'echo "$MORE"'], env={"MORE": "a b"})
    assert with_more.stdout == b"a b\n"
    assert inside.run(["pwd"], cwd="/usr/bin").stdout == b"/usr/bin\n"
    # Nothing of ours is open in them.
    assert inside.run(["ls", "/proc/self/fd"]).stdout.split() == [b"0", b"1", b"2", b"3"]


def test_what_cannot_be_started_says_why(inside: Inside) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        inside.run(["no-such-program"])
    assert missing.value.filename == "no-such-program"
    with pytest.raises(FileNotFoundError) as nowhere:
        inside.run(["true"], cwd="/no/such/place")
    assert nowhere.value.filename == "/no/such/place"
    with pytest.raises(PermissionError):
        inside.run(["/etc/passwd"])
    with pytest.raises(OSError, match="too long"):
        inside.run(["/bin/echo", "x" * 200_000])
    with pytest.raises(OSError, match="null"):
        inside.run(["echo", "a\0b"])


def test_processes_see_and_outlive_each_other(inside: Inside) -> None:
    started = inside.run(["sh", "-c", "sleep 600 & echo $!"])
    pid = started.stdout.decode().strip()
    assert inside.run(["kill", "-0", pid]).exit_code == 0
    inside.run(["kill", pid])
    assert inside.run(["kill", "-0", pid]).exit_code == 1


def test_what_takes_too_long_ends_with_its_family(inside: Inside) -> None:
    family = "sleep 600 & (setsid sleep 600 &) ; (sh -c 'sleep 600; :' &) ; echo on; sleep 600; :"
    done = inside.run(["sh", "-c", family], timeout=1)
    assert done.timed_out and done.stdout == b"on\n"
    # What left the session on purpose and has no parent any more goes on.
    assert inside.run(["pgrep", "-c", "-x", "sleep"]).stdout in (b"1\n", b"0\n")


def test_who_waits_can_stop_a_program(inside: Inside) -> None:
    call = Call()
    threading.Timer(0.5, call.cancel).start()
    done = inside.run(["sh", "-c", "echo on; sleep 600; :"], call=call)
    assert done.exit_code == 137 and not done.timed_out


def test_output_is_bounded_at_either_end(inside: Inside) -> None:
    first = inside.run(["yes"], limit=1000)
    assert first.overflowed and first.stdout == b"y\n" * 500
    last = Call(1000, keeps="end")
    done = inside.run(["sh", "-c", "seq 100000; exit 3"], call=last)
    assert (done.exit_code, len(done.stdout), done.stdout[-7:]) == (3, 1000, b"100000\n")


def test_files_are_what_they_are(inside: Inside) -> None:
    data = bytes(range(256)) * 5_000
    inside.write("/tmp/a/b/c", data)
    assert inside.read("/tmp/a/b/c") == data
    inside.write("/tmp/a/b/c", b"")
    assert inside.read("/tmp/a/b/c") == b"" and inside.info("/tmp/a/b/c").size == 0
    with pytest.raises(TooMuch, match="more than 5 bytes"):
        inside.write("/tmp/a/long", b"123456")
        inside.read("/tmp/a/long", limit=5)
    with pytest.raises(IsADirectoryError):
        inside.read("/tmp/a")
    with pytest.raises(IsADirectoryError):
        inside.write("/tmp/a", b"")
    with pytest.raises(NotADirectoryError):
        inside.write("/tmp/a/long/x", b"")
    with pytest.raises(FileNotFoundError):
        inside.remove("/tmp/a/none")
    # Files that say that they are empty, and one that has no end.
    assert inside.read("/proc/self/status").startswith(b"Name:")
    with pytest.raises(OSError, match="not a regular file"):
        inside.read("/dev/zero")
    inside.run(["sh", "-c", "cd /tmp/a && ln -s loop loop && ln -s b link && mkfifo fifo"])
    found = {entry.name: entry.is_dir for entry in inside.list("/tmp/a")}
    assert found == {"b": True, "link": True, "loop": False, "long": False, "fifo": False}
    assert inside.resolve("/tmp/a/link/none") == "/tmp/a/b/none"
    inside.remove("/tmp/a")
    assert not inside.exists("/tmp/a")


def test_a_directory_may_be_large(inside: Inside) -> None:
    inside.run(["sh", "-c", "mkdir /tmp/many && cd /tmp/many && seq 5000 | xargs touch"])
    assert len(inside.list("/tmp/many")) == 5000


def test_users_are_those_of_the_sandbox(inside: Inside, box: Sandbox) -> None:
    if not IS_ROOT:
        with pytest.raises(OneUserOnly):
            inside.run(["id"], user="root")
        assert inside.run(["id", "-u"], user=str(os.geteuid())).exit_code == 0
        return
    with pytest.raises(NoSuchUser, match="nobody-there"):
        inside.run(["id"], user="nobody-there")
    assert inside.run(["id", "-un"], user="nobody").stdout == b"nobody\n"
    assert inside.run(["id", "-u"], user="12345").stdout == b"12345\n"
    inside.write("/tmp/private", b"secret")
    inside.run(["chmod", "600", "/tmp/private"])
    nobody = Inside(box, user="nobody")
    with pytest.raises(PermissionError):
        nobody.read("/tmp/private")
    with pytest.raises(PermissionError):
        nobody.write("/tmp/private", b"")
    data = os.urandom(1 << 20)
    nobody.write("/tmp/mine", data)
    assert nobody.read("/tmp/mine") == data
    assert nobody.run(["stat", "-c", "%U", "/tmp/mine"]).stdout == b"nobody\n"
    assert [entry.name for entry in nobody.list("/tmp") if entry.name == "mine"] == ["mine"]
    nobody.close()


def test_many_at_once_do_not_mix(inside: Inside) -> None:
    said: dict[int, bytes] = {}

    def work(number: int) -> None:
        text = str(number).encode() * 30_000
        said[number] = inside.run(["cat"], stdin=text).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: str(number).encode() * 30_000 for number in range(30)}


def test_programs_cannot_speak_for_it(inside: Inside) -> None:
    """What they write to its descriptors is not taken for an answer."""
    lie = '{"id": 1, "exit": 0, "timed_out": false}'
    script = f"for end in /proc/$PPID/fd/* /proc/1/fd/*; do echo '{lie}' > $end; done; exit 5"
    for _ in range(3):
        assert inside.run(["sh", "-c", script]).exit_code == 5


def test_what_ends_it_is_told_and_it_begins_again(inside: Inside) -> None:
    inside.write("/tmp/kept", b"yes")
    with pytest.raises(Gone, match="what ran inside"):
        inside.run(["sh", "-c", "kill -9 $PPID; sleep 600"])
    assert inside.read("/tmp/kept") == b"yes"
    assert not inside.is_lost()


def test_one_that_does_not_answer_is_ended(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_inside, "SILENCE_S", 1.0)
    monkeypatch.setattr(_inside, "SILENCE_S_MAX", 4.0)
    # Silence is no reason as long as it answers.
    assert inside.run(["sleep", "6"]).exit_code == 0
    with pytest.raises(Gone, match="did not answer"):
        inside.run(["sh", "-c", "kill -STOP $PPID; sleep 600"])
    assert inside.run(["echo", "again"]).stdout == b"again\n"


def test_it_rests_and_closes(inside: Inside, box: Sandbox) -> None:
    inside.run(["sh", "-c", "echo > made; sleep 600 >/dev/null 2>&1 &"])
    inside.rest()
    assert box.info()["state"] == "idle"
    assert inside.run(["pgrep", "-x", "sleep"]).exit_code == 1
    assert inside.run(["ls", "made"]).exit_code == 0
    with box.fork() as child:
        other = Inside(child)
        assert other.run(["ls", "made"]).exit_code == 0
        other.close()
        with pytest.raises(Gone, match="was closed"):
            other.run(["true"])
    assert other.is_lost()


def test_a_dropped_sandbox_is_lost(inside: Inside, box: Sandbox) -> None:
    inside.run(["true"])
    threading.Timer(0.5, box.drop, kwargs={"force": True}).start()
    with pytest.raises(Gone):
        inside.run(["sleep", "600"])
    assert inside.is_lost()
    with pytest.raises(Gone, match="there is no sandbox"):
        inside.run(["true"])


def test_memory_is_bounded_for_all_together(client: SandboxClient, project: pathlib.Path) -> None:
    at = None if client.url and client.url.startswith("http") else project
    with client.create(at, memory=200 << 20) as box:
        inside = Inside(box)
        greedy = ["python3", "-c", "x = bytearray(1 << 30); print(len(x))"]
        try:
            done = inside.run(greedy)
            assert done.exit_code != 0
        except Gone as error:
            assert "memory" in str(error)
        assert inside.run(["echo", "on"]).stdout == b"on\n"
        inside.close()


def test_it_works_on_the_standard_places(client: SandboxClient, project: pathlib.Path) -> None:
    at = None if client.url and client.url.startswith("http") else project
    with client.create(at, template="standard") as box:
        inside = Inside(box)
        assert inside.cwd == "/workspace"
        inside.write("/workspace/a", b"1")
        assert box.run("cat a").stdout == "1"
        inside.close()


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)"])
def test_nothing_is_left_of_a_process_that_ended(
    end: str, home: pathlib.Path, project: pathlib.Path
) -> None:
    code = f"""if True:
        import os
        from fractal import Sandbox
        from fractal.adapters._inside import Inside
        box = Sandbox.create({str(project)!r}, "left")
        Inside(box).run(["sh", "-c", "sleep 600 & setsid sleep 600 &"])
        {end}
    """
    subprocess.run([sys.executable, "-I", "-c", code], check=end == "pass", timeout=120)
    with Sandbox.open("left") as box:
        until = time.monotonic() + 60
        while box.info()["state"] != "idle":
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_forked_process_has_its_own(project: pathlib.Path, home: pathlib.Path) -> None:
    code = f"""if True:
        import os
        from fractal import Sandbox
        from fractal.adapters._inside import Inside
        with Sandbox.create({str(project)!r}) as box:
            inside = Inside(box)
            inside.run(["true"])
            child = os.fork()
            if child == 0:
                os._exit(inside.run(["sh", "-c", "exit 5"]).exit_code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
            assert inside.run(["sh", "-c", "exit 6"]).exit_code == 6
    """
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=120)
