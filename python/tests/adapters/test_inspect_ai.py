"""inspect-ai: its own self check, and evaluations with a scripted model."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageTool, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, TaskState, generate, solver, use_tools
from inspect_ai.tool import bash, bash_session, python, text_editor
from inspect_ai.util import (
    ExecCompleted,
    ExecStdout,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandbox as current,
)
from inspect_ai.util._concurrency import init_concurrency
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from serving import serving

from fractal import SandboxClient
from fractal.adapters.inspect_ai import FractalSandboxConfig, FractalSandboxEnvironment

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
ROOT = pathlib.Path(__file__).parents[3]

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Inspect works with both, with one of them in a process."""
    init_concurrency()
    backend: str = request.param
    return backend


@pytest.fixture(autouse=True)
def nothing_is_left(home: pathlib.Path) -> Iterator[None]:
    before, own = tempfile.tempdir, tempfile.mkdtemp()
    os.chmod(own, 0o755)
    tempfile.tempdir = own
    yield
    tempfile.tempdir = before
    left = list(pathlib.Path(own).glob("fractal-inspect-*"))
    shutil.rmtree(own)
    assert SandboxClient().list() == [] and left == []


@asynccontextmanager
async def sandbox(config: FractalSandboxConfig | None = None) -> AsyncIterator[SandboxEnvironment]:
    kind = FractalSandboxEnvironment
    environments = await kind.sample_init("check", config, {})
    try:
        yield environments["default"]
    finally:
        await kind.sample_cleanup("check", config, environments, False)


# Of the checks: what the kernel lets root do.
WHAT_ROOT_MAY = {
    "test_read_file_not_allowed": "root may read what the permissions forbid",
    "test_write_text_file_without_permissions": "root may write what the permissions forbid",
    "test_write_binary_file_without_permissions": "root may write what the permissions forbid",
}
ONE_USER = {"test_exec_as_user": "who runs fractal is not root: there is one user"}


def what_is_expected(user: str | None) -> dict[str, str]:
    if not IS_ROOT:
        return ONE_USER
    return WHAT_ROOT_MAY if user is None else {}


@pytest.fixture
def theirs() -> Iterator[str]:
    """A project of an ordinary user."""
    path = tempfile.mkdtemp()
    os.chmod(path, 0o755)
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("user", ["nobody", None] if IS_ROOT else [None])
async def test_the_self_check_holds(user: str | None, theirs: str) -> None:
    config = FractalSandboxConfig(user=user, directory=theirs if user else None)
    failed: dict[str, str] = {}
    async with sandbox(config) as env:
        for name in self_check.__all__:
            try:
                await getattr(self_check, name)(env)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
    expected, count = what_is_expected(user), len(self_check.__all__)
    print(f"inspect-ai self check as {user or 'ourselves'}: {count - len(failed)} of {count}")
    for name, why in failed.items():
        print(f"  {name}: {expected.get(name, 'NOT EXPECTED')} ({why[:300]})")
    assert failed.keys() == expected.keys()
    assert count == 44


async def test_it_is_registered() -> None:
    assert registry_find_sandboxenv("fractal") is FractalSandboxEnvironment
    assert FractalSandboxEnvironment.config_files() == ["fractal.toml"]
    config = FractalSandboxConfig(network=("pypi.org",), memory=1 << 30)
    told = config.model_dump(mode="json")
    assert FractalSandboxEnvironment.config_deserialize(told) == config


async def test_what_one_command_starts_the_next_one_finds() -> None:
    async with sandbox() as env:
        started = await env.exec(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"])
        pid = started.stdout.strip()
        assert (await env.exec(["kill", "-0", pid])).success
        assert (await env.exec(["kill", pid])).success
        assert not (await env.exec(["kill", "-0", pid])).success


async def test_a_cancelled_command_ends() -> None:
    async with sandbox() as env:
        with anyio.move_on_after(1.0):
            await env.exec(["sh", "-c", "echo $$ > pid; sleep 600; :"])
        pid = (await env.read_file("pid")).strip()
        with anyio.fail_after(60):
            while (await env.exec(["kill", "-0", pid])).success:
                await anyio.sleep(0.05)


async def test_what_was_said_before_a_timeout_is_told() -> None:
    async with sandbox() as env:
        with pytest.raises(TimeoutError, match="longer than 1 seconds") as raised:
            await env.exec(["sh", "-c", "echo so far; sleep 600"], timeout=1)
        assert getattr(raised.value, "truncated_output") == "so far\n"


async def test_the_end_of_too_much_output_is_kept() -> None:
    async with sandbox() as env:
        with override_max_exec_output_size(1000):
            done = await env.exec(["sh", "-c", "seq 100000; printf '\\377'"])
        assert done.success and len(done.stdout.encode("utf-8", "replace")) <= 1003
        assert done.stdout.endswith("99999\n100000\n\ufffd")


async def test_errors_are_those_that_inspect_knows() -> None:
    async with sandbox() as env:
        missing = await env.exec(["no-such-program"])
        assert (missing.returncode, missing.stderr) == (127, "no-such-program: command not found\n")
        nowhere = await env.exec(["true"], cwd="/no/such/place")
        assert nowhere.returncode == 126 and "/no/such/place" in nowhere.stderr
        await env.write_file("binary", b"\xff\xfe")
        with pytest.raises(UnicodeDecodeError):
            await env.read_file("binary")
        if IS_ROOT:
            assert (await env.exec(["id", "-un"], user="nobody")).stdout == "nobody\n"
        else:
            with pytest.raises(SandboxUserUnsupportedError):
                await env.exec(["id"], user="root")


async def test_what_a_sample_did_can_be_promoted(tmp_path: pathlib.Path) -> None:
    async with sandbox(FractalSandboxConfig(directory=str(tmp_path))) as env:
        await env.write_file("made.txt", "by a sample")
        ours = env.as_type(FractalSandboxEnvironment)
        box = await anyio.to_thread.run_sync(ours.rest)
        assert (await anyio.to_thread.run_sync(box.promote)).verdict == "applied"
        assert (tmp_path / "made.txt").read_text() == "by a sample"
        assert await env.read_file("made.txt") == "by a sample"


async def test_many_at_once_do_not_mix() -> None:
    said: dict[int, str] = {}
    async with sandbox() as first, sandbox() as second:

        async def work(number: int) -> None:
            env = (first, second)[number % 2]
            await env.write_file(f"file-{number}", str(number) * 50_000)
            said[number] = (await env.exec(["cat", f"file-{number}"])).stdout

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(work, number)
        assert said == {number: str(number) * 50_000 for number in range(40)}
        assert "file-1\n" not in (await first.exec(["ls"])).stdout


async def test_a_sandbox_that_is_gone_is_said_to_be() -> None:
    async with sandbox() as env:
        ours = env.as_type(FractalSandboxEnvironment)

        async def drop() -> None:
            while "started" not in await anyio.to_thread.run_sync(ours.box.diff):
                await anyio.sleep(0.05)
            await anyio.to_thread.run_sync(lambda: ours.box.drop(force=True))

        async with anyio.create_task_group() as group:
            group.start_soon(drop)
            with pytest.raises(SandboxUnavailableError):
                await env.exec(["sh", "-c", "echo > started; sleep 600"])
        with pytest.raises(SandboxUnavailableError, match="there is no sandbox"):
            await env.exec(["true"])
        with pytest.raises(ConnectionError):
            await env.connection()


async def test_what_ends_everything_inside_is_not_the_end() -> None:
    async with sandbox() as env:
        await env.write_file("kept", "yes")
        with pytest.raises(SandboxUnavailableError):
            await env.exec(["sh", "-c", "kill -9 -1; kill -9 $PPID; sleep 600"])
        assert await env.read_file("kept") == "yes"


def scripted(outputs: list[ModelOutput]) -> Model:
    return get_model("mockllm/model", custom_outputs=outputs)


def play(
    tmp_path: pathlib.Path, samples: list[Sample], outputs: list[ModelOutput], **how: Any
) -> EvalLog:
    tools = use_tools([bash(timeout=60), python(timeout=60), bash_session(), text_editor()])
    task = Task(dataset=samples, solver=[tools, generate()], scorer=includes(), **how)
    (log,) = eval(task, model=scripted(outputs), log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error
    return log


def counted(output: ModelOutput) -> ModelOutput:
    # Otherwise words are counted with a table from the network.
    output.usage = ModelUsage()
    return output


def call(tool: str, **arguments: Any) -> ModelOutput:
    return counted(ModelOutput.for_tool_call("mockllm/model", tool, arguments))


def answer(text: str) -> ModelOutput:
    return counted(ModelOutput.from_content("mockllm/model", text))


def said_by_tools(log: EvalLog) -> list[str]:
    assert log.samples
    messages = [message for sample in log.samples for message in sample.messages]
    return [message.text for message in messages if isinstance(message, ChatMessageTool)]


def test_an_evaluation_uses_tools_and_is_scored(tmp_path: pathlib.Path) -> None:
    sample = Sample(
        "What do the numbers add up to?",
        target="5050",
        files={"numbers.txt": "\n".join(map(str, range(1, 101)))},
        setup="wc -l < numbers.txt > lines",
    )
    outputs = [
        call("bash", command="cat lines; tail -1 numbers.txt"),
        call("python", code="print(sum(map(int, open('numbers.txt'))))"),
        call("bash_session", action="type_submit", input="cd /tmp && echo in $PWD"),
        call("text_editor", command="create", path="/tmp/answer", file_text="5050"),
        call("bash", command="cat /tmp/answer"),
        answer("They add up to 5050."),
    ]
    log = play(tmp_path, [sample], outputs, sandbox="fractal")
    told = said_by_tools(log)
    assert told[0].split()[-2:] == ["99", "100"] and told[1].split()[-1] == "5050"
    assert "in /tmp" in told[2] and told[4].split()[-1] == "5050"
    assert log.results and log.results.scores[0].metrics["accuracy"].value == 1.0
    assert not pathlib.Path("/tmp/answer").exists()


@solver
def watcher() -> Any:
    """What agents that live in the sandbox are run with."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        process = await current().exec_remote(["sh", "-c", "echo one; sleep 1; echo two; exit 3"])
        events = [event async for event in process]
        heard = "".join(event.data for event in events if isinstance(event, ExecStdout))
        ends = [event.exit_code for event in events if isinstance(event, ExecCompleted)]
        state.output = answer(f"{heard.split()} {ends}")
        return state

    return solve


def test_a_program_is_followed_while_it_runs(tmp_path: pathlib.Path) -> None:
    sample = Sample("Watch it.", target="['one', 'two'] [3]")
    task = Task(dataset=[sample], solver=watcher(), scorer=includes(), sandbox="fractal")
    (log,) = eval(task, model=scripted([]), log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    assert log.results and log.results.scores[0].metrics["accuracy"].value == 1.0


def test_samples_work_in_copies_of_a_project(tmp_path: pathlib.Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "fractal.toml").write_text('[limits]\nmemory = "2g"\n')
    (project / "main.py").write_text("print(41)\n")
    outputs = [
        call("bash", command="sed -i s/41/42/ main.py; python3 main.py"),
        answer("42"),
    ] * 2
    samples = [Sample("Repair it.", target="42") for _ in range(2)]
    log = play(
        tmp_path,
        samples,
        outputs,
        sandbox=("fractal", str(project / "fractal.toml")),
    )
    assert [text.split()[-1] for text in said_by_tools(log)] == ["42", "42"]
    assert (project / "main.py").read_text() == "print(41)\n"


def test_a_sample_whose_time_is_over_leaves_nothing(tmp_path: pathlib.Path) -> None:
    outputs = [call("bash", command="sleep 600"), answer("never")]
    task = Task(
        dataset=[Sample("Sleep.", target="never")],
        solver=[use_tools(bash()), generate()],
        sandbox="fractal",
        time_limit=3,
    )
    (log,) = eval(task, model=scripted(outputs), log_dir=str(tmp_path), display="none")
    assert log.samples and log.samples[0].limit and log.samples[0].limit.type == "time"
    # That nothing is left is looked at after every test.


def test_what_is_left_on_purpose_can_be_cleaned_up(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = Task(dataset=[Sample("Hi", target="Hi")], solver=generate(), sandbox="fractal")
    eval(task, model=scripted([answer("Hi")]), log_dir=str(tmp_path), sandbox_cleanup=False)
    (left,) = SandboxClient().list()
    assert f"fractal sandboxes left: {left['name']}\n" in capfd.readouterr().out
    anyio.run(FractalSandboxEnvironment.cli_cleanup, left["name"])
    assert f"dropped {left['name']}" in capfd.readouterr().out


def test_a_wrong_setting_is_said_before_the_first_sample(tmp_path: pathlib.Path) -> None:
    spec = SandboxEnvironmentSpec("fractal", FractalSandboxConfig(template="no-such-template"))
    task = Task(dataset=[Sample("Hi", target="Hi")], solver=generate(), sandbox=spec)
    with pytest.raises(Exception, match="no-such-template"):
        eval(task, model="mockllm/model", log_dir=str(tmp_path), display="none")


def test_samples_work_on_a_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.py").write_text("print(42)\n")
    with serving(tmp_path) as (url, key):
        monkeypatch.setenv("FRACTAL_URL", url)
        monkeypatch.setenv("FRACTAL_KEY", key)
        outputs = [call("bash", command="python3 main.py"), answer("42")]
        log = play(tmp_path, [Sample("Run it.", target="42")], outputs, sandbox="fractal")
        # A login shell may have more to say.
        assert said_by_tools(log)[0].split()[-1] == "42"
        assert SandboxClient().list() == []
        monkeypatch.delenv("FRACTAL_URL")


def test_the_guide_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs/guide/frameworks/inspect-ai.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    script = [call("bash", command="python3 add.py"), answer("It says 5050.")]
    known: dict[str, Any] = {"model": scripted(script * 2)}
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), known)
