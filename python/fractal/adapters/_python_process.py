"""The host's end of an interpreter in a sandbox: lines to it, and events from it.

What comes is not trusted, since the code inside may say what it likes: each line
is bounded and looked at, and what does not read ends the process. Nothing here
waits for the code: :mod:`fractal.adapters._python` does that.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import pathlib
import queue
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..sandbox import Sandbox

__all__ = ["GRACE_SECONDS", "Process", "Tool"]

Tool = Callable[..., Any]
"""A function of this process. It is given, and returns, what JSON has; one that
returns an awaitable is awaited."""

LINE_CHARS_MAX = 128 << 20
EVENTS_MAX = 256
TOOLS_AT_ONCE_MAX = 64
GRACE_SECONDS = 5.0
"""How long a process may take to end by itself."""
END_SECONDS_MAX = 30.0


class Process:
    """One run of ``_python_inside.py``: lines to it, and events from it."""

    def __init__(self, box: Sandbox, words: list[str], how: dict[str, Any], room: int) -> None:
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._room = room
        self._outputs = {"stdout": Text(room), "stderr": Text(room)}
        self._line: list[str] = []
        self._line_chars = 0
        self._lock = threading.Lock()
        self._working = 0
        # Calls of the piece that runs; tools of earlier ones stop no clock.
        self._calls: set[int] = set()
        self._piece = 0
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
            self._piece = request["id"]
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
            said["piece"] = self._piece
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
            event = {"is": "raised", "piece": said["piece"], "error": error}
        with self._lock:
            self._working -= 1
            self._calls.discard(said["call"])
        self._events.put(event)

    def _refuse(self, said: dict[str, Any], name: str, message: str) -> None:
        error = {"name": name, "message": message}
        self.send({"do": "answer", "call": said["call"], "error": error})


class Text:
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


async def _awaited(value: Any) -> Any:
    return await value
