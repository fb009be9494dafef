"""Sessions of llm-sandbox in our sandboxes.

llm-sandbox ships tests with mocked containers and tests of its own launchers,
and none that a back end of somebody else could run. What its local back end
answers, with real processes, is the truth here instead.
"""

from __future__ import annotations

import base64
import io
import pathlib
import re
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from llm_sandbox import ArtifactSandboxSession, SandboxSession
from llm_sandbox.backends import get_backend
from llm_sandbox.exceptions import (
    CommandEmptyError,
    CommandFailedError,
    ContainerError,
    LibraryInstallationNotSupportedError,
    NotOpenSessionError,
    SandboxError,
    SandboxTimeoutError,
    SecurityError,
    SecurityViolationError,
    ValidationError,
)
from llm_sandbox.local.session import LocalProcessSession
from llm_sandbox.security import RestrictedModule, SecurityIssueSeverity, SecurityPolicy

from fractal import Sandbox, sandboxes
from fractal.adapters import _archives
from fractal.adapters.llm_sandbox import FractalSession

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/llm_sandbox.md"


@pytest.fixture(scope="module")
def project(home: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("project")
    (path / "notes.txt").write_text("one\n")
    return path


@pytest.fixture(scope="module")
def session(project: pathlib.Path) -> Iterator[FractalSession]:
    with SandboxSession(backend="fractal", directory=project) as session:
        yield session


@pytest.fixture(autouse=True)
def _nothing_stays(home: pathlib.Path) -> Iterator[None]:
    before = set(sandboxes())
    yield
    assert set(sandboxes()) == before


class Local(LocalProcessSession):
    """Their local back end, with nothing around its processes."""

    @contextmanager
    def _launch_command(
        self, command: str, workdir: str
    ) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        place = str(self.workspace)
        environment = [f"{name}={value}" for name, value in self._environment().items()]
        command = command.replace(self.config.workdir, place)
        yield ["/usr/bin/env", "-i", *environment, "sh", "-c", f"cd {place} && {command}"], ()


CODES = [
    "print('hi')",
    "import sys; print('e', file=sys.stderr)",
    "import sys; sys.exit(3)",
    "print('ä' * 100_000)",
    "import os; print(os.listdir('.') == [os.path.basename(__file__)], __name__)",
    "input()",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "open('kept', 'w').write('1')",
    "print(open('kept').read())",
    "",
]
COMMANDS = ["true", "exit 7", "echo $0 | wc -l; echo oops >&2", "nowhere", "printf 'a\\nb'", "cat"]


def answers(session: Any) -> list[Any]:
    told: list[Any] = []
    for code in CODES:
        done = session.run(code)
        told.append((code, done.exit_code, done.stdout, re.sub(r"/\S*/", "/", done.stderr)))
    for command in COMMANDS:
        done = session.execute_command(command)
        told.append((command, done.exit_code, done.stdout, re.sub(r"^.*: ", "", done.stderr)))
    return told


def test_it_answers_as_their_local_one(project: pathlib.Path) -> None:
    with Local(skip_environment_setup=True) as own:
        expected = answers(own)
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}  # as theirs has it
    with SandboxSession(backend="fractal", directory=project, env_vars=path) as ours:
        found = answers(ours)
    names = re.compile(r"[0-9a-f]{32}")
    blank = [tuple(names.sub("X", str(part)) for part in line) for line in found]
    assert blank == [tuple(names.sub("X", str(part)) for part in line) for line in expected]


def test_it_is_registered_for_what_it_can(session: FractalSession) -> None:
    able = get_backend("fractal").capabilities
    assert able.filesystem_isolation and able.network_isolation and able.platforms == ("linux",)
    assert not (able.container_images or able.pooling or able.interactive or able.daemon_required)
    assert isinstance(session, FractalSession)
    with pytest.raises(ValidationError, match="does not support container pooling"):
        SandboxSession(backend="fractal", pool=object())


def test_the_machine_stays_as_it_is(session: FractalSession, project: pathlib.Path) -> None:
    notes = project / "notes.txt"
    done = session.run(
        f"open({str(notes)!r}, 'a').write('two\\n'); print(open({str(notes)!r}).read())"
    )
    assert done.stdout == "one\ntwo\n\n" and notes.read_text() == "one\n"
    assert not pathlib.Path("/sandbox").exists()
    assert "+two" in session.sandbox.diff()
    assert session.run("import socket; socket.create_connection(('1.1.1.1', 53), 2)").exit_code == 1


def test_other_languages(project: pathlib.Path) -> None:
    with SandboxSession(backend="fractal", lang="javascript", directory=project) as session:
        done = session.run("console.log(process.cwd()); console.error('e'); process.exit(4)")
        assert (done.exit_code, done.stdout, done.stderr) == (4, "/sandbox\n", "e\n")
        assert session.sandbox.run("true").exit_code == 0


def test_files_and_directories_come_and_go(session: FractalSession, tmp_path: pathlib.Path) -> None:
    every = bytes(range(256)) * 20_000
    tree = tmp_path / "tree"
    (tree / "inner/none").mkdir(parents=True)
    (tree / "inner/bin").write_bytes(every)
    (tree / "run.sh").write_text("echo ran\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("/etc/passwd")
    (tree / "empty").touch()
    session.copy_to_runtime(str(tree), "/sandbox/in here/tree")
    assert session.execute_command("'./in here/tree/run.sh'").stdout == "ran\n"
    session.copy_from_runtime("in here/tree", str(tmp_path / "back"))
    back = tmp_path / "back/tree"
    assert (back / "inner/bin").read_bytes() == every and (back / "inner/none").is_dir()
    assert (back / "run.sh").stat().st_mode & 0o111 and not (back / "link").is_symlink()
    session.copy_from_runtime("in here/tree/inner/bin", str(tmp_path / "a/b/c"))
    assert (tmp_path / "a/b/c").read_bytes() == every
    session.copy_from_runtime("/sandbox/in here/tree/empty", str(tmp_path / "empty"))
    assert (tmp_path / "empty").read_bytes() == b""
    bits, told = session.get_archive("in here/tree/inner/bin")
    assert told["size"] == len(every) and told["name"] == "bin" and bits
    with pytest.raises(FileNotFoundError, match="nothing stands there"):
        session.copy_from_runtime("nowhere", str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError, match="on this machine"):
        session.copy_to_runtime(str(tmp_path / "nowhere"), "/sandbox/x")
    with pytest.raises(SecurityError):
        session.copy_to_runtime(str(tree), "/sandbox/../x")
    with pytest.raises(ContainerError, match="cannot be copied"):
        session.copy_to_runtime(str(tree / "empty"), "/proc/x/y")


def test_archives_that_lead_elsewhere_are_refused(tmp_path: pathlib.Path) -> None:
    for name in ("/x", "../x", "a/../../x"):
        bits = io.BytesIO()
        with tarfile.open(fileobj=bits, mode="w") as archive:
            archive.addfile(tarfile.TarInfo(name))
        bits.seek(0)
        with tarfile.open(fileobj=bits) as archive:
            with pytest.raises(ValueError, match="leads elsewhere"):
                _archives.unpack(archive, tmp_path / "to/here")
    assert list(tmp_path.iterdir()) == []


def test_output_is_heard_and_bounded(session: FractalSession, project: pathlib.Path) -> None:
    heard: list[str] = []
    wrong: list[str] = []
    code = (
        "import sys, time\nfor n in range(3): print(n); time.sleep(0.05)\n"
        "print('e', file=sys.stderr)"
    )
    done = session.run(code, on_stdout=heard.append, on_stderr=wrong.append)
    assert "".join(heard) == done.stdout == "0\n1\n2\n" and "".join(wrong) == done.stderr == "e\n"
    assert session.execute_command("printf '\\377\\n'").stdout == "\ufffd\n"
    assert len(session.run("print('x' * 10_000_000)").stdout) == 10_000_001

    def fail(text: str) -> None:
        raise LookupError(text)

    began = time.monotonic()
    with pytest.raises(LookupError, match="begun"):
        session.execute_command("echo begun; sleep 600", on_stdout=fail)
    assert time.monotonic() - began < 300
    with SandboxSession(backend="fractal", directory=project, output_max=100_000) as small:
        with pytest.raises(SandboxError, match="more than 100000 bytes"):
            small.execute_command("yes")
        assert small.execute_command("echo on").stdout == "on\n"


def test_time_limits_end_commands_and_not_the_session(project: pathlib.Path) -> None:
    options = {"backend": "fractal", "directory": project}
    with SandboxSession(**options, default_timeout=1) as session:
        session.run("open('kept', 'w').write('1')", timeout=300)
        for wait in ("import time; time.sleep(600)", "while True: pass"):
            with pytest.raises(SandboxTimeoutError, match="more than 1 seconds"):
                session.run(wait)
        with pytest.raises(SandboxTimeoutError) as raised:
            session.execute_command("sleep 600 & wait")
        assert raised.value.timeout_duration == 1
        with pytest.raises(SandboxTimeoutError):
            session.execute_commands(["sleep 0.6", "sleep 600"])
        assert session.run("print(open('kept').read())", timeout=300).stdout == "1\n"
        with pytest.raises(ValueError, match="above zero"):
            session.run("1", timeout=0)
        session.sandbox.run("true")
    with SandboxSession(**options, default_timeout=None) as session:
        assert session.run("print(1)").stdout == "1\n"


def test_a_session_that_is_over_says_so(project: pathlib.Path) -> None:
    session = SandboxSession(backend="fractal", directory=project)
    for _ in range(2):  # one may be opened again
        with pytest.raises(NotOpenSessionError):
            session.execute_command("true")
        session.open()
        name = session.sandbox.name
        session.open()
        assert session.sandbox.name == name
        with pytest.raises(CommandEmptyError):
            session.execute_command("")
        session.close(), session.close()
        assert name not in sandboxes()
    with SandboxSession(backend="fractal", directory=project) as session:
        closing = threading.Timer(0.5, session.close)
        closing.start()
        with pytest.raises(NotOpenSessionError):
            session.run("import time; time.sleep(600)", timeout=300)
        closing.join()
    with SandboxSession(backend="fractal", directory=project, session_timeout=5) as session:
        with pytest.raises((NotOpenSessionError, SandboxTimeoutError)):
            session.run("import time; time.sleep(600)", timeout=300)
        deadline = time.monotonic() + 300
        while session.is_open and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(NotOpenSessionError):
            session.run("1")
    with SandboxSession(backend="fractal", directory=project) as session:
        session.sandbox.drop(force=True)
        with pytest.raises(ContainerError):
            session.run("1")


def test_sandboxes_that_exist_are_taken_over_and_stay(project: pathlib.Path) -> None:
    with Sandbox.create(project) as box:
        options = {"container_id": box.name, "workdir": str(project)}
        with SandboxSession(backend="fractal", **options) as session:
            session.run("open('new.txt', 'w').write('x')")
        assert box.is_running() and box.files.read("new.txt") == "x"
    with pytest.raises(ContainerError, match="nowhere"):
        SandboxSession(backend="fractal", container_id="nowhere").open()


def test_libraries_are_installed_in_the_sandbox_alone(
    project: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with zipfile.ZipFile(project / "tiny_lib-1.0-py3-none-any.whl", "w") as wheel:
        info = "tiny_lib-1.0.dist-info"
        wheel.writestr("tiny_lib.py", "x = 7\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-lib\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    envs = {"PIP_FIND_LINKS": str(project), "PIP_NO_INDEX": "1"}
    options: dict[str, Any] = {"backend": "fractal", "directory": project, "env_vars": envs}
    with SandboxSession(**options, libraries=["tiny-lib"]) as session:
        assert session.run("import tiny_lib; print(tiny_lib.x)").stdout == "7\n"
    with SandboxSession(**options) as session:
        assert session.run("import tiny_lib").exit_code == 1
        assert (
            session.run("import tiny_lib; print(tiny_lib.x)", libraries=["tiny-lib"]).stdout
            == "7\n"
        )
        with pytest.raises(CommandFailedError, match="no-such-lib"):
            session.install(["no-such-lib"])
        assert session.execute_command("exit 3").exit_code == 3
    with SandboxSession(**options, skip_environment_setup=True) as session:
        with pytest.raises(LibraryInstallationNotSupportedError):
            session.install(["tiny-lib"])
    policy = SecurityPolicy(
        severity_threshold=SecurityIssueSeverity.HIGH,
        restricted_modules=[
            RestrictedModule(name="tiny-lib", description="no", severity=SecurityIssueSeverity.HIGH)
        ],
    )
    with SandboxSession(**options, security_policy=policy) as session:
        with pytest.raises(SecurityViolationError):
            session.install(["tiny-lib"])
        assert session.is_safe("import tiny-lib")[0] is False
    with pytest.raises(ModuleNotFoundError):
        __import__("tiny_lib")


def test_plots_are_collected(project: pathlib.Path) -> None:
    code = (
        "import pathlib\nplace = pathlib.Path('/tmp/sandbox_plots')\n"
        "place.mkdir(parents=True, exist_ok=True)\n"
        "(place / '1.png').write_bytes(bytes(range(256)))\n"
        "(place / '2.svg').write_text('<svg/>')\n(place / '3.png').symlink_to('/nowhere')\n"
        "print('drawn')"
    )
    with ArtifactSandboxSession(backend="fractal", directory=project) as session:
        done = session.run(code)
        contents = [base64.b64decode(plot.content_base64) for plot in done.plots]
        assert done.stdout.endswith("drawn\n") and contents == [bytes(range(256)), b"<svg/>"]
        assert session.run("print(1)", clear_plots=True).plots == []


def test_what_containers_have_is_translated_or_refused(project: pathlib.Path) -> None:
    given = {
        "mem_limit": "512m",
        "cpu_count": 1,
        "pids_limit": 77,
        "environment": ["WHO=ann"],
        "network_mode": "none",
    }
    with FractalSession(
        directory=project, runtime_configs=given, env_vars={"MORE": "x y"}
    ) as session:
        assert (
            session.run("import os; print(os.environ['WHO'], os.environ['MORE'])").stdout
            == "ann x y\n"
        )
        limits = session.sandbox.info()["policy"]["limits"]
        assert (limits["memory_bytes"], limits["cpu_milli"], limits["pids"]) == (
            512 << 20,
            1000,
            77,
        )
        done = session.run("x = bytearray(2 << 30)")
        assert done.exit_code != 0 and "memory" in done.stderr.lower()
    wrong: list[dict[str, Any]] = [
        {"image": "python"},
        {"dockerfile": "x"},
        {"commit_container": True},
        {"runtime_configs": {"privileged": True}},
        {"runtime_configs": {"network_mode": "bridge"}},
        {"runtime_configs": {"mem_limit": "many"}},
        {"workdir": "/a;b"},
        {"workdir": "/a/../b"},
        {"workdir": "/"},
        {"workdir": "here"},
        {"default_timeout": 0},
        {"execution_timeout": -1},
        {"session_timeout": float("nan")},
        {"env_vars": {"a=b": "x"}},
        {"env_vars": {"A": 1}},
        {"encoding_errors": "surrogateescape"},
        {"lang": "cobol"},
    ]
    for options in wrong:
        with pytest.raises(ValueError):
            FractalSession(**options)
    with pytest.raises(TypeError, match="is not told privileged"):
        FractalSession(privileged=True)
    with pytest.raises(ContainerError, match="no sandbox could be had"):
        FractalSession(directory=project / "nowhere").open()


def test_two_work_side_by_side(session: FractalSession) -> None:
    done: dict[int, str] = {}

    def work(n: int) -> None:
        done[n] = session.run(f"import time; time.sleep(0.2); print({n})", timeout=300).stdout

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join(300) for thread in threads]
    assert done == {n: f"{n}\n" for n in range(4)}


def test_the_guide(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "project").mkdir()
    (project / "project/notes.txt").write_text("one\n")
    monkeypatch.chdir(project)
    blocks = re.findall(
        r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 3
    printed: list[Any] = []
    names: dict[str, Any] = {"print": printed.append}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert printed == ["1,2,3\n"] and (project / "loud.txt").read_text() == "ONE\n"
