"""Programs and files of a sandbox, as on one machine.

A run of fractal ends with all its processes. Frameworks expect more: that a
server started by one command answers the next, that a job goes on in the
background, that commands can be given to another user. So one run goes on
inside, a small Python program (:mod:`fractal.adapters._insider`), and does
there what it is asked. It begins with the first request and again when it has
ended, and ends with its sandbox, with :meth:`Inside.close`, or with this process.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import pathlib
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .._commands import Command
from .._errors import code_of
from ..sandbox import Sandbox

__all__ = ["Call", "Done", "Entry", "Gone", "Inside", "NoSuchUser", "OneUserOnly", "TooMuch"]

PIECE_BYTES = 192 << 10
LINE_BYTES_MAX = 4 << 20
START_S_MAX = 60.0
SILENCE_S = 15.0
"""After how long without a word it is asked whether it is still there."""
SILENCE_S_MAX = 90.0
END_S_MAX = 10.0
LOSS_S_MAX = 3.0
SOURCE = pathlib.Path(__file__).with_name("_insider.py")
BOOT = (
    "import sys, base64; SOURCE = base64.b64decode(sys.stdin.buffer.readline()).decode(); "
    "exec(SOURCE)"
)
SCRIPT = (
    'for python in "$1" python3 /usr/bin/python3; do command -v "$python" >/dev/null 2>&1 && '
    'exec "$python" -I -S -X utf8 -c "$2"; done; '
    "echo 'there is no python3 in the sandbox' >&2; exit 127"
)


class Gone(ConnectionError):
    """What works inside the sandbox, or the sandbox itself, is no more."""


class NoSuchUser(Exception):
    """The sandbox has no user of that name."""


class OneUserOnly(Exception):
    """Who runs the sandbox is not root: nobody else can be worked as."""


class TooMuch(Exception):
    """A file is larger than it may be."""


@dataclass(frozen=True)
class Done:
    """What a program left behind."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    overflowed: bool = False
    """Whether it was ended because it wrote more than was allowed."""


@dataclass(frozen=True)
class Entry:
    """What stands at a path, where links lead."""

    name: str
    path: str
    mode: int
    size: int
    modified: float

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


class Call:
    """One request that goes on. Who waits in another thread can be told to stop."""

    def __init__(
        self, limit: int | None = None, *, keeps: Literal["beginning", "end"] = "beginning"
    ) -> None:
        """Of each output so many bytes are kept. With the beginning, a program
        that writes more is ended; with the end, it goes on."""
        self.out = bytearray()
        self.err = bytearray()
        self.some: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None
        self.overflowed = False
        self.is_cancelled = False
        self.over = threading.Event()
        self.number = 0
        self._limit = limit
        self._keeps_end = keeps == "end"
        self._kill: Callable[[], None] | None = None

    def hear(self, told: Mapping[str, Any]) -> None:
        """One line about it; the last one says how it ended."""
        for name, kept in (("out", self.out), ("err", self.err)):
            if name in told:
                self._keep(kept, base64.b64decode(told[name]))
        self.some += told.get("some", ())
        if told.keys() & {"exit", "done", "error", "gone"}:
            self.finish(told)

    def finish(self, told: Mapping[str, Any]) -> None:
        if self.end is None:
            self._cut(self.out)
            self._cut(self.err)
            self.end = dict(told)
        self.over.set()

    def _keep(self, kept: bytearray, data: bytes) -> None:
        if self._limit is None:
            kept += data
        elif self._keeps_end:
            kept += data
            # Moved once in a while, since each time moves all of it.
            if len(kept) > 2 * self._limit:
                self._cut(kept)
        else:
            room = self._limit - len(kept)
            kept += data[:room]
            if len(data) > room and not self.overflowed:
                self.overflowed = True
                self.cancel()

    def _cut(self, kept: bytearray) -> None:
        if self._limit is not None and len(kept) > self._limit:
            self.overflowed = True
            del kept[: len(kept) - self._limit]

    def begun(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        if self.is_cancelled:
            kill()

    def cancel(self) -> None:
        """Has it end soon; whoever waits is told how it ended."""
        self.is_cancelled = True
        if self._kill is not None:
            # Its answer comes by the thread that may be here.
            threading.Thread(target=self._kill, daemon=True).start()


class Inside:
    """What can be done in a sandbox, by whichever thread asks."""

    def __init__(self, box: Sandbox, *, user: str | None = None) -> None:
        self.box = box
        self.user = user
        self._line: _Line | None = None
        self._starting = threading.Lock()
        self._is_closed = False

    @property
    def cwd(self) -> str:
        """Where programs start, without links in it."""
        return str(self._reach().hello["cwd"])

    @property
    def is_root(self) -> bool:
        """Whether other users can be worked as."""
        return bool(self._reach().hello["uid"] == 0)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        call: Call | None = None,
    ) -> Done:
        """Runs a program, with nothing to read unless ``stdin`` is given.

        It returns when the program has ended, even if others that it started
        go on. ``limit`` is for each output; who writes more is ended. What
        cannot be started raises Python's own error for it.
        """
        call = call or Call(limit)
        asked: dict[str, Any] = {"do": "run", "argv": list(argv), "cwd": cwd}
        asked |= {"env": dict(env or {}), "user": user or self.user}
        asked |= {"timeout": timeout, "reads": stdin is not None}
        end = self._ask(call, asked, stdin, timeout)
        return Done(
            end["exit"], bytes(call.out), bytes(call.err), end["timed_out"], call.overflowed
        )

    def read(self, path: str, *, limit: int | None = None, call: Call | None = None) -> bytes:
        """The content of a file; raises :class:`TooMuch` if it is larger."""
        call = call or Call()
        self._ask(call, {"do": "read", "path": path, "limit": limit, "user": self.user})
        return bytes(call.out)

    def write(self, path: str, data: bytes, *, call: Call | None = None) -> None:
        """Makes a file or replaces what it holds; directories that are missing are made."""
        asked = {"do": "write", "path": path, "user": self.user, "reads": True}
        self._ask(call or Call(), asked, data)

    def info(self, path: str) -> Entry:
        return Entry(**self._files("info", path)["done"])

    def list(self, path: str) -> list[Entry]:
        """What a directory holds, by name."""
        call = Call()
        self._ask(call, {"do": "list", "path": path, "user": self.user})
        return [Entry(**told) for told in call.some]

    def exists(self, path: str) -> bool:
        return bool(self._files("exists", path)["done"]["exists"])

    def make_dir(self, path: str) -> None:
        """Makes a directory and those above it."""
        self._files("make", path)

    def remove(self, path: str) -> None:
        """Removes a file, a link, or a directory with all that is in it."""
        self._files("remove", path)

    def resolve(self, path: str) -> str:
        """The path without links in it; what is missing stays as it is."""
        return str(self._files("resolve", path)["done"]["path"])

    def rest(self) -> None:
        """Ends all that runs inside; the next request begins again."""
        with self._starting:
            line, self._line = self._line, None
        if line is not None and line.pid == os.getpid():
            line.close()

    def close(self) -> None:
        """Ends all that runs inside, for good; the sandbox stays."""
        self._is_closed = True
        self.rest()

    def is_lost(self) -> bool:
        """Whether it is of no more use, once something was :class:`Gone`. Who
        drops a sandbox ends what runs in it first, so that takes a moment."""
        until = time.monotonic() + LOSS_S_MAX
        while not self._is_closed and self._is_listed():
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def _is_listed(self) -> bool:
        # One that is being dropped cannot always be shown, but is in the list.
        listed = self.box._connection.apply("list")["sandboxes"]
        return any(info["name"] == self.box.name for info in listed)

    def _files(self, verb: str, path: str) -> dict[str, Any]:
        return self._ask(Call(), {"do": verb, "path": path, "user": self.user})

    def _reach(self) -> _Line:
        """The program inside, begun again if it has ended."""
        with self._starting:
            if self._is_closed:
                raise Gone(f"sandbox {self.box.name!r} was closed here: open it again")
            # One of the process that this one was forked from is not ours.
            if self._line is None or not self._line.is_up or self._line.pid != os.getpid():
                self._line = _Line(self.box)
            return self._line

    def _ask(
        self,
        call: Call,
        asked: Mapping[str, Any],
        data: bytes | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        end = self._reach().ask(call, asked, data, timeout)
        if "gone" in end:
            raise Gone(end["gone"])
        if "error" in end:
            raise _error(end["error"])
        return end


def _error(told: Mapping[str, Any]) -> Exception:
    message = str(told.get("message"))
    if told.get("user") == "unknown":
        return NoSuchUser(message)
    if told.get("user") == "one":
        return OneUserOnly(message)
    path = told.get("path")
    if told["errno"] == 27:
        return TooMuch(message)
    return OSError(told["errno"], message, *([path] if path is not None else []))


@dataclass
class _Line:
    """The way to one program inside, from its start to its end."""

    box: Sandbox
    hello: dict[str, Any] = field(default_factory=dict)
    is_up: bool = True
    pid: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count(1)
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self._rest = ""
        self._heard_at = time.monotonic()
        self._greeted = threading.Event()
        words = ["sh", "-c", SCRIPT, "sh", sys.executable, BOOT]
        try:
            self._command: Command = self.box.commands.run(
                words, background=True, on_stdout=self._hear
            )
        except OSError as error:
            raise _why_not(self.box, error) from error
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        self._write(base64.b64encode(SOURCE.read_bytes()).decode())
        if not self._greeted.wait(START_S_MAX):
            self._break(f"nothing answered inside it within {START_S_MAX:.0f} seconds")
        if not self.hello:
            raise Gone(self._ended or "the program inside did not start")

    _ended: str | None = None

    def ask(
        self, call: Call, asked: Mapping[str, Any], data: bytes | None, timeout: float | None
    ) -> dict[str, Any]:
        call.number = next(self._numbers)
        with self._state:
            self._calls[call.number] = call
            if not self.is_up:
                call.finish({"gone": self._ended})
        try:
            for at in range(0, len(data or b""), PIECE_BYTES):
                if call.is_cancelled or call.over.is_set():
                    break
                piece = base64.b64encode((data or b"")[at : at + PIECE_BYTES]).decode()
                self._send({"id": call.number, "do": "input", "data": piece})
            self._send({"id": call.number, **asked})
            call.begun(lambda: self._send({"id": call.number, "do": "kill"}))
            self._attend(call)
        finally:
            with self._state:
                self._calls.pop(call.number, None)
        assert call.end is not None
        return call.end

    def _attend(self, call: Call) -> None:
        """Waits for the end; what does not answer any more is ended itself."""
        while not call.over.wait(SILENCE_S):
            silent = time.monotonic() - self._heard_at
            if silent > SILENCE_S_MAX:
                self._break(f"the program inside did not answer for {silent:.0f} seconds")
            elif silent > SILENCE_S:
                ping = {"id": call.number, "do": "ping"}
                threading.Thread(target=self._send, args=(ping,), daemon=True).start()

    def _send(self, request: Mapping[str, Any]) -> None:
        self._write(json.dumps(request))

    def _write(self, line: str) -> None:
        # A pipe that was closed is told by the end of the program.
        with self._sending, contextlib.suppress(OSError, ValueError):
            self._command.send_stdin(line + "\n")

    def _hear(self, text: str) -> None:
        self._heard_at = time.monotonic()
        *lines, rest = text.split("\n")
        if not lines:
            self._rest += rest
        else:
            lines[0] = self._rest + lines[0]
            self._rest = rest
        if len(self._rest) > LINE_BYTES_MAX:
            self._break("the program inside does not speak as it should")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            told = json.loads(line)
            number = told["id"]
            if number == 0:
                self.hello = dict(told["hello"])
                self._greeted.set()
                return
            with self._state:
                call = self._calls.get(number)
            if call is not None:
                call.hear(told)
        except (ValueError, KeyError, TypeError, AttributeError):
            self._break("the program inside does not speak as it should")

    def _wait_for_end(self) -> None:
        try:
            done = self._command.wait()
            why = f"what ran inside it {done.error or 'ended'}"
            last = done.stderr.strip().splitlines()[-1:]
            why += f" ({last[0][:300]})" if last else ""
        except Exception as error:
            why = f"what ran inside it ended: {error}"
        self._is_over(f"sandbox {self.box.name!r}: {why}")

    def _is_over(self, why: str) -> None:
        with self._state:
            self.is_up = False
            self._ended = self._ended or why
            calls = list(self._calls.values())
        for call in calls:
            call.finish({"gone": self._ended})
        self._greeted.set()

    def _break(self, why: str) -> None:
        self._is_over(f"sandbox {self.box.name!r}: {why}")
        threading.Thread(target=self._command.kill, daemon=True).start()

    def close(self) -> None:
        """Has it end and waits for it. Without input it ends of itself, so that
        a server can tell when it has."""
        try:
            with self._sending, contextlib.suppress(OSError):
                self._command.close_stdin()
            self._command.wait(END_S_MAX)
        except TimeoutError:
            self._command.kill()
            with contextlib.suppress(Exception):
                self._command.wait(END_S_MAX)
        except Exception:
            pass  # it has ended; whoever waits for it is told why


def _why_not(box: Sandbox, error: OSError) -> OSError:
    if code_of(error) == "not_found":
        return Gone(f"sandbox {box.name!r} is not there any more: {error}")
    return error
