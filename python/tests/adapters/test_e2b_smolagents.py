"""smolagents as it is on PyPI, through the E2B door. The model is a script."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from e2b_door import Door, door, examples, play
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.remote_executors import E2BExecutor
from smolagents.utils import AgentError

assert door  # a fixture

ONE_BY_TWO_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAACCAYAAACZgbYnAAAADUlEQVR4nGP4z8DAAAAEAQEAgKHdWwAAAABJRU5ErkJggg=="
)


class Script(Model):
    """A model that says these pieces of code, one for each turn."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="script")
        self.codes = list(codes)
        self.heard: list[str] = []

    def generate(self, messages: list[Any], *words: Any, **more: Any) -> ChatMessage:
        self.heard.append(str(messages[-1].content))
        said = f"Thought: on we go.\n<code>\n{self.codes.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=said)


def agent(*codes: str, **how: Any) -> CodeAgent:
    how = {"tools": [], "verbosity_level": 0, **how}
    return CodeAgent(model=Script(*codes), executor_type="e2b", **how)


@tool
def price(item: str) -> int:
    """Tells what an item costs, in euros.

    Args:
        item: Its name.
    """
    return {"pen": 2, "desk": 120}[item]


@pytest.fixture
def lab(door: Door) -> Iterator[CodeAgent]:
    """An agent that says nothing: for what its executor does."""
    with agent() as lab:
        yield lab


def sandbox_id(who: CodeAgent) -> str:
    executor = who.python_executor
    assert isinstance(executor, E2BExecutor)
    return str(executor.sandbox.sandbox_id)


def test_an_answer_comes_from_a_sandbox_that_ends_with_the_agent(door: Door) -> None:
    fibonacci = "a, b = 0, 1\nfor _ in range(100):\n    a, b = b, a + b\nfinal_answer(a)"
    before = door.sandboxes()
    with agent(fibonacci) as one:
        assert one.run("Can you give me the 100th Fibonacci number?") == 354224848179261915075
        assert sandbox_id(one) in door.sandboxes()
    assert door.sandboxes() == before


def test_turns_share_names_and_the_machine_of_the_sandbox(door: Door) -> None:
    with agent(
        "import pathlib\nplace = pathlib.Path('notes.txt')\nplace.write_text('bread\\n')\nprint('kept')",
        "place.read_text() + 'milk'",
        "!cat notes.txt",
        "final_answer(str(place.resolve()))",
    ) as one:
        where = one.run("Keep a note.")
        heard = one.model.heard
        assert "kept" in heard[1] and "milk" in heard[2] and "bread" in heard[3]
        assert door.inside(sandbox_id(one), f"cat {where}") == "bread\n"
    # Nothing of it came to the machine itself.
    assert sorted(path.name for path in door.project.iterdir()) == ["README"]


def test_tools_of_the_caller_work_inside(door: Door) -> None:
    code = "final_answer(price('pen') + price(item='desk'))"
    with agent(code, tools=[price]) as one:
        assert one.run("What do a pen and a desk cost?") == 122


def test_variables_go_in_as_values(door: Door) -> None:
    given = {"rows": [(1, "a"), (2, "b")], "day": date(2026, 11, 19), "raw": b"\x00\xff"}
    code = "final_answer([rows[1][1], day.year, raw[1], type(raw).__name__])"
    with agent(code) as one:
        assert one.run("Look.", additional_args=given) == ["b", 2026, 255, "bytes"]


@pytest.mark.parametrize(
    "value",
    ["'π\\n'", "b'\\x00\\xff'", "{1: (2, {3})}", "3 - 4j", "None", "[True, 0.5, 'x' * 100_000]"],
)
def test_answers_keep_their_type(door: Door, value: str) -> None:
    with agent(f"final_answer({value})") as one:
        assert one.run("Say it.") == eval(value)


def test_an_error_is_told_to_the_model_which_goes_on(door: Door) -> None:
    with agent("kept = 1\nprint('before')\n1 / 0", "final_answer(kept + 1)") as one:
        assert one.run("Divide.") == 2
        step = one.memory.steps[1]
        assert "ZeroDivisionError" in step.error.message and "before" in step.error.message
        assert "ZeroDivisionError" in one.model.heard[1]


@pytest.mark.parametrize("code,name", [("no_such", "NameError"), ("1 +", "SyntaxError"),
                                       ("raise KeyError('x')", "KeyError"), ("exit(3)", "SystemExit")])
def test_errors_have_their_names(lab: CodeAgent, code: str, name: str) -> None:
    with pytest.raises(AgentError, match=name):
        lab.python_executor(code)
    assert lab.python_executor("1 + 1").output == "2"


def test_an_answer_that_is_no_value_is_an_error(door: Door) -> None:
    with agent("final_answer(object())", "final_answer('well')") as one:
        assert one.run("Say it.") == "well"
        assert "SerializationError" in one.memory.steps[1].error.message


def test_a_picture_is_a_picture_here(lab: CodeAgent) -> None:
    shown = (
        f"import base64\nclass Picture:\n"
        f"    def _repr_png_(self): return base64.b64decode('{ONE_BY_TWO_PNG}')\n"
        f"Picture()"
    )
    picture = lab.python_executor(shown).output
    assert picture.size == (1, 2)


def test_much_output_arrives_whole(lab: CodeAgent) -> None:
    done = lab.python_executor("for n in range(20_000): print(f'{n:050}')")
    lines = done.logs.split()
    assert len(lines) == 20_000 and int(lines[-1]) == 19_999


def test_code_that_runs_for_too_long_ends_and_the_agent_goes_on(door: Door) -> None:
    """The agent has no limit for a turn; whoever owns the sandbox sets one."""
    from e2b.exceptions import TimeoutException

    with agent() as one:
        box = one.python_executor.sandbox
        box.run_code("kept = 7")
        with pytest.raises(TimeoutException):
            box.run_code("import time\nwhile True: time.sleep(0.05)", timeout=2)
        assert one.python_executor("kept").output == "7"


def test_a_sandbox_that_is_dropped_under_an_agent_is_an_error_of_its_turn(door: Door) -> None:
    with agent("final_answer(1)", max_steps=1) as one:
        door.drop(sandbox_id(one))
        with pytest.raises(Exception, match="(?i)sandbox"):
            one.python_executor("1")


def test_two_agents_at_once_do_not_meet(door: Door) -> None:
    answers: dict[int, object] = {}

    def ask(number: int) -> None:
        write = f"mine = {number}\nopen('mine', 'w').write(str(mine))"
        with agent(write, "final_answer((mine, open('mine').read()))") as one:
            answers[number] = one.run("Remember.")

    threads = [threading.Thread(target=ask, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: (number, str(number)) for number in (1, 2, 3)}


def test_the_agent_can_live_in_the_sandbox_as_a_whole(door: Door) -> None:
    """The other way that smolagents describes: files and commands of a sandbox
    in which a program of its own runs."""
    from e2b_code_interpreter import Sandbox

    with Sandbox.create() as box:
        box.files.write("agent.py", "import sys\nprint('ran with', sys.argv[1])\n")
        seen: list[str] = []
        done = box.commands.run("python3 agent.py words", on_stdout=seen.append)
        assert done.exit_code == 0 and "".join(seen) == "ran with words\n"


def test_what_the_guide_shows_runs(door: Door) -> None:
    for source in examples("e2b-door.md", "smolagents"):
        model = Script("print(6 * 7)", "final_answer(6 * 7)")
        assert play(source, model=model)["answer"] == 42
