"""Runs Python code for a model: one process in a sandbox that keeps its names.

:class:`Interpreter` starts ``_python_inside.py`` in a sandbox, with the sandbox's
own CPython, and gives it one piece of code after the other. It knows nothing of
any framework.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._python_process import Process, Tool

if TYPE_CHECKING:
    from ..sandbox import Sandbox

__all__ = ["Failure", "Interpreter", "InterpreterDied", "Piece", "Tool"]

OUTPUT_CHARS_MAX = 1 << 20
START_SECONDS_MAX = 120.0
GRACE_SECONDS = 5.0
"""How long code may go on after it was interrupted."""

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
        self._process: Process | None = None
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
        process = Process(self.box, words, self._how, self.output_max)
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

    def _carry_out(self, process: Process, request: dict[str, Any], timeout: float | None) -> Piece:
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

    def _wait(
        self, process: Process, number: int, left: float | None, *, is_called_off: bool = False
    ) -> dict[str, Any] | None:
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
            elif said["is"] == "raised" and said["piece"] == number and not is_called_off:
                raise said["error"]
            elif said["is"] == "ended":
                raise self._died(process, said["why"])

    def _interrupted(self, process: Process, number: int, timeout: float | None) -> Piece:
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

    def _call_off(self, process: Process, number: int) -> None:
        try:
            process.send({"do": "interrupt", "id": number})
            done = self._wait(process, number, GRACE_SECONDS, is_called_off=True)
        except BaseException:
            done = None
        if done is not None:
            process.take_output()
        elif self._process is process:
            self._died(process, "it was called off and did not stop")

    def _died(self, process: Process, why: str) -> InterpreterDied:
        process.kill()
        self._process = None
        if self._restarts:
            after = "all names are lost, and the next piece of code starts anew"
        else:
            after = "all names are lost: make a new interpreter"
            self._ended = f"the interpreter has ended: {why}; {after}"
        return InterpreterDied(f"the interpreter has ended: {why}; {after}", *process.take_output())


def _piece(process: Process, done: dict[str, Any]) -> Piece:
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


def _why(said: Any) -> str:
    return str(said.get("why", said)) if isinstance(said, dict) else str(said)


def _pythons() -> list[str]:
    return [sys.executable, "python3"] if sys.executable else ["python3"]
