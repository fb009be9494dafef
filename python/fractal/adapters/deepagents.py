"""A back end for LangChain's deep agents: files and commands in a clone of this
machine.

``create_deep_agent(…, backend=FractalBackend("project"))`` has an agent work in
a sandbox, which is gone when the back end is closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
from types import TracebackType
from typing import Any

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from .. import Sandbox, SandboxClient
from ._awaited import Threads
from ._inside import Call, Done, Gone, Inside, NoSuchUser, OneUserOnly, TooMuch

__all__ = ["FractalBackend"]

NAMES = "deep-"
"""What the names of the sandboxes begin with."""
TIMEOUT_S = 30 * 60
OUTPUT_BYTES_MAX = 4 << 20
FILE_BYTES_MAX = 256 << 20
WORD_BYTES_MAX = 100_000
"""Linux takes no longer word than 128 KiB."""
TOGETHER = 'exec 2>&1; exec sh -c "$1"'
TOGETHER_FROM_FILE = 'exec 2>&1; rm -f -- "$1.once"; mv -- "$1" "$1.once"; exec sh "$1.once"'


class FractalBackend(BaseSandbox):
    """Files and commands of one sandbox."""

    def __init__(
        self,
        directory: str | os.PathLike[str] = ".",
        *,
        sandbox: Sandbox | None = None,
        user: str | None = None,
        env: dict[str, str] | None = None,
        timeout: int = TIMEOUT_S,
        client: SandboxClient | None = None,
        **bounds: Any,
    ) -> None:
        """A clone of the machine for work in a directory, or a ``sandbox`` that
        is there and stays; ``bounds`` are the keywords of
        :meth:`fractal.Sandbox.create`. ``timeout`` is for commands that name none."""
        if timeout < 0:
            raise ValueError(f"a timeout is above zero, or zero for none: it is {timeout}")
        if sandbox is not None and (bounds or client is not None):
            raise ValueError("a sandbox that is there has its own bounds: give a directory instead")
        self._is_ours = sandbox is None
        self.box = sandbox or _make(directory, client or SandboxClient(), bounds)
        """The sandbox itself: to fork it or see its changes. It is promoted when
        nothing runs in it, see :meth:`rest`."""
        self._inside = Inside(self.box, user=user)
        self._env = dict(env or {})
        self._timeout = timeout
        self._threads = Threads()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            # Deep agents put long output into files there, unless told otherwise.
            self.enable_capture_offload = self.execute("test -w /").exit_code == 0
            undo.pop_all()

    @property
    def id(self) -> str:
        return self.box.name

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a script for ``sh``: its output and errors together, as written.

        One that takes too long is ended with all that it started: exit code 124.
        Of too much output the end is kept.
        """
        return self._execute(command, timeout, _call())

    async def aexecute(
        self,
        command: str,
        *,
        timeout: int | None = None,  # noqa: ASYNC109
    ) -> ExecuteResponse:
        """The same; cancelling the task ends the command."""
        return await self._threads.wait(
            lambda call: self._execute(command, timeout, call), _call()
        )

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [
            FileUploadResponse(path=path, error=self._upload(path, content))
            for path, content in files
        ]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def rest(self) -> Sandbox:
        """Ends what runs in the sandbox and gives it; the next command begins again."""
        self._inside.rest()
        return self.box

    def close(self) -> None:
        """Ends what runs in the sandbox, and forgets it if it was made here."""
        self._inside.close()
        if self._is_ours:
            self.box.drop(force=True)

    def __enter__(self) -> FractalBackend:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _execute(self, command: str, timeout: int | None, call: Call) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else timeout
        if seconds < 0:
            raise ValueError(f"a timeout is above zero, or zero for none: it is {seconds}")
        try:
            words = self._words(command)
            done = self._inside.run(words, env=self._env, timeout=seconds or None, call=call)
        except (NoSuchUser, OneUserOnly) as error:
            return ExecuteResponse(output=f"{error}\n", exit_code=126)
        except Gone as error:
            if self._inside.is_lost():
                raise
            # It ended all that runs in its sandbox, which is still there.
            done = Done(137, bytes(call.out), f"{error}\n".encode(), overflowed=call.overflowed)
        return _response(done, seconds)

    def _words(self, command: str) -> list[str]:
        """A script that is too long for a word is run from a file, once."""
        if len(os.fsencode(command)) <= WORD_BYTES_MAX:
            return ["sh", "-c", TOGETHER, "sh", command]
        path = f"/tmp/.script-{secrets.token_hex(8)}"
        self._inside.write(path, os.fsencode(command))
        return ["sh", "-c", TOGETHER_FROM_FILE, "sh", path]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._inside.write(path, content)
        except _TOLD as error:
            return _why(error)
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            content = self._inside.read(path, limit=FILE_BYTES_MAX)
        except _TOLD as error:
            return FileDownloadResponse(path=path, error=_why(error))
        return FileDownloadResponse(path=path, content=content)


_TOLD = (OSError, ValueError, TooMuch, NoSuchUser, OneUserOnly)
"""What is said of one file, while others go on."""


def _make(
    directory: str | os.PathLike[str], client: SandboxClient, bounds: dict[str, Any]
) -> Sandbox:
    # Who comes with a key works in the server's own directory.
    ours = client.url is None or client.url.startswith("unix://")
    place = pathlib.Path(directory).expanduser() if ours else None
    return client.create(place, f"{NAMES}{secrets.token_hex(5)}", **bounds)


def _call() -> Call:
    return Call(OUTPUT_BYTES_MAX, keeps="end")


def _response(done: Done, seconds: int) -> ExecuteResponse:
    output = (done.stdout + done.stderr).decode(errors="replace")
    if done.overflowed:
        output = f"[only the last {OUTPUT_BYTES_MAX >> 20} MiB are shown]\n{output}"
    if done.timed_out:
        end = "" if output.endswith("\n") or not output else "\n"
        output += f"{end}[ended: it took longer than {seconds} seconds]\n"
    return ExecuteResponse(
        output=output,
        exit_code=124 if done.timed_out else done.exit_code,
        truncated=done.overflowed,
    )


def _why(error: Exception) -> str:
    """One of the framework's words where it has one."""
    if isinstance(error, Gone):
        raise error
    if isinstance(error, FileNotFoundError):
        return "file_not_found"
    if isinstance(error, IsADirectoryError):
        return "is_directory"
    if isinstance(error, PermissionError):
        return "permission_denied"
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
        return "invalid_path"
    return str(error)
