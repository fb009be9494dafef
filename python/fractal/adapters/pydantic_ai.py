"""Workspaces of Pydantic AI, each a clone of this machine.

:class:`FractalWorkspace` is a capability: an agent that has it works in a
sandbox. :class:`FractalWorkspaceBackend` is what works inside, to be passed to
a run as ``workspace=``. A sandbox is made by the first operation, outlives the
run, and is gone when it is dropped.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import posixpath
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    ReadOnlyWorkspace,
    SupportsCommands,
    SupportsFilesystem,
    SupportsRealpath,
    Workspace,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from .. import Sandbox, SandboxClient
from .._connection import home
from .._errors import code_of
from ._awaited import Threads
from ._inside import Call, Done, Entry, Gone, Inside, NoSuchUser, OneUserOnly, TooMuch

__all__ = ["PROVIDER", "FractalWorkspace", "FractalWorkspaceBackend"]

T = TypeVar("T")
Directory = str | os.PathLike[str]
Network = str | Iterable[str]

PROVIDER = "fractal"
NAMES = "pydantic-"
"""What the names of the sandboxes begin with."""
OUTPUT_BYTES_MAX = 10 << 20
SHOWN_BYTES = 64 << 10
"""How much of too much output is shown."""
FILE_BYTES_MAX = 256 << 20
AT_WORK_MAX = 128


class _AtWork:
    """What works inside the sandboxes that this process uses, so that a later
    run finds what an earlier one left running. The latest are kept."""

    def __init__(self) -> None:
        self._all: OrderedDict[tuple[str, str, str | None], Inside] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, box: Sandbox, client: SandboxClient, user: str | None) -> Inside:
        key = (client.url or home(), box.name, user)
        with self._lock:
            found = self._all.pop(key, None) or Inside(box, user=user)
            self._all[key] = found
            over = len(self._all) - AT_WORK_MAX
            old = [self._all.popitem(last=False)[1] for _ in range(over)]
        for inside in old:
            inside.rest()
        return found

    def rest(self, name: str) -> None:
        for inside in self._of_name(name):
            inside.rest()

    def forget(self, name: str) -> None:
        for inside in self._of_name(name):
            inside.close()
        with self._lock:
            for key in [key for key in self._all if key[1] == name]:
                del self._all[key]

    def _of_name(self, name: str) -> list[Inside]:
        with self._lock:
            return [inside for key, inside in self._all.items() if key[1] == name]


_at_work = _AtWork()


class FractalWorkspaceBackend(
    WorkspaceBackend, SupportsCommands, SupportsFilesystem, SupportsRealpath
):
    """Programs and files of one sandbox."""

    def __init__(
        self,
        directory: Directory = ".",
        *,
        ref: WorkspaceRef | None = None,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        client: SandboxClient | None = None,
        **bounds: Any,
    ) -> None:
        """A clone of the machine for work in a directory, or the one that ``ref``
        names; ``bounds`` are the keywords of :meth:`fractal.Sandbox.create`."""
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"{ref.provider!r} has other workspaces: a ref of {PROVIDER!r} is one")
        self._directory = os.path.realpath(pathlib.Path(directory).expanduser())
        self._ref = ref
        self._user = user
        self._env = dict(env or {})
        self._client = client
        self._bounds = bounds
        self._opening = threading.Lock()
        self._box: Sandbox | None = None
        self._inside: Inside | None = None
        self._threads = Threads()

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    @property
    def box(self) -> Sandbox:
        """The sandbox itself: to fork it or see its changes. It is promoted when
        nothing runs in it, see :meth:`FractalWorkspace.rest`."""
        if self._box is None:
            raise WorkspaceError("there is no sandbox yet: the first operation makes it")
        return self._box

    async def working_dir(self) -> str:
        inside = await self._reach()
        return await self._do(lambda call: inside.cwd)

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        argv = _argv(command, shell)
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"a timeout is above zero and has an end: it is {timeout}")
        inside = await self._reach()
        call = Call(OUTPUT_BYTES_MAX)
        try:
            done = await self._do(
                lambda call: inside.run(
                    argv, env={**self._env, **(env or {})}, timeout=timeout, call=call
                ),
                call,
            )
        except Gone as error:
            # It ended all that runs in its sandbox, which is still there.
            return _result(137, bytes(call.out), bytes(call.err) + f"\n{error}\n".encode())
        except (FileNotFoundError, PermissionError) as error:
            missing = isinstance(error, FileNotFoundError)
            why = "command not found" if missing else "Permission denied"
            return _result(127 if missing else 126, b"", f"{argv[0]}: {why}\n".encode())
        return _judged(done, timeout)

    async def read_bytes(self, path: str) -> bytes:
        inside = await self._reach()
        return await self._do(lambda call: inside.read(path, limit=FILE_BYTES_MAX, call=call))

    async def write_bytes(self, path: str, data: bytes) -> None:
        inside = await self._reach()
        await self._do(lambda call: inside.write(path, data, call=call))

    async def stat(self, path: str) -> FileEntry:
        inside = await self._reach()
        found = await self._do(lambda call: inside.info(path))
        return _entry(found)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        inside = await self._reach()
        return [_entry(found) for found in await self._do(lambda call: inside.list(path))]

    async def make_dir(self, path: str) -> None:
        inside = await self._reach()
        await self._do(lambda call: inside.make_dir(path))

    async def remove(self, path: str) -> None:
        inside = await self._reach()

        def remove(call: Call) -> None:
            above, name = posixpath.split(path.rstrip("/"))
            real = posixpath.join(inside.resolve(above or "/"), name)
            if posixpath.join(inside.cwd, "").startswith(posixpath.join(real, "")):
                raise ValueError("the working directory, and what it is in, is not removed")
            inside.remove(path)

        await self._do(remove)

    async def exists(self, path: str) -> bool:
        inside = await self._reach()
        return await self._do(lambda call: inside.exists(path))

    async def realpath(self, path: str) -> str:
        inside = await self._reach()
        return await self._do(lambda call: inside.resolve(path))

    async def drop(self) -> None:
        """Ends what runs in the sandbox and forgets it. Dropping twice is no error."""
        if self._ref is not None:
            await anyio.to_thread.run_sync(_drop, self._ref.id, self._client)

    async def _reach(self) -> Inside:
        """The sandbox, made or found by whoever comes first."""
        if self._inside is None:
            # Whoever is cancelled meanwhile has made a sandbox that has a name.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._open)
        assert self._inside is not None
        return self._inside

    def _open(self) -> None:
        with self._opening:
            if self._inside is not None:
                return
            client = self._client or SandboxClient()
            box = self._make(client) if self._ref is None else self._find(client, self._ref.id)
            self._ref = WorkspaceRef(provider=PROVIDER, id=box.name)
            self._box = box
            self._inside = _at_work.of(box, client, self._user)

    def _make(self, client: SandboxClient) -> Sandbox:
        # Who comes with a key works in the server's own directory.
        ours = client.url is None or client.url.startswith("unix://")
        name = f"{NAMES}{secrets.token_hex(8)}"
        return client.create(self._directory if ours else None, name, **self._bounds)

    def _find(self, client: SandboxClient, name: str) -> Sandbox:
        try:
            return client.open(name)
        except (OSError, ValueError) as error:
            if code_of(error) not in ("not_found", "invalid"):
                raise
            raise WorkspaceUnavailableError(f"there is no sandbox {name!r}: {error}") from error

    async def _do(self, work: Callable[[Call], T], call: Call | None = None) -> T:
        """Does something inside, and says it if there is no inside any more."""
        try:
            return await self._threads.wait(work, call)
        except Gone as error:
            inside = await self._reach()
            if await anyio.to_thread.run_sync(inside.is_lost):
                raise WorkspaceUnavailableError(str(error)) from error
            raise
        except (NoSuchUser, OneUserOnly, TooMuch) as error:
            raise WorkspaceError(str(error)) from error


@dataclass
class FractalWorkspace(AbstractCapability[AgentDepsT]):
    """Gives each run of an agent a clone of this machine to work in.

    A run that continues another one (by ``workspace=ref`` or by its messages)
    works in the same sandbox. Give the agent tools too, such as the ``Shell``,
    ``FileSystem`` or ``Coder`` of ``pydantic-ai-harness``.
    """

    directory: Directory = "."
    """The project that it works in a copy of; ``.`` is today's directory."""

    _: KW_ONLY
    read_only: bool = False
    """Whether tools may only look at files."""
    user: str | None = None
    """Who programs run as; by default whoever runs fractal."""
    env: Mapping[str, str] | None = field(default=None, repr=False)
    """Variables for every program."""
    template: str | None = None
    base: Literal["live", "frozen"] = "live"
    network: Network | None = None
    """``none``, ``host``, or the hosts that can be reached."""
    memory: int | None = None
    """Bytes, for everything in a sandbox together; so are those that follow."""
    cpus: float | None = None
    pids: int | None = None
    disk: int | None = None
    ttl: float | None = None
    """After how many seconds a sandbox that is forgotten expires."""
    client: SandboxClient | None = field(default=None, repr=False)
    """Where sandboxes are made; by default in this process."""
    id: str | None = "fractal_workspace"
    """A later one of this name takes the place of an earlier one."""

    def __post_init__(self) -> None:
        self.directory = os.path.realpath(pathlib.Path(self.directory).expanduser())

    @classmethod
    def combine(
        cls, capabilities: Sequence[AbstractCapability[AgentDepsT]]
    ) -> AbstractCapability[AgentDepsT]:
        """The later one holds alone, so that nothing wider is left of the earlier."""
        return capabilities[-1]

    def backend(self, ref: WorkspaceRef | None = None) -> FractalWorkspaceBackend:
        """One for a new sandbox, or for the one that a ref names."""
        bounds = ("template", "base", "network", "memory", "cpus", "pids", "disk", "ttl")
        return FractalWorkspaceBackend(
            self.directory,
            ref=ref,
            user=self.user,
            env=self.env,
            client=self.client,
            **{name: getattr(self, name) for name in bounds},
        )

    def rest(self, ref: WorkspaceRef) -> Sandbox:
        """Ends what runs in a sandbox and gives it, to be looked at, forked or
        promoted; the next operation of an agent begins again."""
        _at_work.rest(ref.id)
        return (self.client or SandboxClient()).open(ref.id)

    async def destroy(self, ref: WorkspaceRef) -> None:
        """Ends what runs in a sandbox and forgets it."""
        await self.backend(ref).drop()

    def get_workspace(
        self, ctx: RunContext[AgentDepsT], *, ref: WorkspaceRef | None
    ) -> WorkspaceBackend | None:
        # Messages may name sandboxes that were never an agent's.
        if ref is not None and (ref.provider != PROVIDER or not ref.id.startswith(NAMES)):
            return None
        backend = self.backend(ref)
        return ReadOnlyWorkspace(Workspace(backend)) if self.read_only else backend


def _drop(name: str, client: SandboxClient | None) -> None:
    # First, so that whoever works in it is told that it is gone.
    _at_work.forget(name)
    with contextlib.suppress(FileNotFoundError):
        (client or SandboxClient()).open(name).drop(force=True)


def _argv(command: WorkspaceCommand, shell: bool) -> list[str]:
    if isinstance(command, str):
        if not shell:
            raise TypeError("a script needs shell=True: give a list of words otherwise")
        return ["sh", "-c", command]
    if shell:
        raise TypeError("words are no script: leave shell=True out, or give one string")
    if not command:
        raise ValueError("there is no program to run: the command is empty")
    return list(command)


def _result(status: int, stdout: bytes, stderr: bytes) -> CommandResult:
    out, err = (data.decode(errors="replace") for data in (stdout, stderr))
    return CommandResult(exit_code=status, stdout=out, stderr=err)


def _judged(done: Done, timeout: float | None) -> CommandResult:
    """What a program left behind, if all of it is there."""
    if done.overflowed:
        shown = _result(0, done.stdout[:SHOWN_BYTES], done.stderr[:SHOWN_BYTES])
        raise WorkspaceOutputLimitError(
            f"the command wrote more than {OUTPUT_BYTES_MAX >> 20} MiB and was ended: "
            "write to a file, and read parts of it",
            limit=OUTPUT_BYTES_MAX,
            stdout=shown.stdout,
            stderr=shown.stderr,
        )
    result = _result(done.exit_code, done.stdout, done.stderr)
    if done.timed_out:
        raise WorkspaceTimeoutError(
            f"the command took longer than {timeout:g} seconds and was ended",
            stdout=result.stdout,
            stderr=result.stderr,
        )
    return result


def _entry(found: Entry) -> FileEntry:
    return FileEntry(
        name=found.name,
        path=found.path,
        is_dir=found.is_dir,
        size=found.size if found.is_file else None,
    )
