"""Sandboxes for asyncio: those of :mod:`fractal.sandbox`, awaited."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, overload

from . import _commands, _sandbox_files, sandbox
from . import attempts as _attempts
from . import client as _client
from ._aio_threads import on_thread, stoppable
from ._fractal import Change, Vfs
from ._sandbox_files import EntryInfo, WriteEntry
from .knowledge import Found, Learned, Noted
from .sandbox import Promotion, RunResult, Words

if TYPE_CHECKING:
    import os

    from .knowledge import When
    from .types import Data

    Directory = str | os.PathLike[str]

Tells = Callable[[str], object] | Callable[[str], Awaitable[object]]
"""Is given a piece of output as text, in the event loop."""


class Command:
    """A program that was left to itself; ``sync`` is the same one without
    ``await``."""

    def __init__(self, sync: _commands.Command) -> None:
        self.sync = sync

    @property
    def stdout(self) -> str:
        """What it has written until now."""
        return self.sync.stdout

    @property
    def stderr(self) -> str:
        """What it has complained about until now."""
        return self.sync.stderr

    @property
    def stdout_bytes(self) -> bytes:
        """The same before it became text, as far as it is kept."""
        return self.sync.stdout_bytes

    @property
    def stderr_bytes(self) -> bytes:
        """As :attr:`stdout_bytes`."""
        return self.sync.stderr_bytes

    @property
    def truncated(self) -> bool:
        """Whether it has written more than is kept."""
        return self.sync.truncated

    @property
    def is_running(self) -> bool:
        return self.sync.is_running

    async def send_stdin(self, data: Data) -> None:
        await on_thread(self.sync.send_stdin, data)

    async def close_stdin(self) -> None:
        await on_thread(self.sync.close_stdin)

    async def kill(self) -> bool:
        return await on_thread(self.sync.kill)

    async def wait(self, timeout: float | None = None) -> RunResult:
        """What it left behind; the program goes on when the task that waits is
        cancelled."""
        return await on_thread(self.sync.wait, timeout)


class Commands:
    """The programs of a sandbox."""

    def __init__(self, sync: _commands.Commands) -> None:
        self.sync = sync

    @overload
    async def run(
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
    async def run(
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
    async def run(
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
        """As ``fractal.Sandbox.commands.run``; cancelling the task ends the
        program, unless it was left to itself."""
        how = {"envs": envs, "cwd": cwd, "timeout": timeout, **bounds}
        tells = (_in_loop(on_stdout), _in_loop(on_stderr))
        if background:
            left = self.sync.run
            return Command(
                await on_thread(
                    left, cmd, True, on_stdout=tells[0], on_stderr=tells[1], stdin=stdin, **how
                )
            )
        how["env"] = how.pop("envs")
        asked = self.sync._box._asked(cmd, **how)
        begin = asyncio.ensure_future(
            on_thread(self.sync._begin, cmd, asked, tells, b"" if stdin is None else stdin)
        )
        try:
            begun = await asyncio.shield(begin)
        except asyncio.CancelledError:
            begun = await begin
            await on_thread(begun.kill)
            with contextlib.suppress(Exception):
                await on_thread(begun.wait)
            raise
        return await stoppable(begun.kill, begun.wait)

    async def list(self) -> builtins.list[Command]:
        """Those left to themselves here that still run."""
        return [Command(command) for command in await on_thread(self.sync.list)]


def _in_loop(tell: Tells | None) -> Callable[[str], object] | None:
    """Has something told in the event loop, in order, by the thread that hears
    it; that one waits until it was taken."""
    if tell is None:
        return None
    loop = asyncio.get_running_loop()

    async def say(text: str) -> None:
        answer = tell(text)
        if inspect.isawaitable(answer):
            await answer

    return lambda text: asyncio.run_coroutine_threadsafe(say(text), loop).result()


class Files:
    """The files of a sandbox."""

    def __init__(self, sync: _sandbox_files.Files) -> None:
        self.sync = sync

    @overload
    async def read(self, path: str, format: Literal["text"] = "text") -> str: ...
    @overload
    async def read(self, path: str, format: Literal["bytes"]) -> bytes: ...
    async def read(self, path: str, format: Literal["text", "bytes"] = "text") -> str | bytes:
        return await on_thread(self.sync.read, path, format)

    async def write(self, path: str, data: Data | IO[bytes], *, mode: int | None = None) -> None:
        await on_thread(self.sync.write, path, data, mode=mode)

    async def write_files(self, files: Iterable[WriteEntry | Mapping[str, Any]]) -> None:
        await on_thread(self.sync.write_files, files)

    async def list(self, path: str = ".", *, depth: int = 1) -> builtins.list[EntryInfo]:
        return await on_thread(self.sync.list, path, depth=depth)

    async def exists(self, path: str) -> bool:
        return await on_thread(self.sync.exists, path)

    async def get_info(self, path: str) -> EntryInfo:
        return await on_thread(self.sync.get_info, path)

    async def make_dir(self, path: str) -> bool:
        return await on_thread(self.sync.make_dir, path)

    async def remove(self, path: str) -> None:
        await on_thread(self.sync.remove, path)

    async def rename(self, old: str, new: str) -> EntryInfo:
        return await on_thread(self.sync.rename, old, new)


class Sandbox:
    """A clone of the machine; ``sync`` is the same one without ``await``."""

    def __init__(self, sync: sandbox.Sandbox) -> None:
        self.sync = sync
        self.commands = Commands(sync.commands)
        self.files = Files(sync.files)

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def sandbox_id(self) -> str:
        return self.sync.name

    @property
    def id(self) -> str:
        return self.sync.name

    @classmethod
    async def clone(
        cls,
        directory: Directory | None = None,
        name: str | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> Sandbox:
        return await cls.create(directory, name, client=client)

    @classmethod
    async def create(
        cls,
        directory: Directory | None = None,
        name: str | None = None,
        *,
        client: SandboxClient | None = None,
        **bounds: Any,
    ) -> Sandbox:
        """With the bounds of ``fractal.Sandbox.create``."""
        create = sandbox.Sandbox.create
        return cls(await on_thread(create, directory, name, client=_sync(client), **bounds))

    @classmethod
    async def open(
        cls,
        name: str,
        directory: Directory | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> Sandbox:
        return cls(await on_thread(sandbox.Sandbox.open, name, directory, client=_sync(client)))

    @classmethod
    async def connect(
        cls,
        name: str,
        directory: Directory | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> Sandbox:
        return await cls.open(name, directory, client=client)

    @classmethod
    async def attempts(
        cls,
        ways: Mapping[str, Words] | Sequence[Words],
        directory: Directory | None = None,
        *,
        client: SandboxClient | None = None,
        **how: Any,
    ) -> _attempts.Attempts:
        """With the keywords of ``fractal.SandboxClient.attempts``."""
        tried = sandbox.Sandbox.attempts
        return await on_thread(tried, ways, directory, client=_sync(client), **how)

    async def run(
        self,
        command: Words,
        *,
        stdin: Data | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        **bounds: Any,
    ) -> RunResult:
        """With the keywords of ``fractal.Sandbox.run``; cancelling the task
        ends what it runs."""
        done: RunResult = await self.commands.run(
            command, False, env, cwd, timeout=timeout, stdin=stdin, **bounds
        )
        return done

    async def stop(self) -> None:
        await on_thread(self.sync.stop)

    async def pause(self) -> None:
        await on_thread(self.sync.pause)

    async def resume(self) -> Sandbox:
        await on_thread(self.sync.resume)
        return self

    async def is_running(self) -> bool:
        return await on_thread(self.sync.is_running)

    async def edit(self, work: Callable[[Vfs], object], *, why: str = "edit") -> RunResult:
        return await on_thread(self.sync.edit, work, why=why)

    async def view(self) -> Vfs:
        return await on_thread(self.sync.view)

    async def changes(self, since: str | None = None) -> builtins.list[Change]:
        return await on_thread(self.sync.changes, since)

    async def diff(self, since: str | None = None, *, everything: bool = False) -> str:
        return await on_thread(self.sync.diff, since, everything=everything)

    async def fork(self, name: str | None = None) -> Sandbox:
        return Sandbox(await on_thread(self.sync.fork, name))

    async def snapshot(self, name: str | None = None) -> str:
        return await on_thread(self.sync.snapshot, name)

    async def create_snapshot(self, name: str | None = None) -> str:
        return await on_thread(self.sync.snapshot, name)

    async def snapshots(self) -> builtins.list[str]:
        return await on_thread(self.sync.snapshots)

    async def rollback(self, to: str) -> None:
        await on_thread(self.sync.rollback, to)

    async def compare(
        self,
        *others: Sandbox,
        checks: _attempts.Checks | None = None,
        score: str | None = None,
    ) -> _attempts.Attempts:
        boxes = [other.sync for other in others]
        return await on_thread(self.sync.compare, *boxes, checks=checks, score=score)

    async def promote(
        self, *, only: Iterable[str] = (), dry_run: bool = False, **how: Any
    ) -> Promotion:
        """With the keywords of ``fractal.Sandbox.promote``."""
        return await on_thread(self.sync.promote, only=only, dry_run=dry_run, **how)

    async def undo(self, promotion: Promotion | None = None) -> Promotion:
        return await on_thread(self.sync.undo, promotion)

    async def info(self) -> Mapping[str, Any]:
        return await on_thread(self.sync.info)

    async def drop(self, *, force: bool = False) -> None:
        await on_thread(self.sync.drop, force=force)

    async def kill(self) -> bool:
        return await on_thread(self.sync.kill)

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.drop(force=True)

    def __repr__(self) -> str:
        return f"<fractal.aio.Sandbox {self.name!r}>"


class SandboxClient:
    """Makes and finds sandboxes, in this process or through a server; ``sync``
    is the same one without ``await``."""

    def __init__(
        self, url: str | None = None, key: str | None = None, **how: Any
    ) -> None:
        """With the keywords of ``fractal.SandboxClient``."""
        self.sync = _client.SandboxClient(url, key, **how)

    @classmethod
    def of(cls, sync: _client.SandboxClient) -> SandboxClient:
        """The one of a client that is there already."""
        client = cls.__new__(cls)
        client.sync = sync
        return client

    async def create(
        self, directory: Directory | None = None, name: str | None = None, **bounds: Any
    ) -> Sandbox:
        return await Sandbox.create(directory, name, client=self, **bounds)

    async def open(self, name: str, directory: Directory | None = None) -> Sandbox:
        return await Sandbox.open(name, directory, client=self)

    async def list(self) -> builtins.list[Mapping[str, Any]]:
        return await on_thread(self.sync.list)

    async def attempts(
        self,
        ways: Mapping[str, Words] | Sequence[Words],
        directory: Directory | None = None,
        **how: Any,
    ) -> _attempts.Attempts:
        return await on_thread(self.sync.attempts, ways, directory, **how)

    async def undo(
        self, promotion: Promotion | str | None = None, directory: Directory | None = None
    ) -> Promotion:
        return await on_thread(self.sync.undo, promotion, directory)

    async def note(
        self, title: str, body: str = "", directory: Directory | None = None, **more: Any
    ) -> Noted:
        """With the keywords of ``fractal.SandboxClient.note``."""
        return await on_thread(self.sync.note, title, body, directory, **more)

    async def find(
        self, text: str, directory: Directory | None = None, **which: Any
    ) -> Found:
        """With the keywords of ``fractal.SandboxClient.find``."""
        return await on_thread(self.sync.find, text, directory, **which)

    async def learned(
        self, since: When | None = None, directory: Directory | None = None
    ) -> Learned:
        return await on_thread(self.sync.learned, since, directory)

    async def close(self) -> None:
        await on_thread(self.sync.close)

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.close()


def _sync(client: SandboxClient | None) -> _client.SandboxClient | None:
    return None if client is None else client.sync
