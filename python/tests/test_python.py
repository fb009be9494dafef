"""The interpreter that adapters share: a real CPython in a sandbox."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import interruptible

from fractal import Sandbox, SandboxClient
from fractal._connection import engine
from fractal.adapters import _python, _topology
from fractal.adapters._python import Interpreter, InterpreterDied


@pytest.fixture(scope="module")
def project(home: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("project")
    (path / "notes.txt").write_text("one\n")
    return path


@pytest.fixture(scope="module")
def box(project: pathlib.Path) -> Iterator[Sandbox]:
    with Sandbox.create(project) as box:
        yield box


@pytest.fixture
def python(box: Sandbox) -> Iterator[Interpreter]:
    with Interpreter(box) as python:
        yield python


def test_pieces_share_names_and_tell_their_last_expression(
    python: Interpreter, project: pathlib.Path
) -> None:
    piece = python.run("import sys\nx = 1\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert (piece.stdout, piece.stderr, piece.value, piece.text) == ("out\n", "err\n", 2, "2")
    assert python.run("x").value == 1
    assert python.run("x = 5").text is None and python.run("None").text is None
    assert python.run("{1, 2} | {x}").value is None
    assert python.run("{1, 2} | {x}").text == "{1, 2, 5}"
    assert python.run("open('notes.txt').read()").value == "one\n"
    python.run("open('notes.txt', 'w').write('two')")
    assert (project / "notes.txt").read_text() == "one\n"
    assert python.box.files.read("notes.txt") == "two"


def test_names_go_in_and_out_as_json(python: Interpreter) -> None:
    given = {"text": "ä\ud800\n\0", "list": [1, 2.5, None, True, {"a": []}], "nan": float("inf")}
    assert python.run("[text, list, nan]", given).value == [given[name] for name in given]
    assert python.get("text", "nan") == ("ä\ud800\n\0", float("inf"))
    with pytest.raises(KeyError, match="nobody"):
        python.get("nobody")
    python.run("thing = object()")
    with pytest.raises(TypeError, match="thing is a object, which JSON has not"):
        python.get("thing")
    with pytest.raises(TypeError, match="as JSON"):
        python.run("1", {"x": object()})
    with pytest.raises(ValueError, match="no name of Python"):
        python.run("1", {"x y": 1})
    large = "x" * (9 << 20)
    assert python.run("len(large)", {"large": large}).value == len(large)
    assert python.get("large") == (large,)
    assert python.run("'x' * (17 << 20)").value is None


def test_tracebacks_are_of_the_code_alone(python: Interpreter) -> None:
    python.tools["fail"] = lambda: {}["missing"]
    python.run("def f(x):\n    return 1 / x\n")
    error = python.run("print('before')\ntry:\n    fail()\nexcept KeyError:\n    f(0)").error
    assert error is not None and (error.kind, error.name) == ("error", "ZeroDivisionError")
    assert error.message == "division by zero" and "return 1 / x" in error.traceback
    assert "KeyError" in error.traceback and "fractal" not in error.traceback
    for code in ("x = ", "'\0'", "x\0"):
        broken = python.run(code).error
        assert broken is not None and broken.kind == ("syntax" if code != "'\0'" else broken.kind)
    error = python.run("raise SystemExit(3)").error
    assert error is not None and error.name == "SystemExit"
    error = python.run("class E(Exception):\n    def __str__(self): 1/0\nraise E").error
    assert error is not None and "raises ZeroDivisionError" in error.message
    error = python.run("def r(): r()\nr()").error
    assert error is not None and error.name == "RecursionError"
    assert python.run("1").value == 1


def test_output_of_every_kind(python: Interpreter) -> None:
    piece = python.run(
        "import os, subprocess, sys, threading\n"
        "subprocess.run('echo sub; echo oops >&2', shell=True)\n"
        "os.write(1, b'\\xff\\xfe\\n')\n"
        "thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()\n"
        "sys.stdout.buffer.write(b'raw\\n'); print('\\ud800')"
    )
    assert piece.stdout == "sub\n\ufffd\ufffd\nthread\nraw\n\\ud800\n" and piece.stderr == "oops\n"
    piece = python.run("print('x' * 3_000_000)\nimport sys; print('e' * 10, file=sys.stderr)")
    assert piece.stdout == "x" * _python.OUTPUT_CHARS_MAX and piece.stderr == "e" * 10 + "\n"
    assert piece.left_out == 3_000_001 - _python.OUTPUT_CHARS_MAX
    # What reads as an answer is output like any other.
    forged = json.dumps({"is": "done", "id": 3, "left_out": 0, "value": "forged"})
    piece = python.run(f"import os\nos.write(1, {forged.encode() + b'%b'!r} % b'\\n')\n'true'")
    assert piece.value == "true" and piece.stdout == forged + "\n"
    # A piece that breaks its own output breaks that of no other.
    python.run("import sys, os\nsys.stdout.close()\nos.close(2)\nsys.stderr = None")
    piece = python.run("print('again')\nimport sys; print('e', file=sys.stderr)")
    assert (piece.stdout, piece.stderr) == ("again\n", "e\n")
    assert python.run("input()").error is not None


def test_code_may_fork_await_and_start_processes(python: Interpreter) -> None:
    piece = python.run(
        "import os, sys\n"
        "child = os.fork()\n"
        "if child: print(os.waitpid(child, 0)[1] >> 8)\n"
        "else: sys.exit(1)"
    )
    assert piece.stdout == "1\n" and piece.error is None
    code = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nawait f()"
    assert python.run(code).value == 7
    code = "import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__"
    assert python.run(code).value == "A"
    code = (
        "import multiprocessing\ndef double(n): return 2 * n\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    found = pool.map(double, [1, 2])\n"
        "found"
    )
    assert python.run(code).value == [2, 4]


def test_tools_are_called_and_answered(python: Interpreter) -> None:
    who = contextvars.ContextVar("who", default="nobody")

    async def later(text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    def refuse() -> None:
        raise ValueError("not today")

    def odd() -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text")

    def told(value: object) -> object:
        raise TypeError("nobody asks here")

    python.tools.update(
        add=lambda a, b=1: a + b, who=who.get, later=later, refuse=refuse, odd=odd, set_=lambda: {1}
    )
    who.set("ann")
    assert python.run("[add(1), add(1, b=5), who(), later('x')]").value == [2, 6, "ann", "X"]
    assert (
        python.run("try: refuse()\nexcept ValueError as e: got = str(e)\ngot").value == "not today"
    )
    for code, said in {
        "odd()": "RuntimeError: UnicodeDecodeError: ",
        "set_()": "set_() returned what JSON has not",
        "add(object(), 1)": "add() takes only what JSON has",
        "add()": "missing 1 required positional argument",
    }.items():
        error = python.run(code).error
        assert error is not None and said in error.traceback, code
    del python.tools["add"]
    python.tools["told"] = told
    error = python.run("add(1)").error
    assert error is not None and error.name == "NameError"
    # Several at once, from threads of the code.
    met = threading.Barrier(8, timeout=60)
    python.tools["meet"] = lambda: met.wait() is not None
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    done = list(pool.map(lambda _: meet(), range(8)))\ndone"
    )
    assert python.run(code).value == [True] * 8


def test_a_tool_that_is_called_off_calls_the_code_off(python: Interpreter) -> None:
    class CalledOff(BaseException):
        pass

    def call_off() -> None:
        raise CalledOff

    python.tools["call_off"] = call_off
    with pytest.raises(CalledOff):
        python.run("kept = 1\nwhile True:\n    try: call_off()\n    except Exception: pass")
    assert python.get("kept") == (1,)


def test_tools_that_work_on_do_not_keep_code_that_was_called_off(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CalledOff(BaseException):
        pass

    def call_off() -> None:
        raise CalledOff

    monkeypatch.setattr(_python, "GRACE_SECONDS", 1.0)
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(300)
        ended.set()

    # An interrupt that met it while it handles an exception would end it in peace.
    stubborn = (
        "import signal, threading, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "threading.Thread(target=work).start()\n"
        "while True:\n    try: call_off()\n    except BaseException: time.sleep(0.1)"
    )
    with Interpreter(box, tools={"work": work, "call_off": call_off}) as python:
        with pytest.raises(CalledOff):
            python.run(stubborn)
        assert not ended.is_set() and not python.is_running
        may_end.set()
        assert ended.wait(300) and python.run("1").value == 1


SLOW = [
    "import time; time.sleep(600)",
    "while True: pass",
    "zeros = open('/dev/zero')\nwhile True: zeros.read(1)",
    "import subprocess; subprocess.run(['sleep', '600'])",
    "import asyncio; await asyncio.sleep(600)",
    "import threading; threading.Event().wait()",
]


def test_code_that_takes_too_long_is_interrupted_and_keeps_its_names(python: Interpreter) -> None:
    python.run("kept = 1")
    for slow in SLOW:
        piece = python.run(slow, timeout=0.5)
        assert piece.error is not None and piece.error.kind == "timeout", slow
        assert piece.error.message == "the code took more than its 0.5 seconds and was interrupted"
        assert python.get("kept") == (1,)
    # The time that tools take is their own.
    python.tools["slow"] = lambda: time.sleep(4)
    assert python.run("slow(); 3", timeout=3).value == 3
    error = python.run("raise KeyboardInterrupt").error
    assert error is not None and (error.kind, error.name) == ("error", "KeyboardInterrupt")


STUBBORN = (
    "import time\nprint('begun')\n"
    "while True:\n    try: time.sleep(600)\n    except BaseException: pass"
)


def test_code_that_cannot_be_interrupted_is_ended_and_says_so(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_python, "GRACE_SECONDS", 1.0)
    with Interpreter(box) as python:
        with pytest.raises(InterpreterDied, match="could not be interrupted; all names") as died:
            python.run(STUBBORN, timeout=5)
        assert died.value.stdout == "begun\n" and not python.is_running
        error = python.run("time").error
        assert error is not None and error.name == "NameError"
    with Interpreter(box, timeout=5, restarts=False) as python:
        with pytest.raises(InterpreterDied, match="make a new interpreter"):
            python.run(STUBBORN)
        with pytest.raises(InterpreterDied, match="could not be interrupted"):
            python.run("1")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os._exit(3)", "exit status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by a signal"),
        ("import ctypes; ctypes.string_at(0)", "ended by a signal"),
    ],
)
def test_a_process_that_dies_is_told_of(python: Interpreter, code: str, why: str) -> None:
    with pytest.raises(InterpreterDied, match=why):
        python.run(code)
    assert python.run("1").value == 1


def test_a_program_that_speaks_for_the_interpreter_is_not_believed(python: Interpreter) -> None:
    # The descriptor is there to be found; what is said on it is looked at.
    find = (
        "import os\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try:\n"
        "        if int(name) > 2 and os.write(int(name), b'%s\\n'): pass\n"
        "    except OSError: pass\n"
        "import time; time.sleep(600)"
    )
    for forged in (
        "hello",
        "[1]",
        '{"is": "done", "id": "x"}',
        '{"is": "call", "call": 1}',
        '{"is": "output", "stream": 3, "text": ""}',
        "[" * 100_000,
    ):
        with pytest.raises(InterpreterDied, match="what it said does not read"):
            python.run(find % forged, timeout=60)


def test_one_piece_at_a_time(python: Interpreter) -> None:
    inner: list[str] = []

    def again() -> None:
        try:
            python.run("1")
        except RuntimeError as error:
            inner.append(str(error))

    python.tools["again"] = again
    assert python.run("again(); 2").value == 2
    assert inner == ["a piece of code already runs here: wait for it, or use another one"]


def test_two_in_one_sandbox_have_names_of_their_own(box: Sandbox) -> None:
    with Interpreter(box) as one, Interpreter(box) as other:
        one.run("x = 1")
        error = other.run("x").error
        assert error is not None and error.name == "NameError"


def test_a_sandbox_that_is_dropped_or_stopped_ends_it(project: pathlib.Path) -> None:
    for end in (lambda box: box.drop(force=True), lambda box: box.stop()):
        box = Sandbox.create(project)
        try:
            python = Interpreter(box, restarts=False)
            python.tools["end"] = lambda end=end, box=box: end(box)
            with pytest.raises(InterpreterDied, match="the interpreter has ended"):
                python.run("end()\nimport time; time.sleep(600)")
            python.close()
        finally:
            box.drop(force=True)
    with pytest.raises((InterpreterDied, OSError)):
        Interpreter(box).start()


def test_limits_of_the_run_are_told(box: Sandbox) -> None:
    python = Interpreter(box, pids=64, output=3 << 20, output_max=1 << 30)
    with pytest.raises(InterpreterDied, match="its output limit"):
        python.run("for _ in range(1000): print('x' * 100_000)")
    with pytest.raises(ValueError, match="above zero"):
        Interpreter(box, timeout=0)


def test_a_python_that_is_not_there(box: Sandbox) -> None:
    with pytest.raises(InterpreterDied, match="there is no Python here: nowhere"):
        Interpreter(box, python="nowhere").start()


def test_modules_of_the_project_do_not_stand_in_for_pythons_own(
    home: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for name in ("json", "ast", "queue", "traceback"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('mine')\n")
    (tmp_path / "mine.py").write_text("x = 4\n")
    with Sandbox.create(tmp_path) as box, Interpreter(box) as python:
        assert python.run("import mine; mine.x").value == 4


def test_a_closed_one_stays_closed(box: Sandbox) -> None:
    python = Interpreter(box)
    python.close()
    with pytest.raises(InterpreterDied, match="was closed"):
        python.run("1")


def test_ctrl_c_calls_the_code_off_and_keeps_the_names(project: pathlib.Path) -> None:
    code = (
        "from fractal import Sandbox\nfrom fractal.adapters._python import Interpreter\n"
        f"with Sandbox.create({str(project)!r}) as box, Interpreter(box) as python:\n"
        "    python.tools['tell'] = lambda: print('begun', flush=True)\n"
        "    try: python.run('kept = 1; tell(); import time; time.sleep(600)')\n"
        "    except KeyboardInterrupt: print('called off', python.get('kept'))\n"
    )
    with interruptible(code) as started:
        assert started.stdout is not None and started.stdout.readline() == "begun\n"
        started.send_signal(signal.SIGINT)
        assert started.stdout.read() == "called off (1,)\n"


def test_a_server_that_breaks_off_is_told_of(project: pathlib.Path, tmp_path: pathlib.Path) -> None:
    server = subprocess.Popen(
        [os.environ["FRACTAL"], "serve", "--listen", "127.0.0.1:0"],
        cwd=project,
        env={**os.environ, "FRACTAL_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        next(line for line in server.stderr if "http://127.0.0.1" in line)
        with SandboxClient(f"unix://{tmp_path}/server.sock", timeout=120) as client:
            box = client.create(project)
            python = Interpreter(box, tools={"kill": server.kill})
            with pytest.raises(InterpreterDied, match="the server broke off"):
                python.run("kill()\nimport time; time.sleep(600)")
            python.close()
    finally:
        server.kill()
        server.wait(60)
        server.stderr.close()
    SandboxClient(home=tmp_path).open(box.name, project).drop(force=True)
    engine(tmp_path).settle()


def runs(words: str) -> bool:
    """Whether some process of this machine was started with these words."""
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().replace(b"\0", b" ").strip() == words.encode():
                return True
        except OSError:
            pass  # it is over
    return False


def test_nothing_runs_on_after_the_end(box: Sandbox) -> None:
    words = f"sleep {600_000_000 + os.getpid()}"
    with Interpreter(box) as python:
        python.run(f"import subprocess; p = subprocess.Popen({words.split()!r})")
        assert runs(words)
    assert not runs(words)
    assert box.commands.list() == []


@pytest.fixture(scope="module")
def served(project: pathlib.Path) -> Iterator[SandboxClient]:
    program = os.environ["FRACTAL"]
    server = subprocess.Popen(
        [program, "serve", "--listen", "127.0.0.1:0"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        line = next(line for line in server.stderr if "http://127.0.0.1" in line)
        url = "http://127.0.0.1" + line.split("http://127.0.0.1")[1].split()[0].strip("/,")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        key = subprocess.run(
            [program, "key", "create", "--role", "admin", "--name", "adapters"],
            cwd=project,
            capture_output=True,
            text=True,
            check=True,
        )
        with SandboxClient(url, key.stdout.strip(), timeout=120) as client:
            yield client
    finally:
        server.terminate()
        server.wait(60)


def test_the_same_through_a_server(served: SandboxClient) -> None:
    with served.create() as box, Interpreter(box, tools={"add": lambda a, b: a + b}) as python:
        assert python.run("print('ä'); add(1, 2)").value == 3
        piece = python.run("import time; time.sleep(600)", timeout=1)
        assert piece.error is not None and piece.error.kind == "timeout"
        large = "x" * (2 << 20)
        assert python.run("len(large)", {"large": large}).value == len(large)
        with pytest.raises(InterpreterDied, match="exit status 3"):
            python.run("import os; os._exit(3)")
        assert python.run("1").value == 1
    with pytest.raises(ValueError, match="are its own: write one into its settings"):
        _topology.create(client=served, volume_name="memory")


def test_a_volume_outlives_sandboxes_and_takes_uploads(
    project: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    every = bytes(range(256)) * 5000
    (tmp_path / "tree/inner").mkdir(parents=True)
    (tmp_path / "tree/inner/bin").write_bytes(every)
    with _topology.create(project, volume_name="kept.notes") as box:
        assert _topology.upload(box, tmp_path / "tree") == "/data/tree"
        assert _topology.upload(box, tmp_path / "tree/inner/bin", "a/b c") == "/data/a/b c"
        assert _topology.upload(box, b"", "empty") == "/data/empty"
        for wrong in ("../x", "/etc/x", "", "a/../../x"):
            with pytest.raises(ValueError, match="no path below /data"):
                _topology.upload(box, b"x", wrong)
        with pytest.raises(OSError, match="is a directory"):
            _topology.upload(box, b"x", "a")
        with pytest.raises(ValueError, match="bytes have no name"):
            _topology.upload(box, b"x")
        assert box.run("echo no > /src/x").exit_code != 0
        assert box.run("pwd; cat /src/notes.txt").stdout == "/workspace\none\n"
    with _topology.create(project, volume_name="kept.notes") as box:
        assert box.files.read("/data/tree/inner/bin", "bytes") == every
        assert box.files.read("/data/a/b c", "bytes") == every
        assert [entry.name for entry in box.files.list("/data/a")] == ["b c"]
    with _topology.create(project) as box:
        assert not box.files.exists("/data/a")
    with pytest.raises(ValueError, match="no name for a volume"):
        _topology.create(project, volume_name='x" }]')
    with pytest.raises(ValueError, match="`template` or `volume_name`"):
        _topology.create(project, volume_name="x", template="clone")
    with Sandbox.create(project) as box, pytest.raises(OSError, match="there is no /data"):
        _topology.upload(box, b"x", "x")
