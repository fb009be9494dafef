"""Google's Agent Development Kit in sandboxes, natively. The model is a script."""

from __future__ import annotations

import asyncio
import base64
import pathlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from adk_script import played, script
from e2b_door import opened
from fractal import Sandbox, SandboxClient, sandboxes
from fractal.adapters.google_adk import (
    FILES_MAX,
    FractalCodeExecutor,
    FractalEnvironment,
)
from google.adk.agents import Agent
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/google-adk.md"

pytestmark = [
    pytest.mark.usefixtures("home", "nothing_left"),
    # The package says of its environments that they are an experiment.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


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
    return path


@asynccontextmanager
async def environment(directory: Path | None, **how: Any) -> AsyncIterator[FractalEnvironment]:
    env = FractalEnvironment(directory, **how)
    await env.initialize()
    try:
        yield env
    finally:
        await env.close()


def with_environment(
    project: Path, work: Callable[[FractalEnvironment], Awaitable[None]], **how: Any
) -> None:
    async def whole() -> None:
        async with environment(project, **how) as env:
            await work(env)

    asyncio.run(whole())


# The environment.


def test_an_agent_works_with_the_tools_of_an_environment(project: Path) -> None:
    model = script(
        ("WriteFile", {"path": "src/add.py", "content": "def add(a, b):\n    return a - b\n"}),
        ("EditFile", {"path": "src/add.py", "old_string": "a - b", "new_string": "a + b"}),
        ("Execute", {"command": "python3 main.py; cd src && python3 -c 'from add import add; print(add(2, 40))'"}),
        ("ReadFile", {"path": "src/add.py", "start_line": 2}),
        ("Execute", {"command": "echo trouble >&2; exit 7"}),
        ("ReadFile", {"path": "no/such"}),
        ("EditFile", {"path": "main.py", "old_string": "bye", "new_string": "x"}),
    )
    toolset = EnvironmentToolset(environment=FractalEnvironment(project))
    agent = Agent(model=model, name="coder", instruction="Write code.", tools=[toolset])

    async def whole() -> str:
        async with InMemoryRunner(agent=agent, app_name="demo") as runner:
            said = await played(runner)
        await toolset.close()
        return said

    assert asyncio.run(whole()) == "done"
    wrote, edited, ran, read, failed, missing, unmatched = model.heard
    assert wrote["status"] == edited["status"] == "ok"
    assert (ran["status"], ran["stdout"]) == ("ok", "hi\n42\n")
    assert "return a + b" in read["content"]
    assert (failed["status"], failed["exit_code"], failed["stderr"]) == ("error", 7, "trouble\n")
    assert missing == {"status": "error", "error": "File not found: no/such"}
    assert unmatched["status"] == "error"
    # The project itself is as it was.
    assert [path.name for path in project.iterdir()] == ["main.py"]


def test_an_environment_is_used_without_an_agent(project: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        assert env.is_initialized and env.working_dir == project
        data = bytes(range(256)) * 4096
        await env.write_file(Path("deep/er/data"), data)
        assert await env.read_file(Path("deep/er/data")) == data
        await env.write_file("/tmp/text", "π\n")
        assert await env.read_file("/tmp/text") == "π\n".encode()
        done = await env.execute("pwd; wc -c < deep/er/data; echo $MARK; echo err >&2; exit 3")
        assert done.stdout == f"{project}\n{len(data)}\nhere\n"
        assert (done.exit_code, done.stderr, done.timed_out) == (3, "err\n", False)
        with pytest.raises(FileNotFoundError):
            await env.read_file("no/such")
        with pytest.raises(IsADirectoryError):
            await env.read_file("deep")
        await env.initialize()
        assert await env.read_file("/tmp/text") == "π\n".encode(), "twice is once"

    with_environment(project, work, env_vars={"MARK": "here"})


def test_without_a_sandbox_it_says_what_to_do(project: Path) -> None:
    env = FractalEnvironment(project)
    with pytest.raises(RuntimeError, match="initialize"):
        asyncio.run(env.execute("true"))
    asyncio.run(env.close())
    with pytest.raises(ValueError, match="name"):
        FractalEnvironment(project, keep=True)


def test_what_was_done_is_promoted_and_undone(project: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        await env.execute("echo \"print('hello')\" > main.py")
        brought = await env.box.promote()
        assert (project / "main.py").read_text() == "print('hello')\n"
        await env.box.undo(brought)

    with_environment(project, work)
    assert (project / "main.py").read_text() == "print('hi')\n"


def test_a_command_meets_its_time_limit_and_the_environment_goes_on(project: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        done = await env.execute("echo begun; (sleep 3; touch late) & sleep 600", timeout=1)
        assert done.timed_out and done.stdout == "begun\n" and "time limit" in done.stderr
        await asyncio.sleep(3)
        assert (await env.execute("ls late")).exit_code != 0

    with_environment(project, work)


def test_a_cancelled_command_is_ended(project: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        running = asyncio.create_task(env.execute("touch begun; sleep 3; touch late"))
        while (await env.execute("ls begun")).exit_code:
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(3)
        assert (await env.execute("ls late")).exit_code != 0

    with_environment(project, work)


def test_a_limit_that_a_command_meets_is_named(project: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        done = await env.execute("python3 -c \"x = b'x' * (600 << 20); print(len(x))\"")
        assert done.exit_code != 0 and done.stdout == ""
        assert "memory" in done.stderr.lower()

    with_environment(project, work, memory=256 << 20)


def test_much_output_and_odd_bytes_arrive(project: Path) -> None:
    async def work(env: FractalEnvironment) -> None:
        done = await env.execute("yes 0123456789 | head -c 3000000")
        assert len(done.stdout) == 3_000_000
        assert (await env.execute(r"printf 'a\377b'")).stdout == "a\ufffdb"

    with_environment(project, work)


def test_a_sandbox_that_is_kept_goes_on_where_it_was(project: Path) -> None:
    async def whole() -> None:
        for expected in ("", "one\n"):
            async with environment(project, name="kept", keep=True) as env:
                assert (await env.execute("cat file 2>/dev/null; echo one > file")).stdout == expected

    asyncio.run(whole())
    with Sandbox.open("kept", project) as box:
        assert "+one" in box.diff()


def test_a_sandbox_that_is_dropped_is_told_to_the_model(project: Path) -> None:
    model = script(("Execute", {"command": "true"}), ("ReadFile", {"path": "main.py"}))
    env = FractalEnvironment(project)
    toolset = EnvironmentToolset(environment=env)
    agent = Agent(model=model, name="coder", instruction="Write code.", tools=[toolset])

    async def whole() -> None:
        await toolset.get_tools()
        await env.box.drop(force=True)
        async with InMemoryRunner(agent=agent, app_name="demo") as runner:
            assert await played(runner) == "done"
        await toolset.close()

    asyncio.run(whole())
    assert [answer["status"] for answer in model.heard] == ["error", "error"]
    assert "no sandbox" in model.heard[0]["error"]


def test_many_at_once_do_not_meet(project: Path) -> None:
    async def one(number: int) -> str:
        async with environment(project) as env:
            await env.write_file("mine", f"{number}\n")
            return (await env.execute("sleep 0.2; cat mine")).stdout

    async def whole() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(6)))

    assert asyncio.run(whole()) == [f"{number}\n" for number in range(6)]


def test_a_server_makes_the_sandboxes(home: pathlib.Path) -> None:
    with opened() as door, SandboxClient(door.url, door.key()) as server:

        async def work(env: FractalEnvironment) -> None:
            assert door.sandboxes() != [] and sandboxes() == []
            done = await env.execute("pwd; cat README")
            assert done.stdout == f"{door.project}\na project\n"
            await env.write_file("data", b"\x00\xff")
            assert await env.read_file("data") == b"\x00\xff"

        async def whole() -> None:
            async with environment(None, client=server) as env:
                await work(env)

        asyncio.run(whole())
        executor = FractalCodeExecutor(client=server)
        assert ran(executor, "print(open('README').read())").stdout == "a project\n\n"
        assert door.sandboxes() == []


# The code executor.


def ran(executor: FractalCodeExecutor, code: str, *files: File) -> Any:
    asked = CodeExecutionInput(code=code, input_files=list(files))
    return executor.execute_code(None, asked)  # type: ignore[arg-type]


@pytest.fixture
def executor(project: Path) -> FractalCodeExecutor:
    return FractalCodeExecutor(directory=str(project), timeout_seconds=60)


def test_an_agent_runs_the_code_that_it_writes(executor: FractalCodeExecutor) -> None:
    model = script(
        "Let me see.\n```python\nopen('chart.png', 'wb').write(b'\\x89PNG')\nprint(6 * 7)\n```\n",
        "```python\n1 / 0\n```\n",
        "It is 42.",
    )
    agent = Agent(model=model, name="coder", instruction="Compute.", code_executor=executor)

    async def whole() -> tuple[str, list[str]]:
        async with InMemoryRunner(agent=agent, app_name="demo") as runner:
            said = await played(runner)
            kept = await runner.artifact_service.list_artifact_keys(
                app_name="demo", user_id="debug_user_id", session_id="debug_session_id"
            )
        return said, kept

    assert asyncio.run(whole()) == ("It is 42.", ["chart.png"])
    assert "42" in model.read[1] and "ZeroDivisionError" in model.read[2]


def test_code_succeeds_or_says_why_not(executor: FractalCodeExecutor) -> None:
    done = ran(executor, "import sys\nprint('π')\nprint('a warning', file=sys.stderr)")
    assert (done.stdout, done.stderr, done.exit_code) == ("π\n", "", 0)
    done = ran(executor, "print('before')\n1 / 0")
    assert done.stdout == "before\n" and done.exit_code == 1
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert ran(executor, "import os; os._exit(3)").stderr == "exit status 3"
    assert "a signal" in ran(executor, "import os; os.kill(os.getpid(), 9)").stderr
    assert ran(executor, "if __name__ == '__main__': print('main')").stdout == "main\n"
    assert ran(executor, "1 +").exit_code == 1


def test_code_that_runs_for_too_long_is_ended(project: Path) -> None:
    executor = FractalCodeExecutor(directory=str(project), timeout_seconds=1)
    done = ran(executor, "print('begun', flush=True)\nwhile True: pass")
    assert (done.stdout, done.exit_code) == ("begun\n", 124)
    assert "time limit" in done.stderr


def test_nothing_is_left_for_the_next_piece(executor: FractalCodeExecutor, project: Path) -> None:
    ran(executor, "open('left', 'w').write('x'); kept = 1")
    done = ran(executor, "import os; print(sorted(os.listdir()), 'kept' in globals())")
    assert done.stdout == "['main.py'] False\n"
    assert [path.name for path in project.iterdir()] == ["main.py"]


def test_files_go_in_and_come_out(executor: FractalCodeExecutor) -> None:
    rows = File(name="rows.csv", content=base64.b64encode(b"a,b\n1,2\n").decode(), mime_type="text/csv")
    raw = File(name="sub/raw", content=b"\x00\xff")
    code = (
        "import os, pathlib\n"
        "text = pathlib.Path('rows.csv').read_text()\n"
        "raw = pathlib.Path('sub/raw').read_bytes()\n"
        "os.mkdir('out')\n"
        "pathlib.Path('out/sum.txt').write_text(text.upper())\n"
        "pathlib.Path('raw.bin').write_bytes(raw)\n"
        "pathlib.Path('/tmp/elsewhere').write_text('x')\n"
        "os.symlink('/etc/passwd', 'link')\n"
        "pathlib.Path('main.py').write_text('changed')\n"
    )
    done = ran(executor, code, rows, raw)
    assert done.stderr == ""
    back = {file.name: (file.content, file.mime_type) for file in done.output_files}
    assert back == {
        "out/sum.txt": (b"A,B\n1,2\n", "text/plain"),
        "raw.bin": (b"\x00\xff", "application/octet-stream"),
        "main.py": (b"changed", "text/x-python"),
    }


def test_what_is_too_much_to_give_back_is_named(executor: FractalCodeExecutor) -> None:
    code = "for n in range(40): open(f'f{n:02}', 'w').write('x')\nopen('a', 'w').truncate(17 << 20)"
    done = ran(executor, code)
    assert len(done.output_files) == FILES_MAX and done.stderr == ""
    assert "not given back" in done.stdout and "a" in done.stdout


def test_what_cannot_be_is_refused(project: Path) -> None:
    for name in ("stateful", "optimize_data_file"):
        with pytest.raises(ValueError, match="sandbox of its own"):
            FractalCodeExecutor(directory=str(project), **{name: True})
    with pytest.raises(ValueError):
        FractalCodeExecutor(timeout_seconds=0)
    with pytest.raises(NotADirectoryError):
        ran(FractalCodeExecutor(directory=str(project / "none")), "1")


def test_what_the_guide_shows_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)
    models = [
        script(("EditFile", {"path": "main.py", "old_string": "hi", "new_string": "hello"})),
        script("```python\nprint(6 * 7)\n```\n", "It is 42."),
    ]
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    assert len(blocks) == len(models)
    for block, model in zip(blocks, models, strict=True):
        exec(compile(block, str(GUIDE), "exec"), {"model": model})
        assert model.turns == []
    assert (project / "main.py").read_text() == "print('hello')\n"
