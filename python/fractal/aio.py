"""The same things for asyncio: each call that may take time is awaited.

The work is done on threads, with the interpreter let go of; so the event loop
goes on meanwhile. What is not here takes no time: use ``sync``.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _fractal, sandbox, tools
from ._aio_sandbox import Command, Commands, Files, Sandbox, SandboxClient
from ._aio_threads import on_thread, stoppable
from ._fractal import Change, CommandResult, Entry, Snapshot, Stat

if TYPE_CHECKING:
    import builtins

    from .types import Data, Path, Source

__all__ = [
    "Command",
    "Commands",
    "Files",
    "Sandbox",
    "SandboxClient",
    "Shell",
    "ToolRegistry",
    "Vfs",
]


class Vfs:
    """A filesystem in memory; ``sync`` is the same one without ``await``."""

    def __init__(self, sync: _fractal.Vfs | None = None) -> None:
        self.sync = _fractal.Vfs() if sync is None else sync

    async def read(self, path: Path) -> bytes:
        return await on_thread(self.sync.read, path)

    async def read_text(self, path: Path) -> str:
        return await on_thread(self.sync.read_text, path)

    async def read_range(self, path: Path, start: int, end: int) -> bytes:
        return await on_thread(self.sync.read_range, path, start, end)

    async def write(self, path: Path, data: Data, *, parents: bool = False) -> int:
        return await on_thread(self.sync.write, path, data, parents=parents)

    async def write_if(self, path: Path, data: Data, version: int) -> int:
        return await on_thread(self.sync.write_if, path, data, version)

    async def append(self, path: Path, data: Data) -> None:
        await on_thread(self.sync.append, path, data)

    async def mkdir(self, path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
        await on_thread(self.sync.mkdir, path, parents=parents, exist_ok=exist_ok)

    async def remove(self, path: Path) -> None:
        await on_thread(self.sync.remove, path)

    async def remove_all(self, path: Path) -> None:
        await on_thread(self.sync.remove_all, path)

    async def rename(self, src: Path, dst: Path) -> None:
        await on_thread(self.sync.rename, src, dst)

    async def copy(self, src: Path, dst: Path) -> None:
        await on_thread(self.sync.copy, src, dst)

    async def stat(self, path: Path) -> Stat:
        return await on_thread(self.sync.stat, path)

    async def exists(self, path: Path) -> bool:
        return await on_thread(self.sync.exists, path)

    async def list(self, path: Path = "/") -> builtins.list[str]:
        return await on_thread(self.sync.list, path)

    async def scandir(self, path: Path = "/") -> builtins.list[Entry]:
        return await on_thread(self.sync.scandir, path)

    async def walk(
        self, top: Path = "/"
    ) -> AsyncIterator[tuple[str, builtins.list[str], builtins.list[str]]]:
        steps = self.sync.walk(top)
        while (step := await on_thread(next, steps, None)) is not None:
            yield step

    async def glob(self, pattern: Path) -> builtins.list[str]:
        return await on_thread(self.sync.glob, pattern)

    def fork(self) -> Vfs:
        """Takes no time."""
        return Vfs(self.sync.fork())

    async def changes(
        self, since: Snapshot | Vfs | _fractal.Vfs | None = None
    ) -> builtins.list[Change]:
        other = since.sync if isinstance(since, Vfs) else since
        return await on_thread(self.sync.changes, other)

    async def mount(
        self,
        path: Path,
        source: Source,
        *,
        read_only: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> None:
        await on_thread(
            self.sync.mount, path, source, read_only=read_only, max_age=max_age, timeout=timeout
        )

    async def exec(
        self,
        script: str,
        *,
        timeout: float = 120.0,
        stdin: Data | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
    ) -> CommandResult:
        """Runs a script; cancelling the task stops it."""
        shell = Shell(self, timeout=timeout, env=env, cwd=cwd)
        return await shell.run(script, stdin=stdin)

    async def python(
        self,
        code: str,
        *args: str,
        timeout: float = 120.0,
        stdin: Data | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
    ) -> CommandResult:
        """Runs a Python program; cancelling the task stops it."""
        shell = Shell(self, timeout=timeout, env=env, cwd=cwd)
        words = " ".join(shlex.quote(word) for word in (code, *args))
        return await shell.run(f"python3 -c {words}", stdin=stdin)

    async def export_dir(self, dir: Path, path: Path = "/") -> None:
        await on_thread(self.sync.export_dir, dir, path)

    async def import_dir(self, dir: Path, path: Path = "/") -> int:
        return await on_thread(self.sync.import_dir, dir, path)


class Shell:
    """A session of the shell."""

    def __init__(
        self,
        vfs: Vfs,
        *,
        timeout: float = 120.0,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
    ) -> None:
        self.sync = _fractal.Shell(vfs.sync, timeout=timeout, env=env, cwd=cwd)

    async def run(self, script: str, *, stdin: Data | None = None) -> CommandResult:
        """Runs a script; cancelling the task stops it."""
        return await stoppable(self.sync.cancel, self.sync.run, script, stdin=stdin)


class ToolRegistry:
    """Tools; ``sync`` is the same registry without ``await``, and the place to
    register functions."""

    def __init__(self, sync: tools.ToolRegistry | None = None) -> None:
        self.sync = tools.ToolRegistry() if sync is None else sync

    async def list(
        self, box: str | sandbox.Sandbox | Sandbox | None = None
    ) -> builtins.list[tools.Tool]:
        return await on_thread(self.sync.list, box.sync if isinstance(box, Sandbox) else box)

    async def call(
        self, tool: str, input: Mapping[str, Any] | None = None, **how: Any
    ) -> Any:
        """With the keywords of ``fractal.ToolRegistry.call``."""
        return await on_thread(self.sync.call, tool, input, **how)

    async def call_many(
        self, calls: Iterable[Mapping[str, Any]], **how: Any
    ) -> builtins.list[tools.ToolResult]:
        """With the keywords of ``fractal.ToolRegistry.call_many``."""
        return await on_thread(self.sync.call_many, calls, **how)
