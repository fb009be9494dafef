"""How requests reach an engine: in this process, or through a server.

Both ways take the same actions and give the same replies, so that nothing
above this line knows which one it has. Where a request is refused, both raise
the same exceptions.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol

from ._fractal import Engine, Running

if TYPE_CHECKING:
    from .types import Data

Hears = Callable[[bytes], None]
"""Is given a piece of output."""


class Underway(Protocol):
    """A run that goes on."""

    def write(self, data: bytes) -> None:
        """Gives it more to read; waits while it does not."""

    def close_stdin(self) -> None:
        """Tells it that there is no more."""

    def kill(self) -> None:
        """Ends it, without waiting."""

    def wait(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Its reply, or none when it is not over after so many seconds. All
        output was heard by then."""


class Connection(Protocol):
    """A way to an engine, for work in one directory."""

    directory: str | None
    """Where it works; a server's own directory is not known here."""

    def apply(self, action: str, **fields: Any) -> dict[str, Any]: ...
    def make(self, run: Mapping[str, Any]) -> dict[str, Any]: ...
    def run(self, run: Mapping[str, Any], stdin: Data | None) -> dict[str, Any]: ...
    def begin(self, run: Mapping[str, Any], stdout: Hears, stderr: Hears) -> Underway: ...
    def stop(self, sandbox: str) -> None: ...
    def patch(self, sandbox: str, since: str | None, everything: bool) -> bytes: ...
    def open_file(self, sandbox: str, path: str) -> IO[bytes]: ...
    def put_file(
        self, sandbox: str, path: str, data: bytes | IO[bytes], executable: bool
    ) -> None: ...
    def delete_file(self, sandbox: str, path: str, recursive: bool) -> None: ...
    def list_files(self, sandbox: str, path: str, after: str | None) -> dict[str, Any]: ...


def home() -> str:
    """The state directory: ``FRACTAL_HOME``, or the user's own."""
    named = os.environ.get("FRACTAL_HOME")
    if named:
        return os.path.abspath(named)
    return os.path.join(user_directory("XDG_DATA_HOME", ".local/share"), "fractal")


def user_directory(variable: str, below_home: str) -> str:
    named = os.environ.get(variable, "")
    if os.path.isabs(named):
        return named
    return os.path.join(os.path.expanduser("~"), below_home)


def user_settings() -> str:
    """The user's own file of settings, whether it is there or not."""
    return os.path.join(user_directory("XDG_CONFIG_HOME", ".config"), "fractal/config.toml")


def environment() -> list[tuple[bytes, bytes]]:
    return list(os.environb.items())


# State directories that this process holds open, the latest last.
_open: dict[tuple[str, str, str], Engine] = {}
_OPEN_MAX = 16
# Those of the processes that this one was forked from. Theirs alone is the
# right to close them.
_inherited: list[dict[tuple[str, str, str], Engine]] = []


def _forget_parents() -> None:
    global _open
    _inherited.append(_open)
    _open = {}


os.register_at_fork(after_in_child=_forget_parents)


def engine(
    directory: str | os.PathLike[str], state: str | None = None, settings: str | None = None
) -> Engine:
    # The kernel's own name of it, as the command line has it.
    where = (state or home(), os.path.realpath(directory), settings or user_settings())
    found = _open.pop(where, None)
    if found is None:
        found = Engine(where[0], where[1], settings=where[2])
    _open[where] = found
    for oldest in list(_open)[:-_OPEN_MAX]:
        _open.pop(oldest, None)
    return found


class InProcess:
    """The engine in this process. Nothing has to run beside it."""

    def __init__(
        self,
        directory: str | os.PathLike[str] = ".",
        state: str | None = None,
        settings: str | None = None,
    ) -> None:
        self.directory: str | None = os.path.realpath(directory)
        self.state = state or home()
        self.settings = settings

    @property
    def engine(self) -> Engine:
        assert self.directory is not None
        return engine(self.directory, self.state, self.settings)

    def apply(self, action: str, **fields: Any) -> dict[str, Any]:
        asked = json.dumps({"action": action, **fields})
        return _object(self.engine.apply(asked, environment()))

    def make(self, run: Mapping[str, Any]) -> dict[str, Any]:
        return _object(self.engine.make(json.dumps(run), environment()))

    def run(self, run: Mapping[str, Any], stdin: Data | None) -> dict[str, Any]:
        return _object(self.engine.run(json.dumps(run), environment(), stdin))

    def begin(self, run: Mapping[str, Any], stdout: Hears, stderr: Hears) -> Underway:
        return _Here(self.engine.begin(json.dumps(run), environment()), stdout, stderr)

    def stop(self, sandbox: str) -> None:
        self.engine.stop(sandbox)

    def patch(self, sandbox: str, since: str | None, everything: bool) -> bytes:
        return self.engine.patch(sandbox, since, everything)

    def open_file(self, sandbox: str, path: str) -> IO[bytes]:
        return open(self.engine.open_file(sandbox, path), "rb")

    def put_file(
        self, sandbox: str, path: str, data: bytes | IO[bytes], executable: bool
    ) -> None:
        if not isinstance(data, bytes) and _has_descriptor(data):
            self._put(sandbox, path, data, executable)
            return
        with tempfile.TemporaryFile() as content:
            if isinstance(data, bytes):
                content.write(data)
            else:
                shutil.copyfileobj(data, content)
            content.flush()
            self._put(sandbox, path, content, executable)

    def _put(self, sandbox: str, path: str, content: IO[bytes], executable: bool) -> None:
        # A description of its own, so that nobody's place in the file moves.
        again = f"/proc/self/fd/{content.fileno()}"
        self.engine.put_file(sandbox, path, again, executable)

    def delete_file(self, sandbox: str, path: str, recursive: bool) -> None:
        self.engine.delete_file(sandbox, path, recursive)

    def list_files(self, sandbox: str, path: str, after: str | None) -> dict[str, Any]:
        return _object(self.engine.list_files(sandbox, path, after, 1000))


class _Here:
    """A run of the engine in this process, with a thread for each output."""

    def __init__(self, running: Running, stdout: Hears, stderr: Hears) -> None:
        self._running = running
        stdin, *outputs = running.take()
        self._stdin: IO[bytes] | None = open(stdin, "wb", buffering=0)
        self._threads = [
            threading.Thread(target=_listen, args=(output, hears), daemon=True)
            for output, hears in zip(outputs, (stdout, stderr), strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def write(self, data: bytes) -> None:
        if self._stdin is None:
            raise BrokenPipeError("its input was closed")
        left = memoryview(data)
        while left:
            left = left[self._stdin.write(left) :]

    def close_stdin(self) -> None:
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            stdin.close()

    def kill(self) -> None:
        self._running.kill()

    def wait(self, seconds: float | None = None) -> dict[str, Any] | None:
        told = self._running.wait(seconds)
        if told is None:
            return None
        for thread in self._threads:
            thread.join()
        self.close_stdin()
        return _object(told)


def _listen(end: int, hears: Hears) -> None:
    with open(end, "rb", buffering=0) as pipe:
        while piece := pipe.read(65536):
            hears(piece)


def _has_descriptor(file: IO[bytes]) -> bool:
    try:
        file.fileno()
    except (AttributeError, OSError):
        return False
    return True


def _object(text: str) -> dict[str, Any]:
    reply = json.loads(text)
    assert isinstance(reply, dict)
    return reply
