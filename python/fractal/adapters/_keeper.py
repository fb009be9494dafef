"""One run that carries out many commands, so that what they leave running stays.

A command of a sandbox is a run of its own, and all its processes end with it.
Frameworks that know containers expect that a server, or a terminal multiplexer,
goes on for the next command. Here a small program in the sandbox is the one run:
it is told commands and tells what they write, as lines of JSON. It needs the
sandbox's ``python3``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import aio
from .._commands import KEPT_BYTES_MAX
from ..sandbox import RunResult

__all__ = ["Done", "Keeper", "Lost"]

Tells = Callable[[bytes, str], Awaitable[None] | None]
"""Is given a piece of output, and ``stdout`` or ``stderr``."""

START_SECONDS_MAX = 60.0
LINE_LETTERS_MAX = 4 << 20
"""What is told at once is shorter."""

END_SECONDS_MAX = 10.0
"""How long a command that is killed may take to be gone."""

# A command is over with its first process; what others write later to its
# outputs is nobody's. Each is a group of its own, to be killed as a whole.
_PROGRAM = r"""
import base64, json, os, signal, subprocess, sys, threading

lock, running = threading.Lock(), {}

def tell(**what):
    with lock:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

def listen(number, name, pipe):
    while True:
        piece = os.read(pipe.fileno(), 49152)
        if not piece:
            return
        tell(id=number, stream=name, data=base64.b64encode(piece).decode())

def carry_out(number, argv, cwd, env):
    try:
        made = subprocess.Popen(
            argv, cwd=cwd, env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
    except OSError as error:
        text = "%s: %s\n" % (argv[0], error.strerror)
        tell(id=number, stream="stderr", data=base64.b64encode(text.encode()).decode())
        tell(id=number, exit=127 if isinstance(error, FileNotFoundError) else 126)
        return
    running[number] = made
    pipes = (("stdout", made.stdout), ("stderr", made.stderr))
    heard = [threading.Thread(target=listen, args=(number, *pipe), daemon=True) for pipe in pipes]
    for thread in heard:
        thread.start()
    status = made.wait()
    for thread in heard:
        thread.join(0.3)
    running.pop(number, None)
    tell(id=number, exit=status if status >= 0 else 128 - status)

def kill(number):
    made = running.get(number)
    if made is not None:
        try:
            os.killpg(made.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

tell(ready=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "kill" in asked:
        kill(asked["kill"])
    else:
        threading.Thread(target=carry_out, kwargs=asked, daemon=True).start()
"""


class Lost(RuntimeError):
    """The run that kept the commands is over."""


@dataclass
class Done:
    """What a command left behind."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    is_truncated: bool = False


@dataclass
class _Asked:
    """A command that goes on."""

    tell: Tells | None
    outputs: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )
    is_truncated: bool = False
    exit_code: asyncio.Future[int] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def hear(self, stream: str, piece: bytes) -> None:
        kept = self.outputs[stream]
        room = KEPT_BYTES_MAX - len(kept)
        kept += piece[:room]
        self.is_truncated |= len(piece) > room
        if self.tell is not None:
            answer = self.tell(piece, stream)
            if inspect.isawaitable(answer):
                await answer

    def done(self) -> Done:
        out, err = (bytes(self.outputs[name]) for name in ("stdout", "stderr"))
        return Done(out, err, self.exit_code.result(), self.is_truncated)


class Keeper:
    """Commands of one sandbox that share their processes. It begins with the
    first command, and again with the next one after it was lost."""

    def __init__(self, box: aio.Sandbox, **how: Any) -> None:
        """``how`` is for the run: the keywords of :meth:`fractal.Sandbox.run`."""
        self._box = box
        self._how = how
        self._starting = asyncio.Lock()
        self._run: aio.Command | None = None
        self._ready = asyncio.Event()
        self._over: asyncio.Task[None] | None = None
        self._asked: dict[int, _Asked] = {}
        self._count = 0
        self._line = ""
        self._refused: Exception | None = None

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        tell: Tells | None = None,
    ) -> Done:
        """Carries a command out; raises ``TimeoutError`` at its limit, when it
        and its group are ended, as they are when the task is cancelled."""
        command = await self._begun()
        self._count += 1
        number, asked = self._count, _Asked(tell)
        self._asked[number] = asked
        words = {"number": number, "argv": list(argv), "cwd": cwd, "env": dict(env or {})}
        try:
            await self._say(command, words)
            await asyncio.wait_for(asyncio.shield(asked.exit_code), timeout)
            return asked.done()
        except (TimeoutError, asyncio.TimeoutError, asyncio.CancelledError):
            await self._end(command, number, asked)
            raise
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        """Ends all that was left running."""
        run, self._run = self._run, None
        if run is not None:
            await run.kill()
        if self._over is not None:
            await self._over

    async def _begun(self) -> aio.Command:
        async with self._starting:
            if self._run is None:
                self._ready = asyncio.Event()
                self._line = ""
                self._refused = None
                self._run = await self._box.commands.run(
                    ["python3", "-u", "-c", _PROGRAM],
                    background=True,
                    on_stdout=self._hear,
                    **self._how,
                )
                self._over = asyncio.create_task(self._follow(self._run))
            run = self._run
            await self._wait_ready()
        if self._ready.is_set():
            return run
        self._run = None
        await run.kill()
        if self._refused is not None:
            raise self._refused
        raise Lost(f"the sandbox's python3 does not begin: {run.stderr.strip() or 'no answer'}")

    async def _wait_ready(self) -> None:
        """Until it takes commands, or is over, or has taken too long."""
        assert self._over is not None
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait(
                {ready, self._over},
                timeout=START_SECONDS_MAX,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            ready.cancel()

    async def _follow(self, run: aio.Command) -> None:
        try:
            why = _why(await run.wait())
        except Exception as error:
            self._refused, why = error, str(error)
        if self._run is run:
            self._run = None
        for asked in self._asked.values():
            if not asked.exit_code.done():
                asked.outputs["stderr"] += f"[all commands were ended: {why}]\n".encode()
                asked.exit_code.set_result(137)

    async def _say(self, command: aio.Command, words: Mapping[str, Any]) -> None:
        saying = asyncio.ensure_future(command.send_stdin(json.dumps(words) + "\n"))
        done, _ = await asyncio.wait({saying}, timeout=START_SECONDS_MAX)
        if not done:
            # It ends with the run.
            await command.kill()
        error = saying.exception() if done else TimeoutError("nobody reads them")
        if error is not None:
            raise Lost(f"the sandbox takes no commands: {error}") from error

    async def _end(self, command: aio.Command, number: int, asked: _Asked) -> None:
        # It may be that the command has not come to be yet.
        for _ in range(int(END_SECONDS_MAX / 0.1)):
            try:
                await self._say(command, {"kill": number})
            except Lost:
                return
            done, _ = await asyncio.wait({asked.exit_code}, timeout=0.1)
            if done:
                return

    async def _hear(self, text: str) -> None:
        *lines, self._line = (self._line + text)[-LINE_LETTERS_MAX:].split("\n")
        for line in lines:
            # Programs of root inside can write here, too: what makes no sense
            # is passed over.
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                await self._take(json.loads(line))

    async def _take(self, told: dict[str, Any]) -> None:
        if "ready" in told:
            self._ready.set()
            return
        asked = self._asked.get(told["id"])
        if asked is None:
            return
        if "exit" not in told:
            await asked.hear(told["stream"], base64.b64decode(told["data"]))
        elif not asked.exit_code.done():
            asked.exit_code.set_result(int(told["exit"]))


def _why(done: RunResult) -> str:
    return done.error or "their run was over"
