"""DSPy's modules on our interpreter, with a scripted model."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import dspy
import pytest
from dspy.predict.flex import Flex
from dspy.primitives.code_interpreter import (
    CodeExecutionError,
    CodeInterpreter,
    CodeInterpreterError,
    FinalOutput,
)
from dspy.primitives.local_interpreter import LocalInterpreter
from dspy.primitives.sandbox_serializable import SandboxSerializable
from dspy.utils import DummyLM
from dspy.utils.callback import BaseCallback

from fractal import Sandbox, SandboxClient, sandboxes
from fractal.adapters import _python
from fractal.adapters.dspy import Factory, FractalInterpreter

GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks/dspy.md"


@pytest.fixture(scope="module")
def project(home: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("project")
    (path / "notes.txt").write_text("one\n")
    return path


@pytest.fixture
def factory(project: pathlib.Path) -> Factory:
    return FractalInterpreter.factory(directory=project)


@pytest.fixture(scope="module")
def box(project: pathlib.Path) -> Iterator[Sandbox]:
    with Sandbox.create(project) as box:
        yield box


@pytest.fixture
def python(box: Sandbox) -> Iterator[FractalInterpreter]:
    with FractalInterpreter(sandbox=box) as python:
        yield python


@pytest.fixture(autouse=True)
def _nothing_stays(home: pathlib.Path) -> Iterator[None]:
    before = set(sandboxes())
    yield
    assert set(sandboxes()) == before


def step(code: str) -> dict[str, str]:
    return {"reasoning": "so", "code": f"```python\n{code}\n```"}


def test_it_is_an_interpreter_of_dspy(python: FractalInterpreter, factory: Factory) -> None:
    assert isinstance(python, CodeInterpreter) and not isinstance(factory, CodeInterpreter)
    assert "CPython" in factory.execution_instructions


# What DSPy's own interpreter answers is the truth. Where ours tells more (what
# was printed besides a value, tracebacks), that is tested below.
PIECES = [
    "x = 1",
    "x",
    "print('hi')",
    "print('a'); print('b')",
    "x + 1",
    "[1, 2.5, None, True, {'a': [1]}]",
    "(1, 2)",
    "{3}",
    "None",
    "def f(n):\n    return n * 2\nf(4)",
    "import math; math.pi",
    "1 / 0",
    "x =",
    "nobody",
    "raise SystemExit(2)",
    "import sys; print('e', file=sys.stderr)",
    "import subprocess; n = subprocess.run('echo sub', shell=True)",
    "double(4)",
    "double(n=4)",
    "double(object())",
    "fail()",
    "unjson()",
    "later(2)",
    "given",
    "[text, given]",
    "SUBMIT(3)",
    "SUBMIT({'a': 1})",
    "SUBMIT()",
    "SUBMIT(1, 2)",
    "try: SUBMIT(5)\nexcept Exception: pass",
    "import asyncio; asyncio.run(asyncio.sleep(0, 'slept'))",
    "'ä' * 3",
]
TYPED = [
    "SUBMIT(1, 'a')",
    "SUBMIT(n=1, word='b')",
    "SUBMIT(1)",
    "SUBMIT(n=1, other=2)",
    "SUBMIT(word='b', n=1)",
]


async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


def unjson() -> object:
    return object()


def answers(interpreter: Any, pieces: list[str]) -> list[Any]:
    told: list[Any] = []
    given = {"given": [1, {"b": None}], "text": "ä"}
    for code in pieces:
        try:
            told.append(interpreter.execute(code, dict(given)))
        except (CodeInterpreterError, SyntaxError) as error:
            told.append(type(error))
    return told


def test_it_answers_as_dspys_own_one(box: Sandbox) -> None:
    def fail() -> None:
        raise ValueError("no")

    tools = {"double": lambda n: 2 * n, "fail": fail, "unjson": unjson, "later": later}
    fields = [{"name": "n", "type": "int"}, {"name": "word"}]
    for pieces, asked in ((PIECES, None), (TYPED, fields)):
        with (
            LocalInterpreter(tools, asked) as own,
            FractalInterpreter(tools, asked, sandbox=box) as ours,
        ):
            expected, found = answers(own, pieces), answers(ours, pieces)
        assert list(zip(pieces, found)) == list(zip(pieces, expected))


def test_what_it_tells_besides(python: FractalInterpreter) -> None:
    # As in DSPy's interpreter for WebAssembly, which its local one does not take.
    assert python.execute("SUBMIT(output='x')") == FinalOutput({"output": "x"})
    assert python.execute("print('a'); 5") == "a\n5" and python("print('a'); 'b'") == "a\nb"
    with pytest.raises(CodeExecutionError) as raised:
        python.execute("def f():\n    return {}['k']\nprint('so far')\nf()")
    said = str(raised.value)
    assert (
        "return {}['k']" in said and "KeyError: 'k'" in said and said.endswith("printed:\nso far")
    )
    assert "characters more" in python.execute("print('x' * 2_000_000)")
    assert python.execute("import numpy\nnumpy.arange(3)") == "array([0, 1, 2])"
    final = python.execute(
        "SUBMIT({'a': numpy.arange(3), 'n': numpy.float64(0.5), 's': {1}, 'o': int})"
    )
    assert final == FinalOutput(
        {"output": {"a": [0, 1, 2], "n": 0.5, "s": [1], "o": "<class 'int'>"}}
    )


def test_variables_of_many_kinds(python: FractalInterpreter) -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    given = {
        "point": Point(1),
        "both": (1, 2),
        "some": {1},
        "message": dspy.Example(a=1).toDict(),
        "large": "x" * (5 << 20),
        "odd": "\ud800",
    }
    assert python.execute("[point, both, some, message, len(large), len(odd)]", given) == [
        {"x": 1},
        [1, 2],
        [1],
        {"a": 1},
        5 << 20,
        1,
    ]
    for wrong in ({"x y": 1}, {"class": 1}, {"SUBMIT": 1}, {"x": object()}, {"__builtins__": {}}):
        with pytest.raises(CodeInterpreterError):
            python.execute("1", wrong)
    python.tools["taken"] = lambda: 1
    with pytest.raises(CodeInterpreterError, match="tools have these names"):
        python.execute("1", {"taken": 1})
    with pytest.raises(ValueError, match="no name for a tool"):
        FractalInterpreter({"x y": len})
    assert python.execute("1") == 1


def test_time_limits_and_deaths(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FractalInterpreter(directory=project, execution_timeout=4) as python:
        python.execute("kept = 1")
        with pytest.raises(CodeExecutionError, match="more than its 4 seconds and was interrupted"):
            python.execute("import time; time.sleep(600)")
        assert python.execute("kept") == 1
        monkeypatch.setattr(_python, "GRACE_SECONDS", 1.0)
        with pytest.raises(CodeInterpreterError, match="could not be interrupted") as raised:
            python.execute("import os; os.system('sleep 600')")
        assert not isinstance(raised.value, CodeExecutionError)
        with pytest.raises(CodeInterpreterError, match="session is over"):
            python.execute("1")
    python = FractalInterpreter(directory=project)
    python.start(), python.start()
    name = python.sandbox.name
    with pytest.raises(CodeInterpreterError, match="exit status 3"):
        python.execute("import os; os._exit(3)")
    assert name not in sandboxes()
    python.shutdown(), python.shutdown()
    with pytest.raises(CodeInterpreterError, match="session is over"):
        python.start()
    with pytest.raises(CodeInterpreterError, match="no sandbox could be made"):
        FractalInterpreter(directory=project / "nowhere").start()
    with pytest.raises(CodeInterpreterError, match="there is no Python here"):
        FractalInterpreter(directory=project, python="nowhere").start()
    for wrong in ({"execution_timeout": 0}, {"sandbox": python, "memory": 1 << 30}):
        with pytest.raises(ValueError):
            FractalInterpreter.factory(**wrong)


def test_callbacks_are_told(box: Sandbox) -> None:
    heard: list[str] = []

    class Hears(BaseCallback):
        def on_interpreter_startup_start(self, *_: Any, **__: Any) -> None:
            heard.append("start")

        def on_interpreter_execute_start(self, *_: Any, **told: Any) -> None:
            heard.append(told["inputs"]["code"])

        def on_interpreter_tool_call_start(self, *_: Any, **told: Any) -> None:
            heard.append(f"{told['inputs']['tool_name']}{told['inputs']['args']}")

        def on_interpreter_tool_call_end(self, *_: Any, **told: Any) -> None:
            heard.append(f"{told['outputs']}")

        def on_interpreter_shutdown_end(self, *_: Any, **__: Any) -> None:
            heard.append("end")

    with FractalInterpreter({"f": len}, sandbox=box, callbacks=[Hears()]) as python:
        python.execute("f([7])")
    assert heard == ["start", "f([7])", "start", "f[[7]]", "1", "end"]


def test_rlm_explores_calls_tools_and_submits(project: pathlib.Path) -> None:
    def find(word: str) -> int:
        "Where a word is."
        return text.index(word)

    text = "x" * 50_000 + "needle" + "y" * 50_000
    lm = DummyLM(
        [
            step("print(len(context), open('/src/notes.txt').read())"),
            step("1 / 0"),
            step("at = find(word='needle')\nprint(llm_query('Is it there?'))"),
            {"answer": "yes"},
            step("import dspy\nprint(dspy.Predict('q -> a')(q='twice?').a)"),
            {"a": "from a sub-agent"},
            step("SUBMIT(at=at, words=['needle'])"),
        ]
    )
    factory = FractalInterpreter.factory(directory=project, volume_name="rlm")
    rlm = dspy.RLM(
        "context, query -> at: int, words: list[str]", tools=[find], interpreter_factory=factory
    )
    with dspy.context(lm=lm):
        done = rlm(context=text, query="Where is the needle?")
    assert (done.at, done.words) == (50_000, ["needle"])
    outputs = [entry["output"] for entry in done.trajectory]
    assert outputs[0] == f"{len(text)} one" and "ZeroDivisionError" in outputs[1]
    assert "yes" in outputs[2] and outputs[3] == "from a sub-agent"


def test_rlm_keeps_what_is_in_its_volume(project: pathlib.Path) -> None:
    factory = FractalInterpreter.factory(directory=project, volume_name="memory")
    rlm = dspy.RLM("q -> a", interpreter_factory=factory)
    count = (
        "open('/data/memory/n', 'a').write('x')\nSUBMIT(str(len(open('/data/memory/n').read())))"
    )
    with dspy.context(lm=DummyLM([step(count)] * 3)):
        assert [rlm(q="how often?").a for _ in range(3)] == ["1", "2", "3"]


class Blob(SandboxSerializable):
    def sandbox_setup(self) -> str:
        return "import hashlib"

    def to_sandbox(self) -> bytes:
        return bytes(range(256))

    def sandbox_assignment(self, var_name: str, data_expr: str) -> str:
        return f"{var_name} = {data_expr}"

    def rlm_preview(self, max_chars: int = 500) -> str:
        return "all bytes"


def test_rlm_gives_binary_values_and_asks_many_at_once(factory: Factory) -> None:
    class Sig(dspy.Signature):
        blob: Blob = dspy.InputField()
        n: int = dspy.OutputField()

    together = threading.Barrier(3, timeout=60)

    def wait() -> int:
        "Waits for the others."
        return together.wait()

    lm = DummyLM(
        [
            step(
                "from concurrent.futures import ThreadPoolExecutor\n"
                "with ThreadPoolExecutor(3) as pool:\n"
                "    met = sorted(pool.map(lambda _: wait(), range(3)))\n"
                "assert met == [0, 1, 2] and blob == bytes(range(256))\nSUBMIT(n=len(blob))"
            )
        ]
    )
    with dspy.context(lm=lm, interpreter_factory=factory):
        assert dspy.RLM(Sig, tools=[wait])(blob=Blob()).n == 256


def test_rlm_awaited_and_side_by_side(factory: Factory) -> None:
    async def both() -> list[Any]:
        rlm = dspy.RLM("q -> a: int", interpreter_factory=factory)
        lms = [DummyLM([step(f"mine = {n}"), step("SUBMIT(mine)")]) for n in range(3)]

        async def one(lm: DummyLM) -> Any:
            with dspy.context(lm=lm):
                return await rlm.acall(q="?")

        return await asyncio.gather(*map(one, lms))

    assert [done.a for done in asyncio.run(both())] == [0, 1, 2]


def test_rlm_that_does_not_come_to_an_end_and_one_that_dies(factory: Factory) -> None:
    rlm = dspy.RLM("q -> a", max_iters=1, interpreter_factory=factory).deepcopy()
    with dspy.context(lm=DummyLM([step("print(1)"), {"a": "guess"}])):
        assert rlm(q="?").a == "guess"
    with dspy.context(lm=DummyLM([step("import os; os._exit(9)")])):
        with pytest.raises(CodeInterpreterError, match="exit status 9"):
            rlm(q="?")


def test_program_of_thought_and_code_act(factory: Factory, python: FractalInterpreter) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        thought = dspy.ProgramOfThought("question -> answer", interpreter_factory=factory)
        act = dspy.CodeAct("n -> factorial", tools=[factorial], interpreter_factory=factory)
    lm = DummyLM(
        [
            {"reasoning": "r", "generated_code": "```python\nresult = 1 +\n```"},
            {
                "reasoning": "r",
                "generated_code": "```python\nresult = 1 + 1\nSUBMIT({'answer': result})\n```",
            },
            {"reasoning": "r", "answer": "2"},
        ]
    )
    with dspy.context(lm=lm):
        assert thought(question="1 + 1?").answer == "2"
    said = [
        {"generated_code": "```python\nprint(factorial(5))\n```", "finished": "True"},
        {"reasoning": "r", "factorial": "120"},
    ]
    for given in ((), (python,)):
        with dspy.context(lm=DummyLM(list(said))):
            done = act(*given, n=5)
        assert done.factorial == "120" and done.trajectory["code_output_0"] == '"120"'
    assert python.execute("factorial(3)") == 6


def test_sub_agents_have_sandboxes_of_their_own_and_flex_runs_its_source(
    factory: Factory,
) -> None:
    lm = DummyLM(
        [
            step("import dspy\nn = dspy.RLM('text -> n: int')(text='abc').n\nprint(n)"),
            step("open('inner', 'w').write('x')\nSUBMIT(len(text))"),
            step("import os\nSUBMIT(f'{n} {os.path.exists(\"inner\")}')"),
        ]
    )
    with dspy.context(lm=lm):
        assert dspy.RLM("q -> a", interpreter_factory=factory)(q="?").a == "3 False"
    flex = Flex("question -> answer", interpreter_factory=factory)
    with dspy.context(lm=DummyLM([{"answer": "42"}, {"answer": "43"}])):
        assert flex(question="?").answer == "42" and flex(question="?").answer == "43"


def factorial(n: int) -> int:
    "The product of the numbers up to n."
    return 1 if n <= 1 else n * factorial(n - 1)


def test_what_is_only_of_this_process(project: pathlib.Path) -> None:
    client = SandboxClient("http://127.0.0.1:1", "key")
    with pytest.raises(CodeInterpreterError, match="are its own"):
        FractalInterpreter(client=client, volume_name="x").start()


def test_the_guide(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "project").mkdir()
    monkeypatch.chdir(project)
    lm = DummyLM(
        [
            step("print(orders)"),
            step("total = sum(price(item=order) for order in orders)\nprint(total)"),
            step("SUBMIT(total)"),
        ]
    )
    blocks = re.findall(
        r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    printed: list[Any] = []
    names["print"] = printed.append
    with dspy.context(lm=lm):
        for block in blocks:
            exec(compile(block, str(GUIDE), "exec"), names)
    assert printed == [124]
