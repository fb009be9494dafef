"""SWE-ReX: a deployment that starts what its client needs, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fractal import Sandbox, sandboxes
from fractal.adapters.swerex import FractalDeployment
from swerex.exceptions import (
    DeploymentNotStartedError,
    DeploymentStartupError,
    NonZeroExitCodeError,
)
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/swerex.md"
PROGRAM = os.environ.get("FRACTAL", "fractal")
PATIENCE = 120.0
SESSION = CreateBashSessionRequest(startup_timeout=PATIENCE)


@pytest.fixture
def project(home: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A project; nothing of what was begun in it is left."""
    path = tmp_path / "project"
    path.mkdir()
    (path / "main.py").write_text("print(41)\n")
    yield path
    assert not sandboxes(), "sandboxes are left"
    keys = fractal(path, "--json", "key", "list")
    assert all(key.get("revoked_ms") for key in json.loads(keys)["keys"]), "keys are left"


def fractal(directory: pathlib.Path, *words: str) -> str:
    done = subprocess.run([PROGRAM, *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def deploy(project: pathlib.Path, **more: Any) -> FractalDeployment:
    return FractalDeployment(project, program=PROGRAM, timeout=PATIENCE, **more)


def processes(word: str) -> int:
    listed = subprocess.run(["ps", "-e", "-o", "args"], capture_output=True, text=True, check=True)
    return sum(word in line for line in listed.stdout.splitlines())


def until_none(word: str) -> None:
    end = time.monotonic() + PATIENCE
    while processes(word):
        assert time.monotonic() < end, f"{word} goes on"
        time.sleep(0.1)


def test_a_deployment_works_and_leaves_nothing(project: pathlib.Path) -> None:
    async def work() -> None:
        deployment = deploy(project)
        with pytest.raises(DeploymentNotStartedError):
            await deployment.is_alive()
        await deployment.start()
        assert await deployment.is_alive(timeout=PATIENCE)
        runtime = deployment.runtime
        await runtime.create_session(SESSION)
        seen = await runtime.run_in_session(BashAction(command="x=1; python3 main.py; echo y > new"))
        assert seen.output == "41\n"  # type: ignore[union-attr]
        with pytest.raises(NonZeroExitCodeError):
            await runtime.run_in_session(BashAction(command="false"))
        await runtime.execute(Command(command="sleep 4001 >/dev/null 2>&1 &", shell=True))
        await deployment.stop()
        await deployment.stop()
        with pytest.raises(DeploymentNotStartedError):
            await deployment.is_alive()

    asyncio.run(work())
    until_none("sleep 4001")
    assert not (project / "new").exists()


def test_a_sandbox_that_is_there_is_worked_in_and_kept(project: pathlib.Path) -> None:
    box = Sandbox.create(project)
    box.files.write("before", "before\n")

    async def work() -> str:
        deployment = deploy(project, sandbox=box)
        await deployment.start()
        done = await deployment.runtime.execute(Command(command="cat before; echo a > after", shell=True))
        await deployment.stop()
        return str(done.stdout)

    assert asyncio.run(work()) == "before\n"
    assert box.files.read("after") == "a\n"
    box.drop()


def test_two_at_once_are_apart(project: pathlib.Path) -> None:
    async def work() -> list[str]:
        both = [deploy(project), deploy(project)]
        await asyncio.gather(*[one.start() for one in both])
        for number, one in enumerate(both):
            await one.runtime.execute(Command(command=f"echo {number} > note", shell=True))
        seen = [await one.runtime.execute(Command(command=["cat", "note"])) for one in both]
        await asyncio.gather(*[one.stop() for one in both])
        return [done.stdout for done in seen]

    assert asyncio.run(work()) == ["0\n", "1\n"]


def test_what_cannot_start_says_why_and_leaves_nothing(project: pathlib.Path) -> None:
    async def start(**more: Any) -> None:
        await FractalDeployment(project, **more).start()

    with pytest.raises(DeploymentStartupError, match="failed|did not start"):
        asyncio.run(start(program="/bin/false"))
    with pytest.raises(Exception, match="nosuch"):
        asyncio.run(start(program=PROGRAM, template="nosuch"))


def test_a_killed_python_takes_its_server_along(project: pathlib.Path) -> None:
    code = f"""
import asyncio, time
from fractal.adapters.swerex import FractalDeployment
from swerex.runtime.abstract import Command
async def main():
    deployment = FractalDeployment({str(project)!r}, program={PROGRAM!r}, timeout={PATIENCE})
    await deployment.start()
    await deployment.runtime.execute(
        Command(command="sleep 4002 >/dev/null 2>&1 &", shell=True))
    print("begun", flush=True)
    time.sleep(1000)
asyncio.run(main())
"""
    started = subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    while "begun" not in started.stdout.readline():
        assert started.poll() is None
    started.send_signal(signal.SIGKILL)
    started.wait()
    started.stdout.close()
    until_none("sleep 4002")
    for name in sandboxes():
        fractal(project, "drop", name)
    for key in json.loads(fractal(project, "--json", "key", "list"))["keys"]:
        if not key.get("revoked_ms"):
            fractal(project, "key", "revoke", key["id"])


def test_the_program_of_the_guide_runs(
    project: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr("fractal.adapters.swerex._program", lambda: PROGRAM)
    [program] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    exec(compile(program, str(GUIDE), "exec"), {"__name__": "guide"})
    assert not (project / "note").exists()
