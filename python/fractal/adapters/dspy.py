"""Code of DSPy programs in sandboxes: an interpreter for ``dspy.RLM`` and others.

:class:`FractalInterpreter` is DSPy's ``CodeInterpreter`` with a real CPython in
a clone of this machine, on the standard topology: a volume that is kept at
`/data`, the project at `/src`, scratch space to work in. Modules make their
interpreters by ``FractalInterpreter.factory(...)``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import keyword
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
from dspy.utils.callback import BaseCallback, with_callbacks
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import _topology
from ._python import OUTPUT_CHARS_MAX, Interpreter, InterpreterDied, Piece

if TYPE_CHECKING:
    from ..client import SandboxClient
    from ..sandbox import Sandbox

__all__ = ["Factory", "FractalInterpreter"]

INSTRUCTIONS = (
    "Code runs in a real CPython process in a sandbox: a copy of a Linux machine with its programs "
    "and packages. State, imports and functions persist for this session; input variables are set "
    "anew before each piece of code. /data is kept for later sessions, /src is the project "
    "(read-only), and /workspace, the working directory, is scratch space. Subprocesses and files "
    "work as usual; the network may be closed. Tools and SUBMIT are global functions."
)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _observed(method: _Method) -> _Method:
    """Has DSPy's callbacks told of each call."""
    return cast("_Method", with_callbacks(method))


_SUBMITTED = "_fractal_Submitted"
_RESERVED = {"SUBMIT", "__builtins__", _SUBMITTED}


class FractalInterpreter:
    """A ``CodeInterpreter`` of DSPy.

    It makes a sandbox for work in ``directory`` when it starts and drops it with
    :meth:`shutdown`; ``volume_name`` is the volume at `/data`, which stays, and by
    default the project's own. Another ``template`` may mount other things. A
    ``sandbox`` that is given is used as it is, and stays. ``bounds`` are those of
    :meth:`fractal.Sandbox.create`: ``network``, ``memory``, ``cpus``, ``envs``…

    Code that takes longer than ``execution_timeout`` seconds is interrupted, which
    is a ``CodeExecutionError``, and the session goes on; the time of tools does
    not count. If it cannot be interrupted the session is over.
    """

    execution_instructions = INSTRUCTIONS

    def __init__(
        self,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        output_fields: Sequence[Mapping[str, Any]] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        volume_name: str | None = None,
        template: str | None = None,
        sandbox: Sandbox | None = None,
        client: SandboxClient | None = None,
        execution_timeout: float | None = 600.0,
        output_max: int = OUTPUT_CHARS_MAX,
        python: str | Sequence[str] | None = None,
        callbacks: Sequence[BaseCallback] = (),
        **bounds: Any,
    ) -> None:
        if execution_timeout is not None and execution_timeout <= 0:
            raise ValueError(f"a time limit is above zero: it is {execution_timeout}")
        asked: dict[str, Any] = {"directory": directory, "client": client, "template": template}
        asked.update(volume_name=volume_name, **bounds)
        named = [name for name, value in asked.items() if value is not None]
        if sandbox is not None and named:
            raise ValueError(f"a sandbox that is there is used as it is: leave out {named}")
        _check_names(tools or {}, "a tool")
        self.tools: dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = None if output_fields is None else [dict(f) for f in output_fields]
        self.callbacks = list(callbacks)
        self._asked = asked
        self._given = sandbox
        self._how: dict[str, Any] = {
            "timeout": execution_timeout,
            "output_max": output_max,
            "python": python,
        }
        self._box: Sandbox | None = None
        self._python: Interpreter | None = None
        self._submits: list[str] | None = None
        self._ended = False

    @classmethod
    def factory(cls, *args: Any, **keywords: Any) -> Factory:
        """What makes interpreters with these arguments, one for each call of a
        module: for ``interpreter_factory=`` of modules and ``dspy.configure``."""
        return Factory(cls, args, keywords)

    @property
    def sandbox(self) -> Sandbox:
        """Where the code runs."""
        self.start()
        assert self._box is not None
        return self._box

    @_observed
    def start(self) -> None:
        """Makes the sandbox and starts Python there, if that is yet to do."""
        if self._ended:
            raise CodeInterpreterError("this session is over: make a new interpreter")
        if self._python is not None:
            return
        try:
            box = self._given or _topology.create(**self._asked)
        except (OSError, RuntimeError, ValueError) as error:
            raise CodeInterpreterError(f"no sandbox could be made: {error}") from error
        self._box = box
        python = Interpreter(box, restarts=False, **self._how)
        try:
            python.start()
        except (OSError, RuntimeError, ValueError) as error:
            self._end()
            raise CodeInterpreterError(str(error)) from error
        self._python = python

    @_observed
    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """Runs a piece of code; what it returns or prints, or ``FinalOutput``."""
        names = self._names(variables or {})
        _check_names(self.tools, "a tool")
        self.start()
        self._define_submit()
        assert self._python is not None
        self._python.tools = {name: functools.partial(self._tool, name) for name in self.tools}
        piece = self._run(code, names)
        if piece.error is None:
            return _answer(piece)
        if piece.error.name == _SUBMITTED:
            return FinalOutput(piece.error.carries)
        if piece.error.kind == "syntax":
            raise SyntaxError(piece.error.message)
        raise CodeExecutionError(_told(piece))

    def __call__(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        return self.execute(code, variables)

    @_observed
    def invoke_tool(self, tool_name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls one of the tools."""
        tool = self.tools.get(tool_name)
        if tool is None:
            raise CodeInterpreterError(f"there is no tool {tool_name!r}")
        result = tool(*args, **kwargs)
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result

    def upload_to_volume(
        self, source: str | os.PathLike[str] | bytes, name: str | None = None
    ) -> str:
        """Puts a file, a directory or bytes into `/data`; returns the path there."""
        return _topology.upload(self.sandbox, source, name)

    @_observed
    def shutdown(self) -> None:
        """Ends the session; the volume stays."""
        self._end()

    def __enter__(self) -> FractalInterpreter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _end(self) -> None:
        self._ended = True
        python, self._python = self._python, None
        box, self._box = self._box, None
        try:
            if python is not None:
                python.close()
        finally:
            if box is not None and self._given is None:
                box.drop(force=True)

    def _run(self, code: str, names: dict[str, Any]) -> Piece:
        assert self._python is not None
        try:
            return self._python.run(code, names)
        except InterpreterDied as error:
            self._end()
            said = (error.stdout + error.stderr).rstrip("\n")
            told = f"{error}\nIt had printed:\n{said}" if said else str(error)
            raise CodeInterpreterError(told) from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise CodeInterpreterError(str(error)) from error

    def _tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return _as_json(self.invoke_tool(name, list(args), kwargs))

    def _names(self, variables: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(variables, dict):
            raise CodeInterpreterError("variables are a dict of names and their values")
        try:
            _check_names(variables, "a variable")
        except ValueError as error:
            raise CodeInterpreterError(str(error)) from None
        taken = sorted(variables.keys() & self.tools.keys())
        if taken:
            raise CodeInterpreterError(f"tools have these names: {taken}; use others")
        try:
            return {name: _as_json(value) for name, value in variables.items()}
        except (TypeError, ValueError) as error:
            raise CodeInterpreterError(f"a variable is given as JSON: {error}") from error

    def _define_submit(self) -> None:
        """Defines ``SUBMIT`` for the fields that are asked for now."""
        fields = ["output"] if not self.output_fields else [f["name"] for f in self.output_fields]
        if fields != self._submits:
            try:
                _check_names(dict.fromkeys(fields), "an output field", reserved=set())
            except ValueError as error:
                raise CodeInterpreterError(str(error)) from None
            self._run(_submit(fields), {})
            self._submits = fields


class Factory:
    """Makes interpreters, with what modules tell the model about them."""

    execution_instructions = INSTRUCTIONS

    def __init__(
        self, kind: type[FractalInterpreter], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        self._make = functools.partial(kind, *args, **keywords)
        self._make()  # what is wrong with the arguments is wrong now

    def __call__(self) -> FractalInterpreter:
        return self._make()

    def __deepcopy__(self, memo: object) -> Factory:
        # Modules are copied by optimizers; clients are not to be.
        return self


def _submit(fields: list[str]) -> str:
    values = ", ".join(f"{json.dumps(name)}: {name}" for name in fields)
    return (
        f"class {_SUBMITTED}(BaseException):\n"
        "    def __init__(self, fields):\n"
        "        self.__carries__ = fields\n"
        f"def SUBMIT({', '.join(fields)}):\n"
        '    "Ends the work with these outputs."\n'
        f"    raise {_SUBMITTED}({{{values}}})\n"
    )


def _check_names(names: Mapping[str, Any], what: str, reserved: set[str] = _RESERVED) -> None:
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"{name!r} is no name for {what}: use one that Python has")
        if name in reserved:
            raise ValueError(f"{name!r} is no name for {what}: the session has one of its own")


def _as_json(value: Any) -> Any:
    if isinstance(value, str):
        return value  # as it is, also where it is no text that UTF-8 has
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, RecursionError) as error:
        raise TypeError(f"JSON has no {type(value).__name__}: {error}") from None


async def _awaited(value: Any) -> Any:
    return await value


def _printed(piece: Piece) -> str:
    text = piece.stdout + piece.stderr
    if piece.left_out:
        text += f"\n… and {piece.left_out:,} characters more, for which there was no room"
    return text.rstrip("\n")


def _answer(piece: Piece) -> Any:
    """The value of the last expression, what was printed, or both as text."""
    printed = _printed(piece)
    value = piece.text if piece.value is None else piece.value
    if value is None or not printed:
        return printed or None if value is None else value
    return f"{printed}\n{value if isinstance(value, str) else piece.text}"


def _told(piece: Piece) -> str:
    """What a model needs to mend its code."""
    assert piece.error is not None
    said = piece.error.message if piece.error.kind == "timeout" else piece.error.traceback.rstrip()
    printed = _printed(piece)
    return f"{said}\nIt had printed:\n{printed}" if printed else said
