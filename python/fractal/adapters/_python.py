"""Runs Python code for a model: one process in a sandbox that keeps its names.

:class:`Interpreter` starts ``_python_inside.py`` in a sandbox, with the sandbox's
own CPython, and gives it one piece of code after the other. It knows nothing of
any framework. What comes back is not trusted: every line of it is bounded and
looked at, and what does not read ends the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..sandbox import Sandbox

__all__ = ["Failure", "Interpreter", "InterpreterDied", "Piece", "Tool"]

Tool = Callable[..., Any]
"""A function of this process. It is given, and returns, what JSON has; one that
returns an awaitable is awaited."""

OUTPUT_CHARS_MAX = 1 << 20
LINE_CHARS_MAX = 128 << 20
EVENTS_MAX = 256
TOOLS_AT_ONCE_MAX = 64
START_SECONDS_MAX = 120.0
GRACE_SECONDS = 5.0
"""How long code may go on after it was interrupted."""
END_SECONDS_MAX = 30.0

_BOOT = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; import json, os; "
    "requests = os.fdopen(os.dup(0), 'rb'); names = {'__name__': '_fractal'}; "
    "exec(compile(json.loads(requests.readline()), '<fractal>', 'exec'), names); "
    "names['serve'](requests)"
)
_CHOOSE = (
    'boot=$1; shift; for python do command -v "$python" >/dev/null 2>&1 && '
    'exec "$python" -c "$boot"; done; echo "there is no Python here: $*" >&2; exit 127'
)


class InterpreterDied(RuntimeError):
    """The process is gone, and all names with it."""

    def __init__(self, message: str, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.stdout = stdout
        """What the code had written until then."""
        self.stderr = stderr


@dataclass(frozen=True)
class Failure:
    """Why a piece of code did not come to its end."""

    kind: Literal["error", "syntax", "timeout"]
    name: str
    """The exception's class."""
    message: str
    traceback: str
    carries: Any = None
    """What the exception has as ``__carries__``."""


@dataclass(frozen=True)
class Piece:
    """What a piece of code left behind."""

    stdout: str
    stderr: str
    left_out: int
    """How many characters of output there was no room for."""
    value: Any = None
    """Its last expression, if JSON has it."""
    text: str | None = None
    """The ``repr`` of its last expression, or none if that is ``None``."""
    error: Failure | None = None
    wanted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)


class Interpreter:
    """A CPython in a sandbox. ``with`` starts and ends it; so do :meth:`start`,
    which the first piece of code does as well, and :meth:`close`.

    ``tools`` may change between pieces. ``timeout`` is for the code of one piece;
    the time that tools take is their own. Code that takes longer is interrupted
    and keeps its names; if it does not end then, the process is ended. A process
    that is gone is an :class:`InterpreterDied`, once, and the next piece has a
    new one: with ``restarts=False`` there is no next one.

    ``python`` are the programs to try, in that order: by default the one that
    runs here, and ``python3``.
    """

    def __init__(
        self,
        box: Sandbox,
        *,
        tools: Mapping[str, Tool] | None = None,
        python: str | Sequence[str] | None = None,
        timeout: float | None = 600.0,
        output_max: int = OUTPUT_CHARS_MAX,
        restarts: bool = True,
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        **bounds: Any,
    ) -> None:
        if timeout is not None and timeout <= 0:
            raise ValueError(f"a time limit is above zero: it is {timeout}")
        self.box = box
        self.tools: dict[str, Tool] = dict(tools or {})
        self.timeout = timeout
        self.output_max = output_max
        self._python = [python] if isinstance(python, str) else list(python or _pythons())
        self._restarts = restarts
        self._how = {"cwd": cwd, "envs": envs, **bounds}
        self._process: _Process | None = None
        self._ended: str | None = None
        self._number = 0
        self._busy = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether there is a process, with the names of the pieces before."""
        return self._process is not None and self._process.ended is None

    def start(self) -> None:
        """Starts the process, unless it runs."""
        if self._ended is not None:
            raise InterpreterDied(self._ended)
        if self._process is not None:
            return
        words = ["sh", "-c", _CHOOSE, "sh", _BOOT, *self._python]
        process = _Process(self.box, words, self._how, self.output_max)
        try:
            process.send_source()
            said = process.next(START_SECONDS_MAX)
        except BaseException:
            process.kill()
            raise
        if said is None or said["is"] != "ready":
            process.kill()
            why = f"it said nothing for {START_SECONDS_MAX:g} seconds" if said is None else said
            raise InterpreterDied(f"Python did not start in {self.box.name}: {_why(why)}")
        self._process = process

    def run(
        self,
        code: str,
        names: Mapping[str, Any] | None = None,
        *,
        want: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Piece:
        """Runs a piece of code, with the names of the pieces before it and
        ``names``. Code that fails is a result, too. As at Python's own prompt,
        ``_`` is the last value then.

        ``want`` are names whose values are told afterwards, as JSON.
        """
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("a piece of code already runs here: wait for it, or use another one")
        try:
            self.start()
            assert self._process is not None
            self._number += 1
            request = {
                "do": "run",
                "id": self._number,
                "code": code,
                "names": _checked(names or {}),
                "tools": list(self.tools),
                "want": list(want),
                "output_max": self.output_max,
            }
            return self._carry_out(self._process, request, timeout or self.timeout)
        finally:
            self._busy.release()

    def get(self, *names: str) -> tuple[Any, ...]:
        """The values of names, as JSON has them."""
        wanted = self.run("", want=names).wanted
        for name in names:
            if name not in wanted:
                raise KeyError(name)
            if "value" not in wanted[name]:
                kind = wanted[name].get("type")
                raise TypeError(f"{name} is a {kind}, which JSON has not, or it is too large")
        return tuple(wanted[name]["value"] for name in names)

    def close(self) -> None:
        """Ends the process. A closed one is not started again."""
        self._ended = self._ended or "the interpreter was closed: make a new one"
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def __enter__(self) -> Interpreter:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _carry_out(
        self, process: _Process, request: dict[str, Any], timeout: float | None
    ) -> Piece:
        try:
            process.begin(request)
            done = self._wait(process, request["id"], timeout)
            if done is None:
                return self._interrupted(process, request["id"], timeout)
        except InterpreterDied:
            raise
        except BaseException:
            # Whoever waited was called off; what runs is, too.
            self._call_off(process, request["id"])
            raise
        return _piece(process, done)

    def _wait(self, process: _Process, number: int, left: float | None) -> dict[str, Any] | None:
        """The end of a piece, or none when its time is over. The clock stands
        while tools work."""
        while True:
            began, stands = time.monotonic(), process.has_work
            said = process.next(None if stands else left)
            if left is not None and not stands:
                left = max(0.0, left - (time.monotonic() - began))
            if said is None:
                return None
            if said["is"] == "done" and said["id"] == number:
                return said
            if said["is"] == "call":
                process.call(self.tools.get(said["name"]), said)
            elif said["is"] == "raised":
                raise said["error"]
            elif said["is"] == "ended":
                raise self._died(process, said["why"])

    def _interrupted(self, process: _Process, number: int, timeout: float | None) -> Piece:
        process.send({"do": "interrupt", "id": number})
        done = self._wait(process, number, GRACE_SECONDS)
        if done is None:
            raise self._died(
                process,
                f"the code took more than its {timeout:g} seconds and could not be interrupted",
            )
        error = done.get("error")
        if error is not None and error["name"] == "KeyboardInterrupt":
            said = f"the code took more than its {timeout:g} seconds and was interrupted"
            error.update(kind="timeout", name="TimeoutError", message=said)
        return _piece(process, done)

    def _call_off(self, process: _Process, number: int) -> None:
        try:
            process.send({"do": "interrupt", "id": number})
            over = self._wait(process, number, GRACE_SECONDS) is not None
        except BaseException:
            over = False
        if over:
            process.take_output()
        elif self._process is process:
            self._died(process, "it was called off and did not stop")

    def _died(self, process: _Process, why: str) -> InterpreterDied:
        process.kill()
        self._process = None
        if self._restarts:
            after = "all names are lost, and the next piece of code starts anew"
        else:
            after = "all names are lost: make a new interpreter"
            self._ended = f"the interpreter has ended: {why}; {after}"
        return InterpreterDied(f"the interpreter has ended: {why}; {after}", *process.take_output())


class _Process:
    """One run of ``_python_inside.py``: lines to it, and events from it."""

    def __init__(self, box: Sandbox, words: list[str], how: dict[str, Any], room: int) -> None:
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._room = room
        self._outputs = {"stdout": _Text(room), "stderr": _Text(room)}
        self._line: list[str] = []
        self._line_chars = 0
        self._lock = threading.Lock()
        self._working = 0
        # Calls of the piece that runs; tools of earlier ones stop no clock.
        self._calls: set[int] = set()
        self.ended: str | None = None
        self._command = box.commands.run(words, background=True, on_stdout=self._hear, **how)
        for task in (self._write, self._watch):
            threading.Thread(target=task, daemon=True).start()

    def send_source(self) -> None:
        source = pathlib.Path(__file__).with_name("_python_inside.py").read_text("utf-8")
        self._lines.put(json.dumps(source) + "\n")

    @property
    def has_work(self) -> bool:
        """Whether tools work for the piece of code that runs."""
        return bool(self._calls)

    def begin(self, request: dict[str, Any]) -> None:
        with self._lock:
            self._calls.clear()
        self.send(request)

    def send(self, message: dict[str, Any]) -> None:
        """Sends without waiting: what does not read is noticed by its silence."""
        self._lines.put(json.dumps(message) + "\n")

    def next(self, seconds: float | None) -> dict[str, Any] | None:
        """The next event, or none when there is none for so long."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def take_output(self) -> tuple[str, str]:
        stdout, stderr = (output.take() for output in self._outputs.values())
        return stdout, stderr

    def end(self) -> None:
        """Tells it that there is no more; it has some time to go."""
        self._lines.put(None)
        try:
            self._command.wait(GRACE_SECONDS)
        except Exception:
            self.kill()

    def kill(self) -> None:
        """Ends it and waits, but not for ever."""
        self._command.kill()
        self._lines.put(None)
        try:
            self._command.wait(END_SECONDS_MAX)
        except Exception:
            pass  # it was refused, or told by `_watch`

    def _write(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                self._command.send_stdin(line)
            self._command.close_stdin()
        except (OSError, ValueError):
            pass  # it is over, which `_watch` tells

    def _watch(self) -> None:
        try:
            done = self._command.wait()
            last = done.stderr.strip().splitlines()[-1:]
            why = "; ".join([f"its process ended ({done.error or 'exit status 0'})", *last])
        except Exception as error:
            why = str(error)
        self.ended = self.ended or why
        self._events.put({"is": "ended", "why": self.ended})

    def _hear(self, text: str) -> None:
        if self.ended is not None:
            return
        *lines, rest = text.split("\n")
        for line in lines:
            self._line.append(line)
            whole, self._line, self._line_chars = "".join(self._line), [], 0
            self._take_line(whole)
        self._line.append(rest)
        self._line_chars += len(rest)
        if self._line_chars > LINE_CHARS_MAX:
            self._broken("a line of it is too long")

    def _take_line(self, line: str) -> None:
        try:
            said = _message(json.loads(line))
        except (ValueError, RecursionError):
            return self._broken("what it said does not read")
        if said["is"] == "output":
            self._outputs[said["stream"]].add(said["text"])
        elif self._events.qsize() >= EVENTS_MAX:
            self._broken("it asks for too much at once")
        else:
            self._events.put(said)

    def _broken(self, why: str) -> None:
        if self.ended is None:
            self.ended = why
            self._command.kill()

    def call(self, tool: Tool | None, said: dict[str, Any]) -> None:
        """Has a tool work in a thread of its own, and answers for it."""
        if tool is None:
            return self._refuse(said, "NameError", f"the host has no function {said['name']!r}")
        with self._lock:
            if self._working >= TOOLS_AT_ONCE_MAX:
                crowd = f"{TOOLS_AT_ONCE_MAX} functions of the host work already: wait for one"
                return self._refuse(said, "RuntimeError", crowd)
            self._working += 1
            self._calls.add(said["call"])
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._work, tool, said), daemon=True).start()

    def _work(self, tool: Tool, said: dict[str, Any]) -> None:
        event: dict[str, Any] = {"is": "worked"}
        try:
            value = tool(*said["args"], **said["kwargs"])
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            try:
                line = json.dumps({"do": "answer", "call": said["call"], "value": value})
            except (TypeError, ValueError, RecursionError) as error:
                raise TypeError(f"{said['name']}() returned what JSON has not: {error}") from None
            self._lines.put(line + "\n")
        except Exception as error:
            self._refuse(said, type(error).__name__, str(error))
        except BaseException as error:
            self._refuse(said, type(error).__name__, str(error))
            event = {"is": "raised", "error": error}
        with self._lock:
            self._working -= 1
            self._calls.discard(said["call"])
        self._events.put(event)

    def _refuse(self, said: dict[str, Any], name: str, message: str) -> None:
        error = {"name": name, "message": message}
        self.send({"do": "answer", "call": said["call"], "error": error})


class _Text:
    """Output until somebody takes it: the first of it, up to a bound."""

    def __init__(self, room: int) -> None:
        self._room = self._left = room
        self._pieces: list[str] = []
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        with self._lock:
            text = text[: self._left]
            self._left -= len(text)
            if text:
                self._pieces.append(text)

    def take(self) -> str:
        with self._lock:
            pieces, self._pieces, self._left = self._pieces, [], self._room
        return "".join(pieces)


_FIELDS: Mapping[str, Mapping[str, type]] = {
    "ready": {"python": str},
    "output": {"stream": str, "text": str},
    "call": {"call": int, "name": str, "args": list, "kwargs": dict},
    "done": {"id": int, "left_out": int},
}
_ERROR_FIELDS = ("kind", "name", "message", "trace")


def _message(said: Any) -> dict[str, Any]:
    """A message if it is one; whatever runs inside might have written it."""
    if not isinstance(said, dict):
        raise ValueError("no object")
    fields = _FIELDS.get(str(said.get("is")))
    if fields is None or not all(isinstance(said.get(name), kind) for name, kind in fields.items()):
        raise ValueError("no message")
    if said["is"] == "output" and said["stream"] not in ("stdout", "stderr"):
        raise ValueError("no stream")
    error = said.get("error")
    if error is not None and not (
        isinstance(error, dict) and all(isinstance(error.get(name), str) for name in _ERROR_FIELDS)
    ):
        raise ValueError("no error")
    wanted = said.get("wanted", {})
    if not isinstance(wanted, dict) or not all(isinstance(one, dict) for one in wanted.values()):
        raise ValueError("no values")
    return said


def _piece(process: _Process, done: dict[str, Any]) -> Piece:
    stdout, stderr = process.take_output()
    error, failure = done.get("error"), None
    if error is not None:
        known: dict[str, Literal["error", "syntax", "timeout"]]
        known = {"syntax": "syntax", "timeout": "timeout"}
        failure = Failure(
            known.get(error["kind"], "error"),
            error["name"],
            error["message"],
            error["trace"],
            error.get("value"),
        )
    text = done.get("text")
    return Piece(
        stdout=stdout,
        stderr=stderr,
        left_out=done["left_out"],
        value=done.get("value"),
        text=text if isinstance(text, str) else None,
        error=failure,
        wanted=done.get("wanted", {}),
    )


def _checked(names: Mapping[str, Any]) -> dict[str, Any]:
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{name!r} is no name of Python")
    try:
        json.dumps(dict(names))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a value is given as JSON, which has it not: {error}") from None
    return dict(names)


async def _awaited(value: Any) -> Any:
    return await value


def _why(said: Any) -> str:
    return str(said.get("why", said)) if isinstance(said, dict) else str(said)


def _pythons() -> list[str]:
    return [sys.executable, "python3"] if sys.executable else ["python3"]
