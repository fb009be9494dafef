"""Pydantic AI: its own suite for workspaces, and agents with a scripted model."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    WorkspaceRef,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import (
    Workspace,
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceReadOnlyError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_harness import FileSystem, Shell
from serving import serving

from fractal import Sandbox, SandboxClient
from fractal.adapters.pydantic_ai import FractalWorkspace, FractalWorkspaceBackend

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
# The suite checks what permissions forbid, and they forbid root nothing.
USER = "nobody" if IS_ROOT else None
ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Pydantic AI works with both."""
    backend: str = request.param
    return backend


@pytest.fixture
def project(home: pathlib.Path) -> Iterator[pathlib.Path]:
    """A project of whoever works in its sandboxes; and nothing is left of those."""
    path = pathlib.Path(tempfile.mkdtemp()).resolve()
    path.chmod(0o755)
    (path / "main.py").write_text("print(41)\n")
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
        os.chown(path / "main.py", NOBODY, NOBODY)
    yield path
    left = [info["name"] for info in SandboxClient().list()]
    for name in left:
        Sandbox.open(name).drop(force=True)
    shutil.rmtree(path)
    assert left == []


@pytest.fixture
async def backend(project: pathlib.Path) -> AsyncIterator[FractalWorkspaceBackend]:
    backend = FractalWorkspaceBackend(project, user=USER)
    yield backend
    await backend.drop()


class TestTheSuite(WorkspaceBackendSuite):
    """All 38 rules, with nothing opted out of and nothing skipped."""

    @pytest.fixture
    def backend(self, backend: WorkspaceBackend) -> WorkspaceBackend:
        return backend

    @pytest.fixture
    async def fresh_backend(
        self, project: pathlib.Path
    ) -> AsyncIterator[Callable[[], WorkspaceBackend]]:
        made: list[FractalWorkspaceBackend] = []

        def make() -> WorkspaceBackend:
            made.append(FractalWorkspaceBackend(project, user=USER))
            return made[-1]

        yield make
        for backend in made:
            await backend.drop()

    @pytest.fixture
    def attach_backend(self, project: pathlib.Path) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: FractalWorkspaceBackend(project, ref=ref, user=USER)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert isinstance(backend, FractalWorkspaceBackend)
            await backend.drop()

        return destroy


def test_the_suite_is_the_whole_one() -> None:
    rules = [name for name in dir(TestTheSuite) if name.startswith("test_")]
    print(f"Pydantic AI's suite of workspaces: {len(rules)} rules")
    assert len(rules) == 38


@pytest.mark.anyio
async def test_a_sandbox_dropped_by_others_is_unavailable(
    backend: FractalWorkspaceBackend,
) -> None:
    await backend.write_bytes(f"{await backend.working_dir()}/kept", b"yes")
    await anyio.to_thread.run_sync(lambda: Sandbox.open(backend.box.name).drop(force=True))
    with pytest.raises(WorkspaceUnavailableError):
        await backend.run(["true"])
    with pytest.raises(WorkspaceUnavailableError):
        await FractalWorkspaceBackend(ref=backend.ref).working_dir()


@pytest.mark.anyio
async def test_a_command_that_ends_everything_is_a_result(project: pathlib.Path) -> None:
    backend = FractalWorkspaceBackend(project)
    here = await backend.working_dir()
    await backend.write_bytes(f"{here}/kept", b"yes")
    with anyio.fail_after(120):
        result = await backend.run("kill -9 -1; kill -9 $PPID; sleep 600", shell=True)
    assert result.exit_code == 137
    assert await backend.read_bytes(f"{here}/kept") == b"yes"
    assert (await backend.run(["cat", "kept"])).stdout == "yes"
    await backend.drop()


@pytest.mark.anyio
async def test_too_much_output_is_refused_and_the_rest_goes_on(
    backend: FractalWorkspaceBackend,
) -> None:
    with pytest.raises(WorkspaceOutputLimitError) as raised:
        await backend.run(["yes"])
    assert raised.value.stdout.startswith("y\ny\n")
    assert (await backend.run(["pgrep", "-x", "yes"])).exit_code == 1


@pytest.mark.anyio
async def test_two_backends_at_once_share_what_runs(backend: FractalWorkspaceBackend) -> None:
    started = await backend.run("sleep 600 >/dev/null 2>&1 & echo $!", shell=True)
    other = FractalWorkspaceBackend(ref=backend.ref, user=USER)
    assert (await other.run(["kill", started.stdout.strip()])).exit_code == 0
    said: list[str] = []

    async def say(which: FractalWorkspaceBackend, word: str) -> None:
        script = 'sleep 0.1; echo "$WORD"'
        said.append((await which.run(script, shell=True, env={"WORD": word})).stdout)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(say, (backend, other)[number % 2], str(number))
    assert sorted(said, key=int) == [f"{number}\n" for number in range(20)]


@pytest.mark.anyio
async def test_what_is_no_workspace_here_is_refused(backend: FractalWorkspaceBackend) -> None:
    with pytest.raises(ValueError, match="ref of 'fractal'"):
        FractalWorkspaceBackend(ref=WorkspaceRef(provider="docker", id="x"))
    with pytest.raises(ValueError, match="above zero"):
        await backend.run(["true"], timeout=-1)
    with pytest.raises(ValueError, match="empty"):
        await backend.run([])


Step = ToolCallPart | str


def scripted(*steps: Step) -> FunctionModel:
    """Says one after the other."""
    left = list(steps)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = left.pop(0)
        part = TextPart(step) if isinstance(step, str) else step
        return ModelResponse(parts=[part])

    return FunctionModel(answer)


def call(tool: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments)


def returned(messages: list[ModelMessage]) -> list[str]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    parts = [part for request in requests for part in request.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def test_an_agent_edits_and_runs_a_project(project: pathlib.Path) -> None:
    workspace = FractalWorkspace[object](project, user=USER, network="none", memory=1 << 30)
    agent = Agent(capabilities=[workspace, Shell(), FileSystem()])
    model = scripted(
        call("edit_file", path="main.py", old_text="41", new_text="42"),
        call("run_command", command="python3 main.py | tee out.txt"),
        call("start_command", command="sleep 600"),
        "It prints 42 now.",
    )
    first = agent.run_sync("Repair main.py.", model=model)
    assert "42" in returned(first.all_messages())[1]
    ref = first.response.workspace_ref
    assert ref is not None and (project / "main.py").read_text() == "print(41)\n"

    # Another run goes on in the same sandbox, with what still runs there.
    model = scripted(
        call("run_command", command="cat out.txt; pgrep -x sleep >/dev/null && echo still"),
        call("read_file", path="out.txt"),
        "Done.",
    )
    second = agent.run_sync("Go on.", model=model, message_history=first.all_messages())
    assert "42\nstill" in returned(second.new_messages())[0]
    assert second.response.workspace_ref == ref

    box = Sandbox.open(ref.id)
    assert {change.path for change in box.changes()} >= {
        f"{project}/main.py",
        f"{project}/out.txt",
    }
    anyio.run(workspace.destroy, ref)
    assert not box.is_running()
    with pytest.raises(WorkspaceUnavailableError):
        again = scripted(call("run_command", command="true"), "Done.")
        agent.run_sync("Go on.", model=again, message_history=second.all_messages())


def test_tools_of_your_own_see_the_workspace(project: pathlib.Path) -> None:
    workspace = FractalWorkspace[object](project, user=USER, read_only=True)
    agent = Agent(capabilities=[workspace])

    @agent.tool
    async def look(ctx: RunContext[object]) -> str:
        with pytest.raises(WorkspaceReadOnlyError):
            await ctx.workspace.write_text("main.py", "")
        return await ctx.workspace.read_text("main.py")

    result = agent.run_sync("Look.", model=scripted(call("look"), "Seen."))
    assert returned(result.all_messages()) == ["print(41)\n"]
    ref = result.response.workspace_ref
    assert ref is not None
    anyio.run(workspace.destroy, ref)


def test_messages_do_not_lead_into_other_sandboxes(project: pathlib.Path) -> None:
    with Sandbox.create(project, "private") as box:
        workspace = FractalWorkspace[object](project)
        ref = WorkspaceRef(provider="fractal", id=box.name)
        assert workspace.get_workspace(None, ref=ref) is None  # type: ignore[arg-type]
        # Who says so on purpose may.
        inside = Workspace(workspace.backend(ref))
        assert anyio.run(inside.read_text, "main.py") == "print(41)\n"
        anyio.run(workspace.destroy, ref)


def test_a_server_has_workspaces_too(project: pathlib.Path) -> None:
    with serving(project) as (url, key), SandboxClient(url, key) as client:
        workspace = FractalWorkspace[object](user=USER, client=client)
        agent = Agent(capabilities=[workspace, Shell(), FileSystem()])
        model = scripted(
            call("edit_file", path="main.py", old_text="41", new_text="42"),
            call("run_command", command="python3 main.py"),
            "It prints 42 now.",
        )
        result = agent.run_sync("Repair main.py.", model=model)
        assert "42" in returned(result.all_messages())[1]
        ref = result.response.workspace_ref
        assert ref is not None
        assert "+print(42)" in workspace.rest(ref).diff()
        anyio.run(workspace.destroy, ref)


def test_the_guide_runs(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs/guide/frameworks/pydantic_ai.md"
    monkeypatch.chdir(project)
    model = scripted(
        call("edit_file", path="main.py", old_text="41", new_text="42"),
        call("run_command", command="python3 main.py"),
        "It prints 42 now.",
        call("run_command", command="python3 main.py"),
        "Still 42.",
    )
    known: dict[str, Any] = {"model": model}
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), known)
