"""smolagents' code agents on our executor, with a scripted model."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy
import PIL.Image
import pytest
import smolagents
from smolagents import CodeAgent, FinalAnswerTool, Tool, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError

from fractal import Sandbox, sandboxes
from fractal.adapters import _python
from fractal.adapters.smolagents import FractalExecutor

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/smolagents.md"


class Scripted(Model):
    """Says what it is told to say."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="scripted")
        self.codes = list(codes)
        self.heard: list[str] = []

    def generate(self, messages: list[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        self.heard.append(str(messages[-1].content))
        code = textwrap.dedent(self.codes.pop(0)).strip()
        return ChatMessage(MessageRole.ASSISTANT, f"Thought: so\n<code>\n{code}\n</code>")


@tool
def double(n: int) -> int:
    """Doubles.

    Args:
        n: A number.
    """
    return 2 * n


class Counter(Tool):
    """Holds something, so that its code alone is not enough."""

    name = "count"
    description = "Counts."
    inputs = {"by": {"type": "integer", "description": "How many."}}
    output_type = "integer"

    def __init__(self, start: int) -> None:
        super().__init__()
        self.total = start

    def forward(self, by: int) -> int:
        self.total += by
        return self.total


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
def executor(box: Sandbox) -> Iterator[FractalExecutor]:
    with FractalExecutor(sandbox=box) as executor:
        yield executor


@pytest.fixture(autouse=True)
def _nothing_stays(home: pathlib.Path) -> Iterator[None]:
    before = set(sandboxes())
    yield
    assert set(sandboxes()) == before


def test_an_agent_works_with_tools_and_files(project: pathlib.Path) -> None:
    model = Scripted(
        "notes = open('notes.txt').read()\nprint(double(4), notes)",
        "1 / 0",
        "import subprocess\nsubprocess.run('echo two >> notes.txt', shell=True)",
        "final_answer({'n': double(n=limit), 'notes': open('notes.txt').read()})",
    )
    executor = FractalExecutor(directory=project)
    with CodeAgent(tools=[double], model=model, executor=executor, verbosity_level=0) as agent:
        answer = agent.run("Go.", additional_args={"limit": 21})
        assert executor.sandbox is not None and "+two" in executor.sandbox.diff()
    assert answer == {"n": 42, "notes": "one\ntwo\n"}
    assert "8 one" in model.heard[1] and "ZeroDivisionError" in model.heard[2]
    assert (project / "notes.txt").read_text() == "one\n" and executor.sandbox is None


def test_an_agent_runs_twice_with_what_it_had(box: Sandbox) -> None:
    model = Scripted("kept = 1\nfinal_answer(kept)", "final_answer(double(kept))")
    executor = FractalExecutor(sandbox=box)
    with CodeAgent(tools=[double], model=model, executor=executor, verbosity_level=0) as agent:
        assert agent.run("One.") == 1 and agent.run("Two.", reset=False) == 2
    assert box.is_running()


def test_agents_that_are_managed_and_tools_that_hold_something_are_called_here(
    box: Sandbox,
) -> None:
    inner = CodeAgent(
        tools=[],
        model=Scripted("final_answer('from inside')"),
        name="helper",
        description="Helps.",
        verbosity_level=0,
    )
    counter = Counter(40)
    model = Scripted("final_answer([count(by=2), double(2), helper('Help.')])")
    agent = CodeAgent(
        tools=[counter, double],
        model=model,
        managed_agents=[inner],
        verbosity_level=0,
        executor=FractalExecutor(sandbox=box, here=["double"]),
    )
    with agent:
        number, doubled, said = agent.run("Go.")
    assert (number, doubled, counter.total) == (42, 4, 42) and "from inside" in said
    assert set(agent.python_executor._called_here) == {"count", "double", "helper"}


def test_values_of_many_kinds_cross(executor: FractalExecutor) -> None:
    given = {
        "some": (1, {2}, b"\xff\0", 1 + 2j, {3: "x"}, frozenset({4})),
        "array": numpy.arange(6).reshape(2, 3),
        "image": PIL.Image.new("RGB", (3, 2), (255, 0, 0)),
        "path": pathlib.Path("/x"),
    }
    executor.send_variables(given)
    executor.send_variables({})
    assert executor("some").output == given["some"]
    assert executor("(type(array).__name__, array.tolist())").output == (
        "ndarray",
        [[0, 1, 2], [3, 4, 5]],
    )
    assert (executor("array + 1").output == given["array"] + 1).all()
    assert executor("image.resize((5, 5))").output.size == (5, 5)
    assert executor("path / 'y'").output == pathlib.Path("/x/y")
    assert executor("object").output == "<class 'object'>"
    assert executor("print('said')\nNone") == smolagents.local_python_executor.CodeOutput(
        None, "said\n", False
    )
    executor.send_tools({"final_answer": FinalAnswerTool()})
    answer = executor("final_answer(image)")
    assert answer.is_final_answer and answer.output.size == (3, 2)
    with pytest.raises(AgentError, match="Cannot safely serialize"):
        executor("final_answer(object())")
    with pytest.raises(AgentError, match="does not read, or is too large"):
        executor("final_answer('x' * (20 << 20))")
    forged = (
        "class FinalAnswerException(Exception): pass\nraise FinalAnswerException('pickle:gASVA')"
    )
    with pytest.raises(AgentError, match="does not read"):
        executor(forged)


def test_failures_are_told_with_what_was_printed(executor: FractalExecutor) -> None:
    with pytest.raises(AgentError) as raised:
        executor("print('before')\ndef f(): return {}['k']\nf()")
    said = str(raised.value)
    assert said.startswith("before\nTraceback") and said.endswith("KeyError: 'k'")
    assert executor.state["_print_outputs"] == "before\n"
    with pytest.raises(AgentError, match="SyntaxError"):
        executor("x = ")
    assert "characters more" in executor("print('x' * 2_000_000)").logs


def test_time_limits_and_a_process_that_dies(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter(0)
    with FractalExecutor(sandbox=box, timeout=5, here=["double"]) as executor:
        executor.send_variables({"kept": (1, 2)})
        executor.send_tools({"double": double, "count": counter})
        executor.send_tools({"final_answer": FinalAnswerTool()})
        executor("mine = 1")
        with pytest.raises(AgentError, match="more than its 5 seconds and was interrupted"):
            executor("import time; time.sleep(600)")
        assert executor("mine").output == 1
        monkeypatch.setattr(_python, "GRACE_SECONDS", 1.0)
        for end in ("import os; os._exit(3)", "import os; os.system('sleep 600')"):
            with pytest.raises(AgentError, match="all names are lost"):
                executor(end)
            assert executor("[kept, double(kept[1]), count(1) > 0]").output == [(1, 2), 4, True]
            assert executor("final_answer(kept)").output == (1, 2)
            with pytest.raises(AgentError, match="'mine' is not defined"):
                executor("mine")


def test_packages_are_installed_in_the_sandbox_alone(
    project: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    wheel = tmp_path / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "tiny_thing-1.0.dist-info"
        archive.writestr("tiny_thing.py", "x = 7\n")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    asked = ["numpy", "pillow", str(wheel)]
    with FractalExecutor(asked, directory=project) as executor:
        assert executor("import tiny_thing; tiny_thing.x").output == 7
        assert executor.installed_packages == asked
        assert executor._inside("missing", ["tiny_thing", "PIL", "json", "nowhere.at.all"]) == [
            "nowhere.at.all"
        ]
    with pytest.raises(AgentError, match="cannot be installed in the sandbox(.|\n)*network="):
        FractalExecutor([str(tmp_path / "nowhere.whl")], directory=project)
    with pytest.raises(ModuleNotFoundError):
        __import__("tiny_thing")


def test_a_volume_and_a_sandbox_of_ones_own(project: pathlib.Path, box: Sandbox) -> None:
    for expected in ("1", "2"):
        with FractalExecutor(directory=project, volume_name="smol") as executor:
            executor("open('/data/n', 'a').write('x')")
            assert executor("str(len(open('/data/n').read()))").output == expected
            assert executor("open('/src/notes.txt').read()").output == "one\n"
    with pytest.raises(ValueError, match=r"leave out \['memory'\]"):
        FractalExecutor(sandbox=box, memory=1 << 30)
    executor = FractalExecutor(directory=project)
    executor.cleanup(), executor.delete()
    with pytest.raises(AgentError, match="was closed"):
        executor("1")


# smolagents' tests of an executor that works, for ours.
SUITE = """
import io
import pytest
from rich.console import Console
from smolagents.monitoring import AgentLogger, LogLevel
from fractal.adapters.smolagents import FractalExecutor
from .test_remote_executors import CommonDockerExecutorIntegration

class TestFractalExecutor(CommonDockerExecutorIntegration):
    @pytest.fixture
    def custom_executor(self):
        logger = AgentLogger(LogLevel.INFO, Console(force_terminal=False, file=io.StringIO()))
        executor = FractalExecutor(["pillow", "numpy"], logger)
        yield executor
        executor.delete()
"""
SUITE_CASES = 10


def source_archive(place: pathlib.Path) -> pathlib.Path:
    wanted = f"smolagents-{smolagents.__version__}.tar.gz"
    kept = pathlib.Path(sys.prefix, "suites", wanted)
    if kept.exists():
        return kept
    if os.access(sys.prefix, os.W_OK):
        place = kept.parent
    words = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
    ]
    words += ["--dest", str(place), f"smolagents=={smolagents.__version__}"]
    subprocess.run(words, check=True, timeout=600)
    return place / wanted


def test_their_own_tests_of_executors(project: pathlib.Path, tmp_path: pathlib.Path) -> None:
    suite = tmp_path / "suite"
    (suite / "utils").mkdir(parents=True)
    with tarfile.open(source_archive(tmp_path)) as archive:
        inside = f"smolagents-{smolagents.__version__}/tests/test_remote_executors.py"
        file = archive.extractfile(inside)
        assert file is not None
        (suite / "test_remote_executors.py").write_bytes(file.read())
    # The archive leaves out the module with their marks, which we do not use.
    (suite / "utils/markers.py").write_text("require_run_all = lambda test: test\n")
    (suite / "__init__.py").touch()
    (suite / "test_ours.py").write_text(SUITE)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "suite/test_ours.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    closing = done.stdout.strip().splitlines()[-1]
    print(f"conformance suite of smolagents: {closing}")
    assert re.fullmatch(rf"{SUITE_CASES} passed in .*", closing), done.stdout


def test_the_guide(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "project").mkdir()
    monkeypatch.chdir(project)
    model = Scripted(
        "total = 2 * price('pen') + price(item='desk')\nopen('prices.txt', 'w').write(str(total))",
        "final_answer(total)",
    )
    blocks = re.findall(
        r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 3
    printed: list[Any] = []
    names: dict[str, Any] = {"model": model, "print": printed.append}
    for number, block in enumerate(blocks):
        # smolagents reads the code of tools from their file.
        file = project / f"guide_{number}.py"
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)
    assert printed[0] == 124 and "+124" in printed[1]
    assert (project / "project/prices.txt").read_text() == "124"
