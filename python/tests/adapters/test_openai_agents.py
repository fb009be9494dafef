"""The OpenAI Agents SDK in sandboxes, natively. The model is the scripted one
that the SDK ships for tests."""

from __future__ import annotations

import asyncio
import io
import os
import pathlib
import re
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Runner
from agents.run import RunConfig
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import Dir, File, LocalDir
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.types import FileMode, Group, Permissions, User
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from e2b_door import Door, opened
from fractal import Sandbox, SandboxClient, sandboxes
from fractal.adapters.openai_agents import (
    FractalSandboxClient,
    FractalSandboxClientOptions,
    sandbox_of,
)
from openai.types.responses import ResponseCustomToolCall

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/openai-agents.md"

pytestmark = pytest.mark.usefixtures("home", "nothing_left")


@pytest.fixture
def nothing_left(home: pathlib.Path) -> Any:
    """No sandbox outlives its test."""
    yield
    assert sandboxes() == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "main.py").write_text("print('hi')\n")
    (path / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (path / "run.sh").chmod(0o755)
    return path


def options(project: Path, **how: Any) -> FractalSandboxClientOptions:
    return FractalSandboxClientOptions(directory=str(project), **how)


@asynccontextmanager
async def started(
    project: Path, *, manifest: Manifest | None = None, snapshot: Any = None, **how: Any
) -> AsyncIterator[SandboxSession]:
    client = FractalSandboxClient()
    session = await client.create(
        manifest=manifest, snapshot=snapshot, options=options(project, **how)
    )
    async with session:
        yield session


def with_session(
    project: Path, work: Callable[[SandboxSession], Awaitable[None]], **how: Any
) -> None:
    async def whole() -> None:
        async with started(project, **how) as session:
            await work(session)

    asyncio.run(whole())


def turn(name: str, call_id: str, **arguments: Any) -> list[Any]:
    return [function_call(name, arguments, call_id=call_id)]


def patch(call_id: str, operations: str) -> list[Any]:
    whole = f"*** Begin Patch\n{operations}*** End Patch\n"
    return [
        ResponseCustomToolCall(
            type="custom_tool_call", name="apply_patch", call_id=call_id, input=whole
        )
    ]


def told(call: ModelCall) -> str:
    """What the tool said that the model had called before."""
    return str(call.input[-1]["output"])


def play(agent: SandboxAgent[None], sandbox: SandboxRunConfig) -> Any:
    config = RunConfig(sandbox=sandbox, tracing_disabled=True)
    return asyncio.run(Runner.run(agent, "Do the task.", run_config=config))


# An agent.


def test_an_agent_works_in_a_clone_of_the_project(project: Path) -> None:
    model = ScriptedModel(
        [
            turn("exec_command", "1", cmd="ls -1; python3 main.py"),
            patch("2", "*** Update File: main.py\n@@\n-print('hi')\n+print('hello')\n"),
            patch("3", "*** Add File: src/add.py\n+def add(a, b):\n+    return a + b\n"),
            turn("exec_command", "4", cmd="python3 main.py; python3 -c 'from src.add import add; print(add(2, 40))'"),
            turn("exec_command", "5", cmd="exit 7"),
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(name="Fixer", model=model)
    run = SandboxRunConfig(client=FractalSandboxClient(), options=options(project))
    assert play(agent, run).final_output == "done"
    model.assert_complete()
    seen = [told(call) for call in model.calls[1:]]
    assert "main.py\nrun.sh\nhi\n" in seen[0] and "exited with code 0" in seen[0]
    assert "hello\n42\n" in seen[3] and "exited with code 7" in seen[4]
    # The project itself is as it was.
    assert (project / "main.py").read_text() == "print('hi')\n"
    assert not (project / "src").exists()


def test_what_an_agent_did_is_promoted_and_undone(project: Path) -> None:
    model = ScriptedModel(
        [
            patch("1", "*** Update File: main.py\n@@\n-print('hi')\n+print('hello')\n"),
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(name="Fixer", model=model)

    async def whole() -> None:
        async with started(project) as session:
            run = SandboxRunConfig(session=session)
            config = RunConfig(sandbox=run, tracing_disabled=True)
            await Runner.run(agent, "Do the task.", run_config=config)
            box = sandbox_of(session)
            assert "+print('hello')" in await box.diff()
            brought = await box.promote()
            assert (project / "main.py").read_text() == "print('hello')\n"
            await box.undo(brought)

    asyncio.run(whole())
    assert (project / "main.py").read_text() == "print('hi')\n"


def test_a_program_that_asks_is_answered_in_later_turns(project: Path) -> None:
    def answer(call: ModelCall) -> list[Any]:
        number = re.search(r"session ID (\d+)", told(call))
        assert number, told(call)
        return turn("write_stdin", "2", session_id=int(number[1]), chars="ann\n", yield_time_ms=20_000)

    ask = "python3 -c \"print('hello', input('name? '))\"; exit 3"
    model = ScriptedModel(
        [turn("exec_command", "1", cmd=ask, tty=True, yield_time_ms=1500), ModelStep.respond(answer),
         [assistant_message("done")]]
    )
    agent = SandboxAgent(name="Asker", model=model)
    play(agent, SandboxRunConfig(client=FractalSandboxClient(), options=options(project)))
    assert "name? " in told(model.calls[1])
    assert "hello ann" in told(model.calls[2]) and "exited with code 3" in told(model.calls[2])


# A session.


def test_a_manifest_is_there_from_the_start(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Manifest(
        entries={
            "notes": Dir(children={"a.txt": File(content=b"a\n"), "raw": File(content=b"\x00\xff")}),
            "copied": LocalDir(src=project),
        },
        environment={"value": {"GREETING": "hello there"}},
    )

    async def work(session: SandboxSession) -> None:
        done = await session.exec('printf "%s in %s %s\\n" "$GREETING" "$PWD" "$MARK"; cat notes/a.txt')
        assert done.stdout == f"hello there in {project} here\na\n".encode()
        assert (await session.read(Path("notes/raw"))).read() == b"\x00\xff"
        assert (await session.exec("sh copied/run.sh")).stdout == b"ran\n"

    # Local sources lie below the current directory.
    monkeypatch.chdir(project.parent)
    with_session(project, work, manifest=manifest, envs={"MARK": "here", "GREETING": "no"})


def test_accounts_of_a_manifest_are_there_and_are_worked_as(project: Path) -> None:
    bob, eve = User(name="bob"), User(name="eve")
    project.chmod(0o755)
    manifest = Manifest(
        users=[bob],
        groups=[Group(name="staff2", users=[bob, eve]), Group(name="others", users=[eve])],
        entries={"secret": File(content=b"x", permissions=Permissions(owner=FileMode.ALL))},
    )

    async def work(session: SandboxSession) -> None:
        assert (await session.exec("id -un; id -Gn", user="bob")).stdout == b"bob\nbob staff2\n"
        groups = (await session.exec("id -Gn", user=eve)).stdout.split()
        assert sorted(groups) == [b"eve", b"others", b"staff2"]
        assert not (await session.exec("cat secret", user=bob)).ok()
        with pytest.raises(WorkspaceArchiveReadError):
            await session.read(Path("secret"), user=bob)
        begun = await session.pty_exec_start("id -un", user=bob, yield_time_s=20)
        assert begun.output == b"bob\n"
        numbers = (await session.exec("cut -d: -f3 /etc/group | sort | uniq -d")).stdout
        assert numbers == b"", "each group has a number of its own"

    if os.geteuid() == 0:
        with_session(project, work, manifest=manifest)
        return
    with pytest.raises(WorkspaceStartError) as caught:
        with_session(project, work, manifest=manifest)
    assert "accounts need a sandbox of root" in str(caught.value.context["reason"])
    [left] = sandboxes()
    Sandbox.open(left, project).drop()


def test_another_root_can_be_named(project: Path) -> None:
    root = str(project / "below" / "it")

    async def work(session: SandboxSession) -> None:
        await session.write(Path("file"), io.BytesIO(b"x"))
        assert (await session.exec("pwd; cat file")).stdout == f"{root}\nx".encode()
        with pytest.raises(InvalidManifestPathError):
            await session.read(project / "main.py")

    with_session(project, work, manifest=Manifest(root=root))


def test_files_are_written_listed_moved_and_removed(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        data = bytes(range(256)) * 8192
        await session.write(Path("deep/er/data"), io.BytesIO(data))
        assert (await session.read(Path("deep/er/data"))).read() == data
        assert await session.read_bounded(Path("deep/er/data"), max_bytes=3) == b"\x00\x01\x02"
        await session.write(Path("text"), io.StringIO("π\n"))  # type: ignore[arg-type]
        assert (await session.read(Path("text"))).read() == "π\n".encode()
        await session.mv("deep/er/data", "deep/er/moved")
        await session.mkdir("deep/more")
        listed = {entry.path.rsplit("/", 1)[-1]: entry.kind.value for entry in await session.ls("deep")}
        assert listed == {"er": "directory", "more": "directory"}
        await session.rm("deep", recursive=True)
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("deep/er/moved"))
        with pytest.raises(WorkspaceArchiveReadError):
            await session.read(Path("."))
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.write(Path("main.py/below"), io.BytesIO(b"x"))

    with_session(project, work)


def test_a_file_that_is_written_anew_keeps_its_mode(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        await session.write(Path("run.sh"), io.BytesIO(b"#!/bin/sh\necho again\n"))
        assert (await session.exec("./run.sh", shell=False)).stdout == b"again\n"

    with_session(project, work)


def test_a_session_keeps_to_its_workspace(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        await session.exec("ln -s /etc leads-out")
        for path in ("../outside", "/etc/passwd", "leads-out/passwd"):
            with pytest.raises(InvalidManifestPathError):
                await session.read(Path(path))
        with pytest.raises(InvalidManifestPathError):
            await session.write(Path("leads-out/new"), io.BytesIO(b"x"))

    with_session(project, work)


def test_commands_have_two_outputs_in_bytes_and_a_status(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        done = await session.exec(r"printf 'a\377b'; echo err >&2; exit 3")
        assert (done.stdout, done.stderr, done.exit_code) == (b"a\xffb", b"err\n", 3)
        done = await session.exec("printf", "%s|", "two words", "$HOME", shell=False)
        assert done.stdout == b"two words|$HOME|"
        assert (await session.exec("kill -9 $$")).exit_code == 137
        assert (await session.exec("cat")).stdout == b"", "it has no input"
        assert (await session.exec("no-such-program", shell=False)).exit_code in (126, 127)

    with_session(project, work)


def test_much_output_is_kept_up_to_a_bound_and_said_to_be_more(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        done = await session.exec("yes 0123456789 | head -c 3000000")
        assert len(done.stdout) == 3_000_000 and done.stderr == b""
        done = await session.exec("yes 0123456789 | head -c 30000000")
        assert done.exit_code == 0 and len(done.stdout) == 4 << 20
        assert b"more output than is kept" in done.stderr

    with_session(project, work)


def test_a_time_limit_ends_a_command_with_all_it_began(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        with pytest.raises(ExecTimeoutError) as caught:
            await session.exec("echo begun; (sleep 3; touch late) & sleep 600", timeout=1)
        assert caught.value.context["stdout"] == "begun\n"
        await asyncio.sleep(3)
        assert (await session.exec("ls late")).exit_code != 0

    with_session(project, work)


def test_a_cancelled_command_is_ended(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        running = asyncio.create_task(session.exec("touch begun; sleep 3; touch late"))
        while not (await session.exec("ls begun")).ok():
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(3)
        assert (await session.exec("ls late")).exit_code != 0
        # Also one that has hardly begun.
        soon = asyncio.create_task(session.exec("sleep 600"))
        await asyncio.sleep(0)
        soon.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon

    with_session(project, work)


def test_many_commands_at_once_do_not_mix(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        asked = [session.exec(f"sleep 0.{n}; echo {n} | tee file-{n}") for n in range(8)]
        done = await asyncio.gather(*asked)
        assert [one.stdout for one in done] == [f"{n}\n".encode() for n in range(8)]
        assert (await session.exec("cat file-*")).stdout == b"".join(one.stdout for one in done)

    with_session(project, work)


def test_a_service_of_one_command_is_reached_from_another(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start(
            "exec python3 -u -m http.server 8123 --bind 127.0.0.1", yield_time_s=0.5
        )
        ask = "for n in $(seq 100); do curl -sf 127.0.0.1:8123/main.py && break; sleep 0.1; done"
        assert (await session.exec(ask)).stdout == b"print('hi')\n"
        assert begun.process_id is not None

    with_session(project, work)


def test_files_are_written_while_a_program_goes_on(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start("sleep 600", yield_time_s=0.3)
        assert begun.process_id is not None
        for path in ("main.py", "new/file"):
            await session.write(Path(path), io.BytesIO(b"written\x00"))
            assert (await session.read(Path(path))).read() == b"written\x00"
        await session.apply_patch({"type": "create_file", "path": "patched", "diff": "+text\n"})
        assert (await session.exec("cat patched")).stdout == b"text"

    with_session(project, work)


def test_a_terminal_is_one_and_is_heard_in_pieces(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start(
            "tty; stty size; while read -r line; do echo \"heard $line\"; done; echo over; exit 4",
            shell=["sh", "-c"], tty=True, yield_time_s=2,
        )
        assert begun.process_id is not None and begun.exit_code is None
        assert re.search(rb"/dev/pts/\d+\r\n24 80", begun.output)
        number = begun.process_id
        heard = await until(session, number, "π one\n", "heard π one")
        assert "heard π one" in heard
        ended = await session.pty_write_stdin(session_id=number, chars="\x04", yield_time_s=20)
        assert b"over" in ended.output and ended.exit_code == 4 and ended.process_id is None
        with pytest.raises(PtySessionNotFoundError):
            await session.pty_write_stdin(session_id=number, chars="x")

    with_session(project, work)


async def until(session: SandboxSession, number: int, chars: str, wanted: str) -> str:
    """Writes, and listens until something is heard, for a while."""
    heard = ""
    for _ in range(40):
        update = await session.pty_write_stdin(session_id=number, chars=chars, yield_time_s=0.5)
        heard, chars = heard + update.output.decode(), ""
        if wanted in heard:
            break
    return heard


def test_an_interrupt_reaches_the_program_at_a_terminal(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start(
            "trap 'echo caught; exit 9' INT; echo ready; sleep 600", shell=["sh", "-c"],
            tty=True, yield_time_s=2,
        )
        assert b"ready" in begun.output and begun.process_id is not None
        ended = await session.pty_write_stdin(
            session_id=begun.process_id, chars="\x03", yield_time_s=20
        )
        assert b"caught" in ended.output and ended.exit_code == 9

    with_session(project, work)


def test_a_program_without_a_terminal_says_how_it_ended_and_reads_nothing(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        update = await session.pty_exec_start("sleep 0.5; echo done; exit 5", yield_time_s=30)
        assert (update.output, update.exit_code, update.process_id) == (b"done\n", 5, None)
        begun = await session.pty_exec_start("sleep 600", yield_time_s=0.3)
        assert begun.process_id is not None
        with pytest.raises(RuntimeError, match="stdin is not available"):
            await session.pty_write_stdin(session_id=begun.process_id, chars="x")

    with_session(project, work)


def test_output_that_nobody_asks_for_is_bounded(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start(
            "while [ ! -e go ]; do sleep 0.1; done; yes 0123456789 | head -c 5000000;"
            " echo the end; touch written; sleep 600",
            yield_time_s=0.25,
        )
        assert begun.process_id is not None and begun.output == b""
        await session.exec("touch go; while [ ! -e written ]; do sleep 0.1; done")
        late = await session.pty_write_stdin(session_id=begun.process_id, chars="")
        assert late.output.startswith(b"\n[") and b"bytes of output were not kept]" in late.output
        assert late.output.endswith(b"the end\n") and len(late.output) < 2 << 20

    with_session(project, work)


def test_a_program_that_does_not_read_holds_nobody_up(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fractal.adapters._terminal.STDIN_SECONDS_MAX", 1.0)

    async def work(session: SandboxSession) -> None:
        begun = await session.pty_exec_start(
            "kill -STOP $PPID; sleep 600", shell=["sh", "-c"], tty=True, yield_time_s=1
        )
        assert begun.process_id is not None
        with pytest.raises(TimeoutError, match="read nothing"):
            for _ in range(64):
                await session.pty_write_stdin(
                    session_id=begun.process_id, chars="x" * 100_000, yield_time_s=0.25
                )

    with_session(project, work)


# States.


def test_a_snapshot_brings_the_workspace_into_a_new_sandbox(project: Path, tmp_path: Path) -> None:
    spec = LocalSnapshotSpec(base_path=tmp_path / "snapshots")
    manifest = Manifest(entries={"passing": File(content=b"again", ephemeral=True)})

    async def whole() -> None:
        client = FractalSandboxClient()
        session = await client.create(options=options(project), snapshot=spec, manifest=manifest)
        async with session:
            await session.write(Path("kept/file"), io.BytesIO(b"kept\x00"))
            await session.exec("ln -s file kept/link; chmod 700 kept/file; rm main.py")
        first = sandbox_of(session).name
        payload = client.serialize_session_state(session.state)
        assert sandboxes() == [], "closing ends the sandbox"
        [archive] = (tmp_path / "snapshots").glob("*.tar")
        with tarfile.open(archive) as tar:
            assert "./kept/file" in tar.getnames() and "./passing" not in tar.getnames()

        again = await client.resume(client.deserialize_session_state(payload))
        async with again:
            assert sandbox_of(again).name != first
            assert (await again.read(Path("kept/link"))).read() == b"kept\x00"
            done = await again.exec("stat -c %a kept/file; readlink kept/link; ls; cat passing")
            assert done.stdout == b"700\nfile\nkept\npassing\nrun.sh\nagain"

    asyncio.run(whole())


def test_a_sandbox_that_is_kept_goes_on_where_it_was(project: Path) -> None:
    async def whole() -> None:
        client = FractalSandboxClient()
        session = await client.create(options=options(project, keep_on_exit=True, name="kept"))
        async with session:
            await session.exec("echo here > file; touch /tmp/beside")
        await client.delete(session)
        assert sandboxes() == ["kept"]
        state = client.deserialize_session_state(client.serialize_session_state(session.state))
        again = await client.resume(state)
        async with again:
            assert (await again.exec("cat file; ls /tmp/beside")).stdout == b"here\n/tmp/beside\n"

    asyncio.run(whole())
    with Sandbox.open("kept", project) as box:
        assert "+here" in box.diff()


def test_forks_are_sessions_of_their_own(project: Path) -> None:
    async def whole() -> None:
        client = FractalSandboxClient()
        session = await client.create(options=options(project))
        async with session:
            await session.exec("echo base > file")
            forks = [await client.fork(session) for _ in range(2)]
            for number, fork in enumerate(forks):
                async with fork:
                    await fork.exec(f"echo {number} >> file")
                    seen = (await fork.read(Path("file"))).read()
                    assert seen == f"base\n{number}\n".encode()
            assert (await session.read(Path("file"))).read() == b"base\n"

    asyncio.run(whole())


def test_an_archive_that_leads_out_is_refused(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        for name, link in (("../out", ""), ("/out", ""), ("link", "/etc/passwd")):
            raw = io.BytesIO()
            with tarfile.open(fileobj=raw, mode="w") as tar:
                member = tarfile.TarInfo(name)
                if link:
                    member.type, member.linkname = tarfile.SYMTYPE, link
                tar.addfile(member)
            raw.seek(0)
            with pytest.raises(WorkspaceArchiveWriteError):
                await session.hydrate_workspace(raw)
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.hydrate_workspace(io.BytesIO(b"no archive"))
        assert (await session.exec("ls /tmp/fractal-workspace-*")).exit_code != 0

    with_session(project, work)


def test_a_sandbox_that_is_dropped_under_a_session_is_an_error(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        assert await session.running()
        running = asyncio.create_task(session.exec("touch begun; sleep 600"))
        while not (await session.exec("ls begun")).ok():
            await asyncio.sleep(0.05)
        await sandbox_of(session).drop(force=True)
        done = await running
        assert done.exit_code == 137
        with pytest.raises(ExecTransportError, match="could not be run"):
            await session.exec("true")
        assert not await session.running()

    with_session(project, work)


def test_ports_are_exposed_with_the_network_of_the_machine_alone(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        with pytest.raises(ExposedPortUnavailableError):
            await session.resolve_exposed_port(8000)

    with_session(project, work, exposed_ports=(8000,))

    async def there(session: SandboxSession) -> None:
        endpoint = await session.resolve_exposed_port(8000)
        assert endpoint.url_for("http") == "http://127.0.0.1:8000/"

    with_session(project, there, exposed_ports=(8000,), network="host")


def test_limits_hold(project: Path) -> None:
    async def work(session: SandboxSession) -> None:
        hog = "import sys; block = b'x' * (600 << 20); print(len(block))"
        done = await session.exec("python3", "-c", hog, shell=False)
        assert done.exit_code != 0 and done.stdout == b""

    with_session(project, work, memory=256 << 20)


def test_a_template_that_is_not_there_is_named(project: Path) -> None:
    async def whole() -> None:
        with pytest.raises(FileNotFoundError, match="no-such"):
            await FractalSandboxClient().create(options=options(project, template="no-such"))

    asyncio.run(whole())


def test_a_home_of_its_own_can_be_named(project: Path, tmp_path: Path) -> None:
    async def whole() -> None:
        apart = SandboxClient(home=tmp_path / "home")
        client = FractalSandboxClient(apart)
        async with await client.create(options=options(project)) as session:
            assert sandboxes() == []
            assert [box["name"] for box in apart.list()] == [sandbox_of(session).name]
            assert (await session.exec("python3 main.py")).stdout == b"hi\n"
        assert apart.list() == []

    asyncio.run(whole())


def test_a_server_makes_the_sandboxes(home: pathlib.Path) -> None:
    async def whole(door: Door, server: SandboxClient) -> None:
        client = FractalSandboxClient(server)
        session = await client.create()
        async with session:
            assert door.sandboxes() != [] and sandboxes() == []
            done = await session.exec("pwd; cat README; echo err >&2; exit 3")
            assert done.stdout == f"{door.project}\na project\n".encode()
            assert (done.stderr, done.exit_code) == (b"err\n", 3)
            data = bytes(range(256)) * 1024
            await session.write(Path("sub/data"), io.BytesIO(data))
            assert (await session.read(Path("sub/data"))).read() == data
            with pytest.raises(ExecTimeoutError):
                await session.exec("sleep 600", timeout=1)
            begun = await session.pty_exec_start(
                "read x; echo got $x; exit 4", shell=["sh", "-c"], tty=True, yield_time_s=1
            )
            assert begun.process_id is not None
            ended = await session.pty_write_stdin(
                session_id=begun.process_id, chars="in\n", yield_time_s=20
            )
            assert b"got in" in ended.output and ended.exit_code == 4
            archive = await session.persist_workspace()
            with tarfile.open(fileobj=archive) as tar:  # type: ignore[call-overload]
                assert "./sub/data" in tar.getnames()
            fork = await client.fork(session)
            async with fork:
                assert (await fork.read(Path("sub/data"))).read() == data
        assert door.sandboxes() == []

    with opened() as door, SandboxClient(door.url, door.key()) as server:
        asyncio.run(whole(door, server))


def test_what_the_guide_shows_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)
    model = ScriptedModel(
        [
            patch("1", "*** Update File: main.py\n@@\n-print('hi')\n+print('hello')\n"),
            [assistant_message("done")],
        ]
        * 5
    )
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert blocks
    names: dict[str, Any] = {"model": model}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
