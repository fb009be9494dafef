"""Deep agents: LangChain's own tests of sandboxes, and agents with a scripted model."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests
from serving import serving

from fractal import Sandbox, SandboxClient
from fractal.adapters.deepagents import OUTPUT_BYTES_MAX, FractalBackend

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
# The suite checks what permissions forbid, and they forbid root nothing.
USER = "nobody" if IS_ROOT else None
ROOT = pathlib.Path(__file__).parents[3]
# The suite runs `python`, which not every machine has under this name.
ENV = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin"}

VERSION = tuple(map(int, importlib.metadata.version("deepagents").split(".")))
# The suite of langchain-tests 1.1.9 is that of deepagents 0.6. Later ones say
# otherwise in the contract of their `BackendProtocol`, and do so themselves.
WRITE = "since deepagents 0.7.0 `write` replaces what a file holds"
PATHS = "since deepagents 0.7.7 `glob` gives absolute paths, and files alone"
CONTRADICTED = ({"test_write_existing_file_fails": WRITE} if VERSION >= (0, 7, 0) else {}) | (
    {
        "test_glob": PATHS,
        "test_glob_basic_pattern": PATHS,
        "test_glob_with_directories": PATHS,
        "test_glob_hidden_files_explicitly": PATHS,
        "test_glob_with_character_class": PATHS,
        "test_glob_with_question_mark": PATHS,
    }
    if VERSION >= (0, 7, 7)
    else {}
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """What LangChain works with."""
    return "asyncio"


def make_project() -> pathlib.Path:
    path = pathlib.Path(tempfile.mkdtemp()).resolve()
    path.chmod(0o755)
    (path / "main.py").write_text("print(41)\n")
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
        os.chown(path / "main.py", NOBODY, NOBODY)
    return path


class TestTheSuite(SandboxIntegrationTests):
    pytestmark = pytest.mark.anyio

    @pytest.fixture(scope="class")
    def sandbox(self, home: pathlib.Path) -> Iterator[SandboxBackendProtocol]:
        project = make_project()
        with FractalBackend(project, user=USER, env=ENV) as backend:
            yield backend
        shutil.rmtree(project)

    @pytest.fixture(autouse=True)
    def what_contradicts(self, request: pytest.FixtureRequest) -> None:
        why = CONTRADICTED.get(request.node.name)
        if why is not None:
            request.applymarker(pytest.mark.xfail(reason=why, strict=True))


def test_the_suite_is_the_whole_one() -> None:
    names = [name for name in dir(TestTheSuite) if name.startswith("test_")]
    held = len(names) - len(CONTRADICTED)
    print(f"LangChain's suite of sandboxes: {held} of {len(names)}")
    for name, why in CONTRADICTED.items():
        print(f"  {name}: {why}")
    assert len(names) == 86 and CONTRADICTED.keys() <= set(names)


@pytest.fixture
def project(home: pathlib.Path) -> Iterator[pathlib.Path]:
    """A project of whoever works in its sandboxes; and nothing is left of those."""
    path = make_project()
    yield path
    left = [info["name"] for info in SandboxClient().list()]
    for name in left:
        Sandbox.open(name).drop(force=True)
    shutil.rmtree(path)
    assert left == []


@pytest.fixture
def backend(project: pathlib.Path) -> Iterator[FractalBackend]:
    with FractalBackend(project, user=USER) as backend:
        yield backend


def test_output_and_errors_come_in_order(backend: FractalBackend) -> None:
    done = backend.execute("echo one; echo two >&2; echo three; printf '\\377'; exit 3")
    assert (done.output, done.exit_code) == ("one\ntwo\nthree\n\ufffd", 3)
    assert backend.execute("cat").output == ""


def test_what_takes_too_long_is_ended(backend: FractalBackend) -> None:
    done = backend.execute("echo so far; sleep 600; :", timeout=1)
    assert done.exit_code == 124
    assert done.output == "so far\n[ended: it took longer than 1 seconds]\n"
    assert backend.execute("pgrep -x sleep").exit_code == 1
    with pytest.raises(ValueError, match="above zero"):
        backend.execute("true", timeout=-1)


def test_of_too_much_output_the_end_is_kept(backend: FractalBackend) -> None:
    much = f"head -c {OUTPUT_BYTES_MAX * 3} /dev/zero | tr '\\0' x"
    done = backend.execute(f"{much}; echo END; exit 4")
    assert done.truncated and done.exit_code == 4 and done.output.endswith("xEND\n")
    assert len(done.output) < OUTPUT_BYTES_MAX + 100


def test_a_command_may_be_long(backend: FractalBackend) -> None:
    done = backend.execute(f"echo '{'x' * 300_000}' | wc -c; exit 5")
    assert (done.output, done.exit_code) == ("300001\n", 5)


def test_what_is_left_in_the_background_goes_on(backend: FractalBackend) -> None:
    backend.execute("python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 &")
    fetch = "curl -sf http://127.0.0.1:8765/main.py"
    look = f"for n in $(seq 100); do {fetch} && break; sleep 0.1; done"
    assert backend.execute(look).output == "print(41)\n"


@pytest.mark.anyio
async def test_a_cancelled_command_ends(backend: FractalBackend) -> None:
    running = asyncio.create_task(backend.aexecute("echo > started; sleep 600; :"))
    while (await backend.aexecute("test -e started && pgrep -x sleep")).exit_code != 0:
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with anyio.fail_after(60):
        while (await backend.aexecute("pgrep -x sleep")).exit_code == 0:
            await asyncio.sleep(0.05)


def test_errors_of_files_are_those_that_agents_know(backend: FractalBackend) -> None:
    (done,) = backend.upload_files([("/etc/passwd/x", b"")])
    assert done.error == "invalid_path"
    (done,) = backend.upload_files([("/tmp", b"")])
    assert done.error == "is_directory"
    if IS_ROOT:
        (done,) = backend.upload_files([("/root/x", b"")])
        assert done.error == "permission_denied"
    assert backend.execute("mkfifo /tmp/fifo").exit_code == 0
    fifo, other = backend.download_files(["/tmp/fifo", "/etc/hostname"])
    assert fifo.error == "invalid_path" and other.content


def test_a_sandbox_that_is_gone_is_an_error(backend: FractalBackend) -> None:
    backend.execute("true")
    Sandbox.open(backend.id).drop(force=True)
    with pytest.raises(ConnectionError):
        backend.execute("true")
    with pytest.raises(ConnectionError):
        backend.download_files(["/etc/hostname"])


def test_what_ends_everything_inside_is_not_the_end(project: pathlib.Path) -> None:
    with FractalBackend(project) as backend:
        assert backend.execute("echo > kept; kill -9 -1; kill -9 $PPID; sleep 600").exit_code == 137
        assert backend.execute("ls kept").output == "kept\n"


def test_a_sandbox_that_is_there_stays(project: pathlib.Path) -> None:
    with Sandbox.create(project) as box:
        with FractalBackend(sandbox=box) as backend:
            backend.execute("echo 1 > made")
        assert box.files.read("made") == "1\n"
        with pytest.raises(ValueError, match="its own bounds"):
            FractalBackend(sandbox=box, memory=1 << 30)


class Scripted(GenericFakeChatModel):
    """Says one thing after the other, whatever tools there are."""

    def bind_tools(self, tools: Sequence[Any], **how: Any) -> Scripted:
        return self


def scripted(*steps: dict[str, Any] | str) -> Scripted:
    def message(step: dict[str, Any] | str, number: int) -> AIMessage:
        if isinstance(step, str):
            return AIMessage(step)
        return AIMessage("", tool_calls=[{**step, "id": f"call-{number}"}])

    return Scripted(messages=iter([message(step, n) for n, step in enumerate(steps)]))


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "args": arguments}


def told(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("artifacts", [*(["/"] if IS_ROOT else []), "/tmp/deep"])
def test_an_agent_edits_and_runs_a_project(artifacts: str, project: pathlib.Path) -> None:
    backend = FractalBackend(project, user=None if artifacts == "/" else USER)
    model = scripted(
        call("read_file", file_path=f"{project}/main.py"),
        call("edit_file", file_path=f"{project}/main.py", old_string="41", new_string="42"),
        call("execute", command="python3 main.py"),
        call("grep", pattern="42", path=str(project), output_mode="content"),
        call("execute", command="seq 200000"),
        call("write_file", file_path="/tmp/notes/said.md", content="It prints 42.\n"),
        call("execute", command="cat /tmp/notes/said.md; false"),
        "Done.",
    )
    place = CompositeBackend(default=backend, routes={}, artifacts_root=artifacts)
    agent = create_deep_agent(model=model, backend=backend if artifacts == "/" else place)
    state = agent.invoke({"messages": [HumanMessage("It should print 42.")]})
    read, edited, ran, found, much, wrote, last = told(state["messages"])
    assert "print(41)" in read and "42" in ran and "main.py" in found
    assert "200000" in much and len(much) < 100_000
    assert "It prints 42." in last and "1" in last
    assert state["messages"][-1].content == "Done."
    assert (project / "main.py").read_text() == "print(41)\n"
    assert "+print(42)" in backend.box.diff()
    kept = backend.execute(f"grep -x 200000 {artifacts.rstrip('/')}/large_tool_results/*")
    assert kept.output == "200000\n"
    backend.close()


def test_two_agents_at_once_do_not_meet(project: pathlib.Path) -> None:
    async def work(number: int) -> str:
        with FractalBackend(project, user=USER) as backend:
            model = scripted(
                call("execute", command=f"echo {number} >> seen; sleep 0.5; cat seen"), "Done."
            )
            agent = create_deep_agent(model=model, backend=backend)
            state = await agent.ainvoke({"messages": [HumanMessage("Go.")]})
            return told(state["messages"])[0]

    async def both() -> tuple[str, str]:
        return await asyncio.gather(work(1), work(2))

    first, second = asyncio.run(both())
    assert first.split()[0] == "1" and "2" not in first.split("\n")
    assert second.split()[0] == "2" and "1" not in second.split("\n")


def test_a_server_has_sandboxes_too(project: pathlib.Path) -> None:
    with serving(project) as (url, key), SandboxClient(url, key) as client:
        with FractalBackend(user=USER, client=client) as backend:
            assert backend.execute("cat main.py").output == "print(41)\n"
            data = bytes(range(256)) * 4000
            assert backend.upload_files([("/tmp/data", data)])[0].error is None
            assert backend.download_files(["/tmp/data"])[0].content == data


def test_the_guide_runs(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs/guide/frameworks/deepagents.md"
    monkeypatch.chdir(project)
    model = scripted(
        call("execute", command="sed -i s/41/42/ main.py && python3 main.py"),
        "It prints 42 now.",
    )
    known: dict[str, Any] = {"model": model}
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), known)
