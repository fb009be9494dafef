"""google-adk as it is on PyPI, through the E2B door: the environment that comes
with it, and the plugin that E2B makes for it. The model is a script."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from adk_script import played, script
from e2b_adk import E2BPlugin
from e2b_door import Door, door, examples, play
from google.adk.agents import Agent
from google.adk.apps import App
from google.adk.integrations.e2b import E2BEnvironment
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset

assert door  # a fixture

pytestmark = [
    # The package says of its environments that they are an experiment.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.skipif(
        os.geteuid() != 0,
        reason="skipped: it works in /home/user, which sandboxes of root alone have",
    ),
]


@asynccontextmanager
async def environment(**how: Any) -> AsyncIterator[E2BEnvironment]:
    env = E2BEnvironment(**how)
    await env.initialize()
    try:
        yield env
    finally:
        await env.close()


def with_environment(work: Callable[[E2BEnvironment], Awaitable[None]], **how: Any) -> None:
    async def whole() -> None:
        async with environment(**how) as env:
            await work(env)

    asyncio.run(whole())


def sandbox_id(env: E2BEnvironment) -> str:
    assert env._sandbox is not None
    return str(env._sandbox.sandbox_id)


def test_an_agent_works_with_the_tools_of_an_environment(door: Door) -> None:
    model = script(
        ("WriteFile", {"path": "src/add.py", "content": "def add(a, b):\n    return a - b\n"}),
        ("EditFile", {"path": "src/add.py", "old_string": "a - b", "new_string": "a + b"}),
        ("Execute", {"command": "cd src && python3 -c 'from add import add; print(add(2, 40))'"}),
        ("ReadFile", {"path": "src/add.py", "start_line": 2}),
        ("Execute", {"command": "echo trouble >&2; exit 7"}),
        ("ReadFile", {"path": "no/such"}),
    )
    env = E2BEnvironment(image="base", timeout=300)
    toolset = EnvironmentToolset(environment=env)
    agent = Agent(model=model, name="coder", instruction="Write code.", tools=[toolset])

    async def whole() -> str:
        async with InMemoryRunner(agent=agent, app_name="demo") as runner:
            said = await played(runner)
            inside = door.inside(sandbox_id(env), "cat /home/user/src/add.py")
            assert inside == "def add(a, b):\n    return a + b\n"
        await toolset.close()
        return said

    assert asyncio.run(whole()) == "done"
    wrote, edited, ran, read, failed, missing = model.heard
    assert wrote["status"] == edited["status"] == "ok"
    assert (ran["status"], ran["stdout"]) == ("ok", "42\n")
    assert "return a + b" in read["content"]
    assert (failed["status"], failed["exit_code"], failed["stderr"]) == ("error", 7, "trouble\n")
    assert missing["status"] == "error"
    assert door.sandboxes() == []
    assert sorted(path.name for path in door.project.iterdir()) == ["README"]


def test_an_environment_is_used_without_an_agent(door: Door) -> None:
    async def work(env: E2BEnvironment) -> None:
        assert str(env.working_dir) == "/home/user"
        data = bytes(range(256)) * 4096
        await env.write_file(Path("deep/er/data"), data)
        assert await env.read_file(Path("deep/er/data")) == data
        await env.write_file("/tmp/text", "π\n")
        assert await env.read_file("/tmp/text") == "π\n".encode()
        done = await env.execute("pwd; wc -c < deep/er/data; echo $MARK")
        assert done.stdout == f"/home/user\n{len(data)}\nhere\n" and done.exit_code == 0
        with pytest.raises(FileNotFoundError):
            await env.read_file("no/such")

    with_environment(work, env_vars={"MARK": "here"})


def test_a_command_meets_its_time_limit_and_the_environment_goes_on(door: Door) -> None:
    async def work(env: E2BEnvironment) -> None:
        done = await env.execute("echo begun; sleep 600", timeout=1)
        assert done.timed_out
        assert (await env.execute("echo on; echo err >&2; exit 3")).exit_code == 3

    with_environment(work)


def test_much_output_and_odd_bytes_arrive(door: Door) -> None:
    async def work(env: E2BEnvironment) -> None:
        done = await env.execute("yes 0123456789 | head -c 3000000")
        assert len(done.stdout) == 3_000_000
        done = await env.execute(r"printf 'a\377b'")
        assert done.stdout == "a\ufffdb"

    with_environment(work)


def test_an_environment_that_was_dropped_makes_itself_anew(door: Door) -> None:
    async def work(env: E2BEnvironment) -> None:
        await env.execute("echo lost > file")
        before = sandbox_id(env)
        door.drop(before)
        done = await env.execute("cat file")
        assert done.exit_code != 0 and sandbox_id(env) != before

    with_environment(work)


def test_two_environments_at_once_do_not_meet(door: Door) -> None:
    async def one(number: int) -> str:
        async with environment() as env:
            await env.write_file("mine", f"{number}\n")
            return (await env.execute("sleep 0.2; cat mine")).stdout

    async def whole() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(3)))

    assert asyncio.run(whole()) == ["0\n", "1\n", "2\n"]


def test_the_plugin_of_e2b_has_tools_for_code_commands_and_files(door: Door) -> None:
    model = script(
        ("run_code", {"code": "kept = [n * n for n in range(4)]\nsum(kept)"}),
        ("run_code", {"code": "print(kept[-1])"}),
        ("run_code", {"code": "1 / 0"}),
        ("write_file", {"path": "page/index.html", "content": "<p>hello\n"}),
        ("read_file", {"path": "page/index.html"}),
        ("list_files", {"path": "page"}),
        ("run_command", {"command": "echo $PWD; exit 4"}),
        ("start_background_command", {"command": "python3 -m http.server 8000 -d page", "port": 8000}),
        ("run_command", {"command": "for n in $(seq 100); do curl -sf localhost:8000/ && break; sleep 0.1; done"}),
    )
    plugin = E2BPlugin()
    agent = Agent(model=model, name="coder", instruction="Write code.", tools=plugin.get_tools())

    async def whole() -> str:
        async with InMemoryRunner(app=App(name="demo", root_agent=agent, plugins=[plugin])) as runner:
            return await played(runner)

    assert asyncio.run(whole()) == "done"
    sums, printed, failed, wrote, read, listed, ran, begun, fetched = model.heard
    assert sums["success"] and "14" in str(sums)
    assert "9" in printed["stdout"]
    assert failed["error"].startswith("ZeroDivisionError: division by zero")
    assert wrote["success"] and read["content"] == "<p>hello\n"
    assert "index.html" in str(listed)
    assert (ran["exit_code"], ran["stdout"]) == (4, "/home/user\n")
    assert begun["success"] and begun["pid"] > 0
    assert fetched["stdout"] == "<p>hello\n"
    assert door.sandboxes() == [], "the runner's end is the sandbox's"


def test_what_the_guide_shows_runs(door: Door) -> None:
    for source in examples("e2b-door.md", "google-adk"):
        model = script(("Execute", {"command": "echo hello > greeting.txt && cat greeting.txt"}))
        play(source, model=model)
        assert model.heard[0]["stdout"] == "hello\n"
