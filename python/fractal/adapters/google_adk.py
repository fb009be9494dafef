"""Google's Agent Development Kit in sandboxes of this machine.

:class:`FractalEnvironment` is a workspace for ``EnvironmentToolset``: a clone of
a project, in which an agent reads, edits and runs. :class:`FractalCodeExecutor`
runs the pieces of Python that a model writes, each in a sandbox of its own. They
need ``google-adk``.
"""

from __future__ import annotations

import base64
import mimetypes
import os
import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import (
    CodeExecutionInput,
    CodeExecutionResult,
    File,
)
from google.adk.environment import BaseEnvironment, ExecutionResult
from pydantic import Field, PrivateAttr

from .. import aio
from .._fractal import Change
from ..client import SandboxClient
from ..sandbox import RunResult, Sandbox

__all__ = ["FractalCodeExecutor", "FractalEnvironment"]

FILES_MAX = 16
"""How many files a piece of code gives back."""

FILE_BYTES_MAX = 16 << 20
"""How large each of them is at most."""


class FractalEnvironment(BaseEnvironment):
    """A workspace in a sandbox that is made by ``initialize`` and dropped by
    ``close``; ``box`` is the sandbox itself."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        keep: bool = False,
        env_vars: dict[str, str] | None = None,
        client: SandboxClient | None = None,
        **bounds: Any,
    ) -> None:
        """A clone for work in ``directory``, by default the current one, or a
        server's own.

        With ``keep`` the sandbox stays when the environment is closed, and is
        what another environment of this ``name`` goes on in. ``bounds`` are those of
        :meth:`fractal.Sandbox.create`.
        """
        if keep and name is None:
            raise ValueError("what is kept needs a name to be found by: give `name`")
        self._directory = directory
        self._name = name
        self._keep = keep
        self._env_vars = env_vars
        self._client = client
        self._bounds = bounds
        self._box: aio.Sandbox | None = None

    @property
    def box(self) -> aio.Sandbox:
        """The sandbox: to diff, compare and promote."""
        if self._box is None:
            raise RuntimeError("the environment has no sandbox: call `initialize()` first")
        return self._box

    @property
    def working_dir(self) -> Path:
        return Path(self.box.sync.directory)

    async def initialize(self) -> None:
        if self._box is None:
            self._box = await self._found() or await self._made()
        self._is_initialized = True

    async def close(self) -> None:
        box, self._box = self._box, None
        self._is_initialized = False
        if box is None:
            return
        if self._keep:
            await box.stop()
        else:
            await box.drop(force=True)

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        done = await self.box.run(command, env=self._env_vars, timeout=timeout)
        return ExecutionResult(
            exit_code=done.exit_code,
            stdout=done.stdout,
            stderr=_reasons(done),
            timed_out=done.outcome == "timeout",
        )

    async def read_file(self, path: str | os.PathLike[str]) -> bytes:
        return await self.box.files.read(os.fspath(path), "bytes")

    async def write_file(self, path: str | os.PathLike[str], content: str | bytes) -> None:
        await self.box.files.write(os.fspath(path), content)

    async def _found(self) -> aio.Sandbox | None:
        if not self._keep or self._name is None:
            return None
        try:
            return await aio.Sandbox.open(self._name, self._directory, client=self._aio())
        except FileNotFoundError:
            return None

    async def _made(self) -> aio.Sandbox:
        return await aio.Sandbox.create(
            self._directory, self._name, client=self._aio(), **self._bounds
        )

    def _aio(self) -> aio.SandboxClient | None:
        return None if self._client is None else aio.SandboxClient.of(self._client)


class FractalCodeExecutor(BaseCodeExecutor):
    """Runs each piece of Python in a fresh sandbox, so that nothing is left for
    the next one, whoever it is for.

    Files that it writes below the working directory are given back, and ADK
    keeps them as artifacts. What it complains about is told when it fails, as
    ADK takes any complaint for a failure.
    """

    stateful: bool = Field(default=False, frozen=True, exclude=True)
    optimize_data_file: bool = Field(default=False, frozen=True, exclude=True)
    timeout_seconds: int | None = Field(default=300, gt=0)

    directory: str | None = None
    """What it works in: the current directory, or a server's own."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    bounds: dict[str, Any] = Field(default_factory=dict)
    """Those of :meth:`fractal.Sandbox.create`."""
    _client: SandboxClient | None = PrivateAttr(default=None)

    def __init__(self, *, client: SandboxClient | None = None, **data: Any) -> None:
        for name in ("stateful", "optimize_data_file"):
            if data.get(name):
                raise ValueError(f"each piece of code has a sandbox of its own: not `{name}`")
        super().__init__(**data)
        self._client = client

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        with Sandbox.create(self.directory, client=self._client, **self.bounds) as box:
            given = {file.name: _content(file) for file in code_execution_input.input_files}
            for name, content in given.items():
                box.files.write(name, content)
            done = box.run(
                ["python3", "-"],
                stdin=code_execution_input.code,
                env={"PYTHONIOENCODING": "utf-8", "MPLBACKEND": "Agg", **self.env_vars},
                timeout=self.timeout_seconds,
            )
            files, note = _written(box, done.changes, given)
        return CodeExecutionResult(
            stdout=done.stdout + note,
            stderr="" if done.error is None else _reasons(done) or done.error,
            output_files=files,
            exit_code=done.exit_code,
        )


def _reasons(done: RunResult) -> str:
    """What it complained about, and what ended it if that was not its own doing."""
    if done.outcome in ("exited", "signalled"):
        return done.stderr
    gap = "" if done.stderr.endswith("\n") or not done.stderr else "\n"
    return f"{done.stderr}{gap}[{done.error}]\n"


def _content(file: File) -> bytes:
    # In ADK text is base64 of the bytes.
    return file.content if isinstance(file.content, bytes) else base64.b64decode(file.content)


def _written(
    box: Sandbox, changes: Iterable[Change], given: dict[str, bytes]
) -> tuple[list[File], str]:
    """The files that were written, and a sentence about those that are too many
    or too large."""
    found: list[File] = []
    left: list[str] = []
    for change in changes:
        name = posixpath.relpath(change.path, box.directory)
        if not _is_of_interest(change, name):
            continue
        if len(found) == FILES_MAX or change.size > FILE_BYTES_MAX:
            left.append(name)
            continue
        content = box.files.read(name, "bytes")
        if given.get(name) != content:
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            found.append(File(name=name, content=content, mime_type=kind))
    if not left:
        return found, ""
    return found, f"\n[not given back, too many or too large: {', '.join(left[:FILES_MAX])}]\n"


def _is_of_interest(change: Change, name: str) -> bool:
    is_below = not name.startswith("../") and "__pycache__" not in name.split("/")
    return is_below and change.entry == "file" and change.kind in ("added", "modified")
