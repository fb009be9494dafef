"""Tools: named operations with an input schema, for whoever chooses among them.

A :class:`ToolRegistry` has the verbs of fractal, the programs that the project
describes in ``tools/NAME/tool.toml``, and functions of yours. All are called in
one way: the input is checked before anything happens, time and sizes are
bounded, one failure does not sink the others, and every call is on record.

>>> from fractal import ToolRegistry
>>> tools = ToolRegistry()
>>> @tools.register(read_only=True)
... def add(a: int, b: int = 1) -> int:
...     "Add two numbers."
...     return a + b
>>> tools["add"].input["required"]
['a']
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import io
import json
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from ._connection import InProcess, environment
from ._errors import of_engine
from ._fractal import Tools
from .sandbox import Sandbox, _client

if typing.TYPE_CHECKING:
    from .client import SandboxClient

__all__ = ["Tool", "ToolError", "ToolRegistry", "ToolResult", "schema_of"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Tool:
    """A tool as it is offered."""

    name: str
    description: str
    kind: str
    """``verb``, ``function``, ``program`` or ``mcp``."""
    input: Mapping[str, Any]
    """JSON Schema of what it is given."""
    output: Mapping[str, Any] | None
    """JSON Schema of what it answers."""
    idempotent: bool
    read_only: bool
    destructive: bool
    timeout: float
    """Seconds for one try."""


@dataclass(frozen=True)
class ToolError:
    """Why a call has no answer."""

    code: str
    message: str
    hint: str | None


@dataclass(frozen=True)
class ToolResult:
    """One of many calls."""

    tool: str
    output: Any
    """What the tool answered; ``None`` when it did not."""
    error: ToolError | None
    sandbox: str | None
    """The sandbox it worked in."""
    tries: int
    seconds: float


class ToolRegistry:
    """Tools of a directory, and functions of this program.

    Through a server the tools are those of the server; functions stay in the
    program that has them.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> None:
        self._connection = _client(client).connection(directory)
        self._tools = Tools()

    @overload
    def register(self, function: _F) -> _F: ...
    @overload
    def register(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        input: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        idempotent: bool = False,
        read_only: bool = False,
        destructive: bool = False,
        timeout: float = 60.0,
    ) -> Callable[[_F], _F]: ...
    def register(
        self,
        function: _F | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        input: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        idempotent: bool = False,
        read_only: bool = False,
        destructive: bool = False,
        timeout: float = 60.0,
    ) -> _F | Callable[[_F], _F]:
        """Adds a function, also as a decorator.

        Its name and docstring are the tool's; its arguments and their types
        make the schema of the input, unless ``input`` is one. It is called in
        a thread of its own (a coroutine function with a loop of its own), and
        what it returns must be JSON. Only what is ``idempotent`` is tried
        again.
        """
        if function is None:
            return lambda function: self._add(
                function, name, description, input, output,
                idempotent, read_only, destructive, timeout,
            )
        return self._add(
            function, name, description, input, output,
            idempotent, read_only, destructive, timeout,
        )

    def _add(
        self,
        function: _F,
        name: str | None,
        description: str | None,
        input: Mapping[str, Any] | None,
        output: Mapping[str, Any] | None,
        idempotent: bool,
        read_only: bool,
        destructive: bool,
        timeout: float,
    ) -> _F:
        if not isinstance(self._connection, InProcess):
            raise io.UnsupportedOperation(
                "functions are called in the program that has them, not through a server: "
                "register them in a `ToolRegistry` without one"
            )
        info = {
            "name": name or getattr(function, "__name__", ""),
            "description": description or inspect.getdoc(function) or "",
            "kind": "function",
            "input": schema_of(function) if input is None else input,
            "output": output,
            "idempotent": idempotent,
            "read_only": read_only,
            "destructive": destructive,
            "time_ms": _milliseconds(timeout),
        }
        self._tools.register(json.dumps(info), _by_json(function))
        return function

    def unregister(self, name: str) -> bool:
        """Takes a tool away; whether there was one."""
        return self._tools.unregister(name)

    def list(self, sandbox: str | Sandbox | None = None) -> builtins.list[Tool]:
        """What may be used in a sandbox, or in a new one, by name."""
        if isinstance(self._connection, InProcess):
            listed = json.loads(self._tools.list(self._connection.engine, _name(sandbox)))
        else:
            listed = self._connection.apply("tools", sandbox=_name(sandbox))
        return [_tool(info) for info in listed["tools"]]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.list())

    def __getitem__(self, name: str) -> Tool:
        for tool in self.list():
            if tool.name == name:
                return tool
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(tool.name == name for tool in self.list())

    def call(
        self,
        tool: str,
        input: Mapping[str, Any] | None = None,
        *,
        sandbox: str | Sandbox | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Uses a tool and returns its answer; raises what went wrong."""
        asked = _asked({"tool": tool, "input": input, "sandbox": sandbox, "timeout": timeout})
        if not isinstance(self._connection, InProcess):
            reply = self._connection.apply("tool", **asked)
            if reply.get("error"):
                raise of_engine(reply["error"])
            return reply.get("output")
        engine = self._connection.engine
        return json.loads(self._tools.call(engine, json.dumps(asked), environment()))

    def call_many(
        self,
        calls: Iterable[Mapping[str, Any]],
        *,
        jobs: int | None = None,
        tries: int | None = None,
    ) -> builtins.list[ToolResult]:
        """Uses several tools at once, ``jobs`` of them side by side.

        Each call is ``{"tool": …, "input": {…}}``, with ``sandbox`` and
        ``timeout`` if need be. The results have the order of the calls, and a
        failure stands in its own.
        """
        asked = [_asked(call) for call in calls]
        if isinstance(self._connection, InProcess):
            engine = self._connection.engine
            told = self._tools.call_many(engine, json.dumps(asked), environment(), jobs, tries)
            said = json.loads(told)
        else:
            said = self._connection.apply("calls", calls=asked, jobs=jobs, tries=tries)["results"]
        return [_result(reply) for reply in said]


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON Schema of an object with a function's arguments as fields.

    Understands ``str``, ``int``, ``float``, ``bool``, ``None``, ``list``,
    ``dict`` and ``tuple`` of them, unions, ``Literal``, ``TypedDict``, and
    ``Annotated[T, "what it is"]`` for a description.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    required: list[str] = []
    others = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            others = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise TypeError(f"the argument {parameter.name!r} has no name to give it by")
        field = _schema(hints.get(parameter.name, Any), parameter.name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            field = {**field, "default": parameter.default}
        fields[parameter.name] = field
    schema: dict[str, Any] = {"type": "object", "properties": fields}
    if required:
        schema["required"] = required
    if not others:
        schema["additionalProperties"] = False
    return schema


_PLAIN: dict[Any, dict[str, Any]] = {
    Any: {},
    object: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
}


def _schema(hint: Any, where: str) -> dict[str, Any]:
    try:
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
    except TypeError:  # no key: it cannot be plain
        pass
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        schema = _schema(args[0], where)
        told = [note for note in args[1:] if isinstance(note, str)]
        return {**schema, "description": told[0]} if told else schema
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(arg, where) for arg in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return _tuple(args, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(args[1], where)}
    if isinstance(origin, type) and issubclass(origin, (Sequence, Iterable)):
        return {"type": "array", "items": _schema(args[0], where)}
    if typing.is_typeddict(hint):
        return _typed_dict(hint, where)
    raise TypeError(
        f"the argument {where!r} is a {hint!r}, which has no JSON Schema: "
        "use plain types, or give `input` a schema"
    )


def _tuple(args: tuple[Any, ...], where: str) -> dict[str, Any]:
    if len(args) == 2 and args[1] is Ellipsis:
        return {"type": "array", "items": _schema(args[0], where)}
    places = [_schema(arg, where) for arg in args]
    return {
        "type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places),
    }


def _typed_dict(hint: Any, where: str) -> dict[str, Any]:
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = {name: _schema(_bare(field), f"{where}.{name}") for name, field in hints.items()}
    return {
        "type": "object",
        "properties": fields,
        "required": sorted(hint.__required_keys__),
        "additionalProperties": False,
    }


def _bare(hint: Any) -> Any:
    """Without ``Required`` and ``NotRequired``, which the keys tell."""
    origin = typing.get_origin(hint)
    marks = [getattr(typing, name, None) for name in ("Required", "NotRequired", "ReadOnly")]
    return _bare(typing.get_args(hint)[0]) if origin is not None and origin in marks else hint


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _by_json(function: Callable[..., Any]) -> Callable[[str], str]:
    def call(text: str) -> str:
        answer = function(**json.loads(text))
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        return json.dumps(answer, allow_nan=False)

    return call


def _milliseconds(seconds: float) -> int:
    if not 0 < seconds < 1e9:
        raise ValueError(f"a time is above zero: it is {seconds}")
    return max(1, round(seconds * 1000))


def _name(sandbox: str | Sandbox | None) -> str | None:
    return sandbox.name if isinstance(sandbox, Sandbox) else sandbox


def _asked(call: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(call) - {"tool", "input", "sandbox", "timeout"}
    if unknown or not isinstance(call.get("tool"), str):
        raise ValueError(
            "a call has `tool` (a name), and if need be `input`, `sandbox`, `timeout`; "
            f"this one has {sorted(call)}"
        )
    timeout = call.get("timeout")
    asked = {
        "tool": call["tool"],
        "input": {} if call.get("input") is None else call["input"],
        "sandbox": _name(call.get("sandbox")),
        "time_ms": None if timeout is None else _milliseconds(timeout),
    }
    return {name: value for name, value in asked.items() if value is not None}


def _tool(info: Mapping[str, Any]) -> Tool:
    return Tool(
        name=info["name"],
        description=info["description"],
        kind=info["kind"],
        input=info["input"],
        output=info.get("output"),
        idempotent=info["idempotent"],
        read_only=info["read_only"],
        destructive=info["destructive"],
        timeout=info["time_ms"] / 1000,
    )


def _result(reply: Mapping[str, Any]) -> ToolResult:
    error = reply.get("error")
    return ToolResult(
        tool=reply["tool"],
        output=reply.get("output"),
        error=error and ToolError(error["code"], error["message"], error.get("hint")),
        sandbox=reply.get("sandbox"),
        tries=reply["tries"],
        seconds=reply["wall_ms"] / 1000,
    )
