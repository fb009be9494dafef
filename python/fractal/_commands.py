"""Programs in a sandbox: waited for, or left to themselves and looked after."""

from __future__ import annotations

import builtins
import codecs
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from ._connection import Underway
    from .sandbox import RunResult, Sandbox
    from .types import Data

    Words = str | Sequence[str]

__all__ = ["Command", "Commands"]

KEPT_BYTES_MAX = 4 << 20
"""How much of an output is kept, as the engine keeps it."""


class Command:
    """A program that was left to itself.

    It ends with its sandbox, with this process, when nobody holds it any more,
    or when it is told to; so do all processes that it has started.
    """

    def __init__(self, command: Words, on_stdout: Tells | None, on_stderr: Tells | None) -> None:
        self.command = command
        self._out = _Heard(on_stdout)
        self._err = _Heard(on_stderr)
        self._underway: Underway
        self._finish: Callable[[Command, dict[str, Any]], RunResult]

    @property
    def stdout(self) -> str:
        """What it has written until now."""
        return self._out.text()

    @property
    def stderr(self) -> str:
        """What it has complained about until now."""
        return self._err.text()

    @property
    def stdout_bytes(self) -> bytes:
        """The same before it became text, as far as it is kept. A server tells
        text alone."""
        return self._out.data()

    @property
    def stderr_bytes(self) -> bytes:
        """As :attr:`stdout_bytes`."""
        return self._err.data()

    @property
    def truncated(self) -> bool:
        """Whether it has written more than is kept."""
        return self._out.truncated or self._err.truncated

    @property
    def is_running(self) -> bool:
        try:
            return self._underway.wait(0) is None
        except Exception:
            # It was refused; `wait` says why.
            return False

    def send_stdin(self, data: Data) -> None:
        """Gives it more to read; waits while it does not read."""
        self._underway.write(data.encode() if isinstance(data, str) else bytes(data))

    def close_stdin(self) -> None:
        """Tells it that there is no more to read."""
        self._underway.close_stdin()

    def kill(self) -> bool:
        """Ends it and all that it has started; whether it was running."""
        was_running = self.is_running
        self._underway.kill()
        return was_running

    def wait(self, timeout: float | None = None) -> RunResult:
        """What it left behind when it was over; raises ``TimeoutError`` when
        it goes on for longer than that."""
        reply = self._underway.wait(timeout)
        if reply is None:
            raise TimeoutError(f"{self.command!r} still runs after {timeout} seconds")
        for heard in (self._out, self._err):
            heard.end()
        return self._finish(self, reply)

    def __repr__(self) -> str:
        return f"<fractal.Command {self.command!r}>"


Tells = Callable[[str], object]
"""Is given a piece of output as text."""


class _Heard:
    """What was written to one output: the first of it kept, all of it told."""

    def __init__(self, tell: Tells | None) -> None:
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._raised: Exception | None = None
        self.truncated = False

    def hear(self, piece: bytes) -> None:
        with self._lock:
            room = KEPT_BYTES_MAX - len(self._kept)
            self._kept += piece[:room]
            self.truncated |= len(piece) > room
        self._say(self._decoder.decode(piece))

    def end(self) -> None:
        self._say(self._decoder.decode(b"", True))
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _say(self, text: str) -> None:
        # One that raised is told no more; the program does not wait for it.
        if text and self._tell is not None:
            try:
                self._tell(text)
            except Exception as error:
                self._tell, self._raised = None, error

    def text(self) -> str:
        return self.data().decode(errors="replace")

    def data(self) -> bytes:
        with self._lock:
            return bytes(self._kept)


class Commands:
    """The programs of a sandbox."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._begun: builtins.list[Command] = []

    @overload
    def run(
        self,
        cmd: Words,
        background: Literal[False] = False,
        envs: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stdout: Tells | None = None,
        on_stderr: Tells | None = None,
        timeout: float | None = None,
        *,
        stdin: Data | None = None,
        **bounds: Any,
    ) -> RunResult: ...
    @overload
    def run(
        self,
        cmd: Words,
        background: Literal[True],
        envs: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stdout: Tells | None = None,
        on_stderr: Tells | None = None,
        timeout: float | None = None,
        *,
        stdin: Data | None = None,
        **bounds: Any,
    ) -> Command: ...
    def run(
        self,
        cmd: Words,
        background: bool = False,
        envs: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stdout: Tells | None = None,
        on_stderr: Tells | None = None,
        timeout: float | None = None,
        *,
        stdin: Data | None = None,
        **bounds: Any,
    ) -> RunResult | Command:
        """Runs a program, or a script given as one string.

        With ``background`` it is left to itself: read on in :class:`Command`.
        Its input stays open then until :meth:`Command.close_stdin`, unless
        ``stdin`` is all of it. ``on_stdout`` and ``on_stderr`` hear what is
        written while it is written. ``bounds`` are those of
        :meth:`fractal.Sandbox.run`.
        """
        box = self._box
        if not background and on_stdout is None and on_stderr is None:
            return box.run(cmd, stdin=stdin, env=envs, cwd=cwd, timeout=timeout, **bounds)
        tells = (on_stdout, on_stderr)
        asked = box._asked(cmd, env=envs, cwd=cwd, timeout=timeout, **bounds)
        command = self._begin(cmd, asked, tells, stdin if background else stdin or b"")
        if not background:
            try:
                return command.wait()
            except BaseException:
                command.kill()
                raise
        self._begun = [*self.list(), command]
        return command

    def _begin(
        self,
        cmd: Words,
        asked: Mapping[str, Any],
        tells: tuple[Tells | None, Tells | None],
        stdin: Data | None,
    ) -> Command:
        """Begins what was asked for; without ``stdin`` its input stays open."""
        command = Command(cmd, *tells)
        command._finish = self._box._finish
        hears = command._out.hear, command._err.hear
        command._underway = self._box._connection.begin(asked, *hears)
        if stdin:
            # In a thread, since it may read after it has written much.
            feeding = threading.Thread(target=_feed, args=(command, stdin), daemon=True)
            feeding.start()
        elif stdin is not None:
            command.close_stdin()
        return command

    def list(self) -> builtins.list[Command]:
        """Those left to themselves here that still run."""
        return [command for command in self._begun if command.is_running]


def _feed(command: Command, data: Data) -> None:
    try:
        command.send_stdin(data)
    except OSError:
        pass  # it did not want all of it
    finally:
        command.close_stdin()
