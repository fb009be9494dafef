"""The sandboxes of openai-agents, as it is on PyPI, through the E2B door.

The model is the scripted one that the package ships for tests.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Runner
from agents.extensions.sandbox.e2b import (
    E2BSandboxClient,
    E2BSandboxClientOptions,
    E2BSandboxType,
)
from agents.run import RunConfig
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import Dir, File
from agents.sandbox.errors import (
    ExecTimeoutError,
    InvalidManifestPathError,
    SandboxError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSession
from agents.testing import ModelCall, ScriptedModel, assistant_message, function_call
from e2b import Sandbox
from e2b_door import Door, door, examples, play
from openai.types.responses import ResponseCustomToolCall

assert door  # a fixture

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="skipped: it works in /workspace, which sandboxes of root alone have"
)

OPTIONS = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, timeout=600)


@asynccontextmanager
async def started(
    manifest: Manifest | None = None, options: E2BSandboxClientOptions = OPTIONS, **how: Any
) -> AsyncIterator[SandboxSession]:
    session = await E2BSandboxClient().create(manifest=manifest, options=options, **how)
    async with session:
        yield session


def with_session(work: Callable[[SandboxSession], Awaitable[None]], **how: Any) -> None:
    async def whole() -> None:
        async with started(**how) as session:
            await work(session)

    asyncio.run(whole())


def sandbox_id(session: SandboxSession) -> str:
    return str(session.state.sandbox_id)  # type: ignore[attr-defined]


def turn(name: str, call_id: str, **arguments: Any) -> list[Any]:
    return [function_call(name, arguments, call_id=call_id)]


def patch(call_id: str, operations: str) -> ResponseCustomToolCall:
    whole = f"*** Begin Patch\n{operations}*** End Patch\n"
    return ResponseCustomToolCall(
        type="custom_tool_call", name="apply_patch", call_id=call_id, input=whole
    )


def told(call: ModelCall) -> str:
    """What the tool said that the model had called before."""
    return str(call.input[-1]["output"])


@pytest.mark.parametrize("kind", list(E2BSandboxType))
def test_an_agent_works_in_a_sandbox_that_the_runner_makes_and_ends(
    door: Door, kind: E2BSandboxType
) -> None:
    model = ScriptedModel(
        [
            turn("exec_command", "1", cmd="cat task.md && ls -1"),
            [patch("2", "*** Add File: src/add.py\n+def add(a, b):\n+    return a + b\n")],
            turn("exec_command", "3", cmd="python3 -c 'from src.add import add; print(add(2, 40))'"),
            turn("exec_command", "4", cmd="exit 7"),
            [assistant_message("42, as asked")],
        ]
    )
    manifest = Manifest(entries={"task.md": File(content=b"Add two numbers.\n")})
    agent = SandboxAgent(name="Fixer", model=model, default_manifest=manifest)
    options = E2BSandboxClientOptions(sandbox_type=kind, timeout=600)
    sandbox = SandboxRunConfig(client=E2BSandboxClient(), options=options)
    config = RunConfig(sandbox=sandbox, tracing_disabled=True)
    result = asyncio.run(Runner.run(agent, "Do the task.", run_config=config))

    assert result.final_output == "42, as asked"
    model.assert_complete()
    seen = [told(call) for call in model.calls[1:]]
    assert "Add two numbers.\ntask.md" in seen[0] and "exited with code 0" in seen[0]
    assert "42" in seen[2] and "exited with code 7" in seen[3]
    assert door.sandboxes() == []
    assert sorted(path.name for path in door.project.iterdir()) == ["README"]


def test_a_manifest_is_there_from_the_start(door: Door) -> None:
    manifest = Manifest(
        entries={
            "notes": Dir(children={"a.txt": File(content=b"a\n"), "raw": File(content=b"\x00\xff")}),
        },
        environment={"value": {"GREETING": "hello there"}},
    )

    async def work(session: SandboxSession) -> None:
        done = await session.exec('printf "%s in %s\\n" "$GREETING" "$PWD"; cat notes/a.txt')
        assert (done.stdout, done.exit_code) == (b"hello there in /workspace\na\n", 0)
        assert (await session.read(Path("notes/raw"))).read() == b"\x00\xff"
        assert door.inside(sandbox_id(session), "od -An -tx1 /workspace/notes/raw") == " 00 ff\n"

    with_session(work, manifest=manifest)


def test_files_are_written_listed_moved_and_removed(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        data = bytes(range(256)) * 8192
        await session.write(Path("deep/er/data"), io.BytesIO(data))
        assert (await session.read(Path("deep/er/data"))).read() == data
        assert await session.read_bounded(Path("deep/er/data"), max_bytes=3) == b"\x00\x01\x02"
        await session.mv("deep/er/data", "deep/er/moved")
        await session.mkdir("deep/more")
        listed = {entry.path.rsplit("/", 1)[-1]: entry.kind.value for entry in await session.ls("deep")}
        assert listed == {"er": "directory", "more": "directory"}
        await session.rm("deep", recursive=True)
        assert await session.ls(".") == []
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("deep/er/moved"))

    with_session(work)


def test_a_session_keeps_to_its_workspace(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        await session.exec("ln -s /etc leads-out")
        for path in ("../outside", "/etc/passwd", "leads-out/passwd"):
            with pytest.raises(InvalidManifestPathError):
                await session.read(Path(path))
        with pytest.raises(InvalidManifestPathError):
            await session.write(Path("leads-out/new"), io.BytesIO(b"x"))

    with_session(work)


def test_commands_have_two_outputs_a_status_and_a_time_limit(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        done = await session.exec("echo out; echo err >&2; exit 3")
        assert (done.stdout, done.stderr, done.exit_code) == (b"out\n", b"err\n", 3)
        done = await session.exec("printf", "%s|", "two words", "$HOME", shell=False)
        assert done.stdout == b"two words|$HOME|"
        done = await session.exec("yes 0123456789 | head -c 3000000")
        assert len(done.stdout) == 3_000_000
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 600", timeout=1)
        assert (await session.exec("echo on")).stdout == b"on\n"

    with_session(work)


def test_a_program_goes_on_between_turns(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start(
            "while read -r line; do echo \"heard $line\"; done; echo over; exit 4",
            shell=["sh", "-c"], tty=True, yield_time_s=1,
        )
        assert begun.process_id is not None and begun.exit_code is None
        heard = await until(session, begun.process_id, "one\n", "heard one")
        assert "heard one" in heard
        # The shell at the terminal goes on; the program ends it with its own.
        await session.pty_terminate_all()
        with pytest.raises(SandboxError):
            await session.pty_write_stdin(session_id=begun.process_id, chars="two\n")

    with_session(work)


async def until(session: SandboxSession, number: int, chars: str, wanted: str) -> str:
    """Writes, and listens until something is heard, for a while."""
    heard = ""
    for _ in range(20):
        update = await session.pty_write_stdin(session_id=number, chars=chars, yield_time_s=1)
        heard, chars = heard + update.output.decode(), ""
        if wanted in heard:
            break
    return heard


def test_a_program_without_a_terminal_says_how_it_ended(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        update = await session.pty_exec_start("sleep 1; echo done; exit 5", yield_time_s=30)
        assert (update.output, update.exit_code, update.process_id) == (b"done\n", 5, None)

    with_session(work)


def test_a_snapshot_brings_the_workspace_into_a_new_sandbox(door: Door, tmp_path: Path) -> None:
    spec = LocalSnapshotSpec(base_path=tmp_path)

    async def whole() -> None:
        client = E2BSandboxClient()
        session = await client.create(options=OPTIONS, snapshot=spec)
        async with session:
            await session.write(Path("kept/file"), io.BytesIO(b"kept\x00"))
            await session.exec("ln -s file kept/link; chmod 700 kept/file")
        first = sandbox_id(session)
        payload = client.serialize_session_state(session.state)
        assert door.sandboxes() == [], "closing ends the sandbox"

        again = await client.resume(client.deserialize_session_state(payload))
        async with again:
            assert sandbox_id(again) != first
            assert (await again.read(Path("kept/link"))).read() == b"kept\x00"
            done = await again.exec("stat -c %a kept/file; readlink kept/link")
            assert done.stdout == b"700\nfile\n"

    asyncio.run(whole())


def test_a_native_snapshot_keeps_the_whole_sandbox(door: Door, tmp_path: Path) -> None:
    options = OPTIONS.model_copy(update={"workspace_persistence": "snapshot"})
    spec = LocalSnapshotSpec(base_path=tmp_path)

    async def whole() -> None:
        client = E2BSandboxClient()
        session = await client.create(options=options, snapshot=spec)
        async with session:
            await session.exec("echo work > file; echo beside > /tmp/beside")
        again = await client.resume(session.state)
        async with again:
            done = await again.exec("cat file /tmp/beside")
            assert done.stdout == b"work\nbeside\n"

    asyncio.run(whole())
    forget_snapshots()


def forget_snapshots() -> None:
    """Snapshots outlive sandboxes; they keep one each."""
    pages = Sandbox.list_snapshots()
    while pages.has_next:
        for made in pages.next_items():
            assert Sandbox.delete_snapshot(made.snapshot_id)


def test_a_paused_session_goes_on_where_it_was(door: Door) -> None:
    options = OPTIONS.model_copy(update={"pause_on_exit": True})

    async def whole() -> None:
        client = E2BSandboxClient()
        session = await client.create(options=options)
        async with session:
            await session.exec("echo here > file")
        assert door.sandboxes() == [sandbox_id(session)]
        again = await client.resume(session.state)
        async with again:
            assert sandbox_id(again) == sandbox_id(session)
            assert (await again.exec("cat file")).stdout == b"here\n"
            again.state.pause_on_exit = False  # type: ignore[attr-defined]

    asyncio.run(whole())
    assert door.sandboxes() == []


def test_a_sandbox_that_is_dropped_under_a_session_is_an_error(door: Door) -> None:
    async def whole() -> None:
        session = await E2BSandboxClient().create(options=OPTIONS)
        async with session:
            assert await session.running()
            door.drop(sandbox_id(session))
            with pytest.raises(SandboxError):
                await session.exec("true")
            assert not await session.running()

    asyncio.run(whole())


def test_many_commands_at_once_do_not_mix(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        asked = [session.exec(f"sleep 0.{n}; echo {n}; cat /proc/self/stat >/dev/null") for n in range(8)]
        done = await asyncio.gather(*asked)
        assert [one.stdout for one in done] == [f"{n}\n".encode() for n in range(8)]

    with_session(work)


def test_a_cancelled_turn_leaves_a_session_that_works(door: Door) -> None:
    async def work(session: SandboxSession) -> None:
        running = asyncio.create_task(session.exec("echo $$ > pid; exec sleep 600"))
        while not (await session.exec("cat pid")).stdout:
            await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await session.exec("echo on")).stdout == b"on\n"

    with_session(work)


def test_what_the_guide_shows_runs(door: Door) -> None:
    for source in examples("e2b-door.md", "openai-agents"):
        model = ScriptedModel(
            [turn("exec_command", "1", cmd="cat greeting.txt"), [assistant_message("It says hello.")]]
        )
        assert play(source, model=model)["result"].final_output == "It says hello."
        assert "hello" in told(model.calls[1])
