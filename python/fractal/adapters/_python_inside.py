"""The half of :mod:`fractal.adapters._python` that runs in a sandbox.

It is sent there as text, so it imports nothing but what Python brings along. A
line of JSON comes in for each request and lines of JSON go out, on descriptors
of their own: 0, 1 and 2 belong to the code that is run here. All pieces of code
share the names of ``__main__``. Lines go out from one thread, since a signal may
interrupt any other in the middle of one.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import codecs
import inspect
import itertools
import json
import linecache
import os
import queue
import select
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import IO, Any

OWN_FILE = "<fractal>"
"""What this text is called in tracebacks, from which it is taken out."""

VALUE_BYTES_MAX = 16 << 20
PIECES_REMEMBERED = 1000
DRAIN_READS_MAX = 32


class Wire:
    """What goes to the host, line by line."""

    def __init__(self, writes: IO[bytes]) -> None:
        self._writes = writes
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._owner = os.getpid()
        threading.Thread(target=self._write, daemon=True).start()

    @property
    def is_ours(self) -> bool:
        """Not in a process that the code has forked."""
        return os.getpid() == self._owner

    def tell(self, kind: str, **fields: Any) -> None:
        if self.is_ours:
            self._lines.put(json.dumps({"is": kind, **fields}).encode() + b"\n")

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            self._writes.write(line)
            self._writes.flush()


class Heard:
    """Standard output or errors of the code and of all that it starts."""

    def __init__(self, wire: Wire, name: str, descriptor: int) -> None:
        self._wire, self._name, self._descriptor = wire, name, descriptor
        # The writing end stays open here, so that reading never ends.
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._reads, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.Lock()
        self._room = 0
        self.left_out = 0
        self._file = self._lead_here()
        threading.Thread(target=self._follow, daemon=True).start()

    def begin(self, room: int) -> IO[str]:
        """The file for a new piece of code, whatever the last one did to it."""
        with self._lock:
            self._room, self.left_out = room, 0
        if self._file.closed or not self._leads_here():
            self._file = self._lead_here()
        return self._file

    def drain(self) -> None:
        """Lets out what was written until now."""
        try:
            self._file.flush()
        except (OSError, ValueError):
            pass  # the code closed it
        if not self._wire.is_ours:
            return  # what was written is for the parent to read
        with self._lock:
            for _ in range(DRAIN_READS_MAX):
                if not self._take():
                    return

    def _lead_here(self) -> IO[str]:
        os.dup2(self._writes, self._descriptor)
        return open(
            self._descriptor,
            "w",
            buffering=1,
            encoding="utf-8",
            errors="backslashreplace",
            closefd=False,
        )

    def _leads_here(self) -> bool:
        try:
            return os.path.sameopenfile(self._descriptor, self._writes)
        except OSError:
            return False

    def _follow(self) -> None:
        while True:
            select.select([self._reads], [], [])
            with self._lock:
                self._take()

    def _take(self) -> bool:
        try:
            data = os.read(self._reads, 65536)
        except BlockingIOError:
            return False
        text = self._decoder.decode(data)
        told = text[: self._room]
        self._room -= len(told)
        self.left_out += len(text) - len(told)
        if told:
            self._wire.tell("output", stream=self._name, text=told)
        return True


class Host:
    """Functions of the host, which code here can call."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}

    def answer(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.get(message["call"])
        if waiting is not None:
            waiting.put(message)

    def function(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = "A function of the host. It takes and returns what JSON has."
        return call

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._wire.is_ours:
            raise RuntimeError(
                f"{name}() belongs to the process that forked this one: call it there"
            )
        try:
            json.dumps([args, kwargs])
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{name}() takes only what JSON has: {error}") from None
        number, answers = next(self._numbers), queue.SimpleQueue[dict[str, Any]]()
        self._waiting[number] = answers
        try:
            self._wire.tell("call", call=number, name=name, args=args, kwargs=kwargs)
            message = answers.get()
        finally:
            self._waiting.pop(number, None)
        if "error" in message:
            raise _raised(**message["error"])
        return message["value"]


def _raised(name: str, message: str) -> Exception:
    """An exception of the host's function, as near as one of Python's own is."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:
            pass  # it is made of more than a text
    return RuntimeError(f"{name}: {message}")


def _simple(value: Any) -> Any:
    """Something that JSON has in place of something that it has not."""
    for method in ("tolist", "item", "isoformat"):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return convert()
    if isinstance(value, (set, frozenset)):
        return list(value)
    return repr(value)


def _as_json(value: Any, simplify: bool = False) -> dict[str, Any]:
    """``{"value": …}`` if JSON has it, and nothing otherwise."""
    try:
        text = json.dumps(value, default=_simple if simplify else None)
    except Exception:
        return {}
    # Read again, so that nothing of the code is called later.
    return {"value": json.loads(text)} if len(text) <= VALUE_BYTES_MAX else {}


def _shown(value: Any, chars_max: int) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr() raises {type(error).__name__}>"
    return text if len(text) <= chars_max else text[:chars_max] + "…"


def _traceback(kind: str, error: BaseException) -> str:
    """The traceback without what is only here."""
    if kind == "syntax":
        return "".join(traceback.format_exception_only(type(error), error))
    told = traceback.TracebackException.from_exception(error)
    _purge(told, set())
    return "".join(told.format())


def _purge(told: traceback.TracebackException, seen: set[int]) -> None:
    if id(told) in seen:
        return
    seen.add(id(told))
    own = [frame for frame in told.stack if frame.filename != OWN_FILE]
    told.stack = traceback.StackSummary.from_list(own)
    others = (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ()))
    for other in others:
        if other is not None:
            _purge(other, seen)


class Pieces:
    """Runs pieces of code, one after the other."""

    def __init__(self, wire: Wire, host: Host) -> None:
        self._host = host
        self._tools: dict[str, Callable[..., Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names = main.__dict__
        self._names["__builtins__"] = builtins
        self._outputs = {
            name: Heard(wire, name, number) for number, name in ((1, "stdout"), (2, "stderr"))
        }
        self.running: int | None = None
        """The request whose code runs, and which may be interrupted."""

    def carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        room = request["output_max"]
        sys.stdout, sys.stderr = (heard.begin(room) for heard in self._outputs.values())
        sys.stdin = open(os.devnull)
        self._bind(request["tools"], request["names"])
        try:
            told = self._run(request, room)
        except KeyboardInterrupt as error:
            # It came when the code was just over.
            told = {"error": self._failed("error", error, room)}
        self.running = None
        for heard in self._outputs.values():
            heard.drain()
        told["left_out"] = sum(heard.left_out for heard in self._outputs.values())
        return told

    def _bind(self, tools: list[str], names: dict[str, Any]) -> None:
        for name, function in self._tools.items():
            if name not in tools and self._names.get(name) is function:
                del self._names[name]
        self._tools = {name: self._tools.get(name) or self._host.function(name) for name in tools}
        self._names.update(self._tools)
        self._names.update(names)

    def _run(self, request: dict[str, Any], room: int) -> dict[str, Any]:
        try:
            body, last = _compiled(request["code"], f"<piece {request['id']}>")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return {"error": self._failed("syntax", error, room)}
        try:
            self.running = request["id"]
            self._carry(body)
            value = None if last is None else self._carry(last)
            if value is not None:
                self._names["_"] = value  # as at Python's own prompt
            told = {} if value is None else {**_as_json(value), "text": _shown(value, room)}
            told["wanted"] = {
                name: {**_as_json(self._names[name]), "type": type(self._names[name]).__name__}
                for name in request["want"]
                if name in self._names
            }
            self.running = None
        except BaseException as error:
            self.running = None
            return {"error": self._failed("error", error, room)}
        return told

    def _carry(self, code: types.CodeType) -> Any:
        value = eval(code, self._names)
        if code.co_flags & inspect.CO_COROUTINE:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
            value = self._loop.run_until_complete(value)
        return value

    def _failed(self, kind: str, error: BaseException, room: int) -> dict[str, Any]:
        try:
            message = str(error)
        except Exception as other:
            message = f"<str() of it raises {type(other).__name__}>"
        if len(message) > VALUE_BYTES_MAX:
            message = message[:room] + "…"
        try:
            trace = _traceback(kind, error)
        except Exception:
            trace = f"{type(error).__name__}: {message}\n"
        if len(trace) > room:
            trace = trace[: room // 2] + "\n…\n" + trace[-room // 2 :]
        told = {"kind": kind, "name": type(error).__name__, "message": message, "trace": trace}
        if hasattr(error, "__carries__"):
            told.update(_as_json(error.__carries__, simplify=True))
        return told


def _compiled(code: str, file: str) -> tuple[types.CodeType, types.CodeType | None]:
    """The code without its last expression, and that expression."""
    pieces = [name for name in linecache.cache if name.startswith("<piece ")]
    for oldest in pieces[:-PIECES_REMEMBERED]:
        del linecache.cache[oldest]
    linecache.cache[file] = (len(code), None, f"{code}\n".splitlines(True), file)
    tree = ast.parse(code, file)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    body = compile(tree, file, "exec", flags=flags, dont_inherit=True)
    if last is None:
        return body, None
    return body, compile(last, file, "eval", flags=flags, dont_inherit=True)


def _follow(requests: IO[bytes], host: Host, pieces: Pieces, todo: Any) -> None:
    """Takes requests while code runs. When the host is gone, so is this."""
    for line in requests:
        message = json.loads(line)
        if message["do"] == "answer":
            host.answer(message)
        elif message["do"] == "interrupt":
            if pieces.running == message["id"]:
                # To the main thread itself, so that its system call ends, too.
                main = threading.main_thread().ident
                signal.pthread_kill(main or 0, signal.SIGINT)
        else:
            todo.put(message)
    os._exit(0)


def serve(requests: IO[bytes]) -> None:
    wire = Wire(os.fdopen(os.dup(1), "wb"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    host = Host(wire)
    pieces = Pieces(wire, host)

    def interrupt(_number: int, _frame: object) -> None:
        if pieces.running is not None:
            raise KeyboardInterrupt

    todo: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    following = threading.Thread(target=_follow, args=(requests, host, pieces, todo), daemon=True)
    following.start()
    sys.path.insert(0, "")
    version = ".".join(map(str, sys.version_info[:3]))
    wire.tell("ready", python=version, executable=sys.executable)
    while True:
        request = todo.get()
        # The last piece may have set a handler of its own.
        signal.signal(signal.SIGINT, interrupt)
        told = pieces.carry_out(request)
        if not wire.is_ours:
            os._exit(1 if "error" in told else 0)
        wire.tell("done", id=request["id"], **told)
