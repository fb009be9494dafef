"""The engine behind a server."""

from __future__ import annotations

import os
import queue
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from ._connection import Hears, Underway
from ._errors import of_engine
from ._http import Ends, Http

if TYPE_CHECKING:
    from .types import Data

INPUT_BYTES_MAX = 512 << 10
"""How much input is sent at once."""


class Remote:
    """A way to the engine of a server."""

    def __init__(self, http: Http, directory: str | os.PathLike[str] | None) -> None:
        self._http = http
        self.directory: str | None = None
        self._headers: dict[str, str] = {}
        if http.is_owner:
            self.directory = os.path.realpath("." if directory is None else directory)
            # As bytes that a header can have.
            self._headers["Fractal-Directory"] = os.fsencode(self.directory).decode("latin-1")
        elif directory is not None:
            raise ValueError(
                "who comes with a key works in the server's own directory: name no other"
            )

    def apply(self, action: str, **fields: Any) -> dict[str, Any]:
        return self._json("POST", "/v1/apply", {"action": action, **fields})

    def make(self, run: Mapping[str, Any]) -> dict[str, Any]:
        wanted = ("name", "template", "ask", "network", "ttl_ms", "base", "world")
        body = {name: run[name] for name in wanted if run.get(name) is not None}
        return self._json("POST", "/v1/sandboxes", body)

    def run(self, run: Mapping[str, Any], stdin: Data | None) -> dict[str, Any]:
        told = _text(stdin)
        if told is None:
            # Binary or long: then it is sent while the program reads it.
            return _collected(self, run, stdin)
        body = {**run, "stdin": told or None}
        return self._json("POST", "/v1/run?attended=true", _asked(body))

    def begin(self, run: Mapping[str, Any], stdout: Hears, stderr: Hears) -> Underway:
        events, ends = self._http.events(
            "/v1/run?attended=true&input=true", _asked(run), headers=self._headers
        )
        return _There(self, run, events, ends, stdout, stderr)

    def stop(self, sandbox: str) -> None:
        self._json("POST", f"{_path(sandbox)}/stop")

    def patch(self, sandbox: str, since: str | None, everything: bool) -> bytes:
        if everything:
            raise ValueError("a server makes patches of the project alone: use `changes`")
        query = "" if since is None else f"?since={urllib.parse.quote(since, safe='')}"
        return self._http.body("GET", f"{_path(sandbox)}/patch{query}", headers=self._headers)

    def open_file(self, sandbox: str, path: str) -> IO[bytes]:
        return self._http.open(_file(sandbox, path), headers=self._headers)

    def put_file(
        self, sandbox: str, path: str, data: bytes | IO[bytes], executable: bool
    ) -> None:
        where = _file(sandbox, path) + ("?executable=true" if executable else "")
        kind = "application/octet-stream"
        if not isinstance(data, bytes):
            data.seek(0)
        self._http.body("PUT", where, data, kind=kind, headers=self._headers)

    def delete_file(self, sandbox: str, path: str, recursive: bool) -> None:
        query = "?recursive=true" if recursive else ""
        self._json("DELETE", _file(sandbox, path) + query)

    def list_files(self, sandbox: str, path: str, after: str | None) -> dict[str, Any]:
        asked = {"path": path, "limit": "1000", **({"after": after} if after else {})}
        return self._json("GET", f"{_path(sandbox)}/files?{urllib.parse.urlencode(asked)}")

    def give(self, to: str, data: bytes, *, ends: bool) -> None:
        """Gives a run that goes on something to read."""
        where = f"/v1/input/{to}" + ("?end=true" if ends else "")
        kind = "application/octet-stream"
        self._http.body("POST", where, data, kind=kind, headers=self._headers)

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        reply = self._http.json(method, path, body, headers=self._headers)
        assert isinstance(reply, dict)
        return reply


class _There:
    """A run of a server, told by events to a thread here."""

    def __init__(
        self,
        remote: Remote,
        run: Mapping[str, Any],
        events: Iterator[tuple[str, Any]],
        ends: Ends,
        stdout: Hears,
        stderr: Hears,
    ) -> None:
        self._remote = remote
        self._sandbox = run.get("sandbox")
        self._ends = ends
        self._hears = {"stdout": stdout, "stderr": stderr}
        self._input: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._input_id: str | None = None
        self._is_open = True
        self._was_killed = False
        self._reply: dict[str, Any] | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, args=(events,), daemon=True)
        self._thread.start()

    def _follow(self, events: Iterator[tuple[str, Any]]) -> None:
        try:
            for name, told in events:
                if name in self._hears:
                    self._hears[name](told["text"].encode())
                elif name == "input":
                    self._input.put(told["input"])
                elif name == "result":
                    self._reply = told
                elif name == "error":
                    self._error = of_engine(told["error"])
        except Exception as error:
            self._error = ConnectionError(f"the server broke off: {error}")
        finally:
            self._input.put(None)
        if self._reply is None and self._error is None:
            self._error = ConnectionError("the server broke off before the run was over")

    def _where(self) -> str:
        """Where its input goes: the server says so when it has begun."""
        if self._input_id is None:
            self._input_id = self._input.get()
        if self._input_id is None:
            self._input.put(None)
            raise BrokenPipeError("nobody reads it")
        return self._input_id

    def write(self, data: bytes) -> None:
        if not self._is_open:
            raise BrokenPipeError("its input was closed")
        where = self._where()
        for at in range(0, len(data), INPUT_BYTES_MAX):
            self._give(where, data[at : at + INPUT_BYTES_MAX], ends=False)

    def close_stdin(self) -> None:
        if self._is_open:
            self._is_open = False
            try:
                self._give(self._where(), b"", ends=True)
            except BrokenPipeError:
                pass  # it is over

    def _give(self, where: str, data: bytes, *, ends: bool) -> None:
        try:
            self._remote.give(where, data, ends=ends)
        except FileNotFoundError:
            raise BrokenPipeError("nobody reads it") from None

    def kill(self) -> None:
        self._was_killed = True
        self._ends()

    def wait(self, seconds: float | None = None) -> dict[str, Any] | None:
        self._thread.join(seconds)
        if self._thread.is_alive():
            return None
        if self._reply is None and self._was_killed:
            # Who hangs up hears no reply.
            return _killed(str(self._sandbox))
        if self._error is not None:
            raise self._error
        assert self._reply is not None
        return self._reply


def _killed(sandbox: str) -> dict[str, Any]:
    return {
        "sandbox": sandbox,
        "exit": 137,
        "outcome": "signalled",
        "stdout": "",
        "stderr": "",
        "truncated": False,
        "usage": {},
        "isolation": {"tier": "unknown"},
        "changes": [],
    }


def _collected(remote: Remote, run: Mapping[str, Any], stdin: Data | None) -> dict[str, Any]:
    """A run that is given bytes and waited for."""
    from ._commands import KEPT_BYTES_MAX

    heard = (bytearray(), bytearray())
    underway = remote.begin(run, heard[0].extend, heard[1].extend)
    try:
        underway.write(stdin.encode() if isinstance(stdin, str) else bytes(stdin or b""))
        underway.close_stdin()
    except BrokenPipeError:
        pass  # it did not want all of it
    reply = underway.wait()
    assert reply is not None
    for name, output in zip(("stdout", "stderr"), heard, strict=True):
        reply[name] = bytes(output[:KEPT_BYTES_MAX]).decode(errors="replace")
        reply["truncated"] |= len(output) > KEPT_BYTES_MAX
    return reply


def _text(stdin: Data | None) -> str | None:
    """Input that fits into the request."""
    if stdin is None:
        return ""
    data = stdin.encode() if isinstance(stdin, str) else bytes(stdin)
    if len(data) > INPUT_BYTES_MAX:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _asked(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if value is not None}


def _path(sandbox: str) -> str:
    return f"/v1/sandboxes/{urllib.parse.quote(sandbox, safe='')}"


def _file(sandbox: str, path: str) -> str:
    whole = urllib.parse.quote(os.fsencode(path), safe="/")
    return f"{_path(sandbox)}/files/{whole}"
