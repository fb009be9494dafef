"""Functions as tools, beside the verbs and programs of a project."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import textwrap
import time
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest

from conftest import interruptible

from fractal import Sandbox, ToolRegistry, aio
from fractal.tools import schema_of


@pytest.fixture
def project(home: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "notes.txt").write_text("one\n")
    return tmp_path


@pytest.fixture
def tools(project: pathlib.Path) -> ToolRegistry:
    return ToolRegistry(project)


class Place(TypedDict):
    x: int
    y: float


def test_arguments_are_the_schema() -> None:
    def function(
        a: str,
        b: Annotated[int, "how many"] = 3,
        c: Optional[list[str]] = None,
        d: Literal["up", "down"] = "up",
        e: dict[str, Union[int, bool]] = {},
        f: tuple[int, ...] = (),
        g: tuple[str, float] = ("", 0.0),
        h: Place = {"x": 0, "y": 0.0},
        i=None,  # type: ignore[no-untyped-def]
    ) -> None: ...

    schema = schema_of(function)
    assert schema["required"] == ["a"] and schema["additionalProperties"] is False
    fields = schema["properties"]
    assert fields["a"] == {"type": "string"}
    assert fields["b"] == {"type": "integer", "description": "how many", "default": 3}
    text = {"type": "array", "items": {"type": "string"}}
    assert fields["c"] == {"anyOf": [text, {"type": "null"}], "default": None}
    assert fields["d"]["enum"] == ["up", "down"]
    assert fields["e"]["additionalProperties"] == {
        "anyOf": [{"type": "integer"}, {"type": "boolean"}]
    }
    assert fields["f"]["items"] == {"type": "integer"}
    assert fields["g"]["prefixItems"] == [{"type": "string"}, {"type": "number"}]
    assert fields["h"]["required"] == ["x", "y"]
    assert fields["i"] == {"default": None}

    def anything(**fields: int) -> None: ...

    assert "additionalProperties" not in schema_of(anything)


@pytest.mark.parametrize(
    "function",
    [lambda *args: None, eval("lambda a, /: None"), lambda a=pathlib.Path: None],
)
def test_what_has_no_schema_is_said(function: Any) -> None:
    if function.__code__.co_argcount == 1 and not function.__code__.co_posonlyargcount:
        function.__annotations__ = {"a": pathlib.Path}
    with pytest.raises(TypeError, match="argument"):
        schema_of(function)


def test_a_function_is_called_with_what_fits(tools: ToolRegistry) -> None:
    asked: list[dict[str, int]] = []

    @tools.register
    def add(a: int, b: int = 1) -> dict[str, int]:
        """Add two numbers."""
        asked.append({"a": a, "b": b})
        return {"sum": a + b}

    assert add(1, 2) == {"sum": 3}, "it is the function it was"
    asked.clear()
    assert tools.call("add", {"a": 40, "b": 2}) == {"sum": 42}
    assert tools.call("add", {"a": 1}) == {"sum": 2}
    for wrong, words in [
        ({}, '"a" is a required property'),
        ({"a": "1"}, "/a"),
        ({"a": 1, "c": 2}, "/c"),
    ]:
        with pytest.raises(ValueError, match="add") as raised:
            tools.call("add", wrong)
        assert words in str(raised.value)
        assert getattr(raised.value, "code") == "invalid"
    assert asked == [{"a": 40, "b": 2}, {"a": 1, "b": 1}], "the others never reached it"
    tool = tools["add"]
    assert (tool.kind, tool.description, tool.timeout) == ("function", "Add two numbers.", 60.0)
    assert {"run", "read", "add"} <= {tool.name for tool in tools}
    with pytest.raises(FileExistsError):
        tools.register(add)
    assert tools.unregister("add") and not tools.unregister("add") and "add" not in tools
    with pytest.raises(FileNotFoundError):
        tools.call("add", {"a": 1})


def test_what_goes_wrong_is_the_calls_own(tools: ToolRegistry) -> None:
    def fails(a: int) -> int:
        """Fail."""
        raise RuntimeError(f"no {a}")

    def odd() -> object:
        """Answer what is no JSON."""
        return {1, 2}

    def nan() -> float:
        """Answer what is no number."""
        return float("nan")

    def slow() -> None:
        """Take long."""
        time.sleep(1)

    def liar() -> dict[str, int]:
        """Answer other than promised."""
        return {"n": 1}

    for function in (fails, odd, nan):
        tools.register(function)
    tools.register(timeout=0.1)(slow)
    tools.register(output={"type": "object", "required": ["sum"]})(liar)
    results = tools.call_many(
        [
            {"tool": "fails", "input": {"a": 3}},
            {"tool": "odd"},
            {"tool": "nan"},
            {"tool": "slow"},
            {"tool": "liar"},
            {"tool": "gone"},
            {"tool": "fails", "input": {"a": "x"}},
        ],
        jobs=4,
    )
    codes = [result.error and result.error.code for result in results]
    assert codes == ["failed", "failed", "failed", "timeout", "failed", "not_found", "invalid"]
    errors = [result.error.message for result in results if result.error]
    assert "RuntimeError: no 3" in errors[0] and "TypeError" in errors[1]
    assert "sum" in errors[4]
    with pytest.raises(RuntimeError, match="no 3"):
        tools.call("fails", {"a": 3})
    with pytest.raises(TimeoutError):
        tools.call("slow")
    with pytest.raises(ValueError, match="tool"):
        tools.call_many([{"name": "fails"}])


def test_many_calls_go_side_by_side_in_their_order(tools: ToolRegistry) -> None:
    """A hundred of a tenth of a second, fifty at once, three of which fail."""

    @tools.register
    def wait(number: int) -> int:
        """Wait a little."""
        time.sleep(0.1)
        if number in (7, 50, 93):
            raise ValueError(number)
        return number

    start = time.monotonic()
    results = tools.call_many(
        [{"tool": "wait", "input": {"number": number}} for number in range(100)], jobs=50
    )
    took = time.monotonic() - start
    failed = [at for at, result in enumerate(results) if result.error]
    assert failed == [7, 50, 93]
    assert all(result.output == at for at, result in enumerate(results) if not result.error)
    # One after the other they would take ten seconds.
    assert took < 5, took


def test_verbs_and_programs_are_there_too(tools: ToolRegistry, project: pathlib.Path) -> None:
    own = project / "tools" / "count"
    own.mkdir(parents=True)
    (own / "tool.toml").write_text(
        'name = "count"\ndescription = "Count."\ncommand = ["sh", "-c", "wc -l < notes.txt"]\n'
        'input = { type = "object" }\n'
    )
    with Sandbox.clone(project) as box:
        tools.call("write", {"path": "notes.txt", "content": "1\n2\n3\n"}, sandbox=box)
        assert tools.call("count", sandbox=box) == 3
        assert tools["count"].kind == "program"
        assert [tool.name for tool in tools.list(box)] == [tool.name for tool in tools]
    assert (project / "notes.txt").read_text() == "one\n"


def test_coroutines_are_awaited(tools: ToolRegistry) -> None:
    @tools.register
    async def later(text: str) -> str:
        """Say it later."""
        await asyncio.sleep(0.01)
        return text

    async def both() -> list[object]:
        registry = aio.ToolRegistry(tools)
        assert "later" in [tool.name for tool in await registry.list()]
        many = registry.call_many([{"tool": "later", "input": {"text": "b"}}])
        one, several = await asyncio.gather(registry.call("later", {"text": "a"}), many)
        return [one, several[0].output]

    assert asyncio.run(both()) == ["a", "b"]


def test_ctrl_c_ends_a_program_that_a_tool_runs(home: pathlib.Path) -> None:
    code = """
        import time
        from fractal import ToolRegistry
        tools = ToolRegistry("/")
        print("up", flush=True)
        start = time.monotonic()
        try:
            tools.call("run", {"command": "sleep 50", "name": "ctrl-c"})
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 30, flush=True)
        """
    with interruptible(textwrap.dedent(code)) as started:
        assert started.stdout and started.stdout.readline() == "up\n"
        time.sleep(1)
        started.send_signal(signal.SIGINT)
        assert started.stdout.readline() == "interrupted True\n"
