"""Samples of inspect-ai, each in a clone of this machine.

Registers the sandbox type ``fractal``: write ``sandbox="fractal"`` in a task, or
``SandboxEnvironmentSpec("fractal", FractalSandboxConfig(...))`` to say more.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import secrets
import shlex
import tempfile
from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Any, Literal, TypeVar, overload

import anyio
import anyio.to_thread
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    concurrency,
    sandboxenv,
)
from pydantic import BaseModel

from .. import Sandbox, SandboxClient
from .._connection import home
from ._awaited import Threads
from ._inside import Call, Done, Gone, Inside, NoSuchUser, OneUserOnly, TooMuch

__all__ = ["FractalSandboxConfig", "FractalSandboxEnvironment"]

T = TypeVar("T")

logger = getLogger(__name__)

NAMES = "inspect-"
"""What the names of the sandboxes begin with."""
TTL_S = 24 * 3600.0
"""When a sandbox that nobody cleaned up expires."""
PROGRAMS_PER_CPU = 4
SANDBOXES_PER_CPU = 4


class FractalSandboxConfig(BaseModel, frozen=True, extra="forbid"):
    """What the sandboxes of a task are like. Sizes are bytes."""

    directory: str | None = None
    """The project that each sample works in a copy of; an empty one by default."""
    template: str | None = None
    """A template of the project's ``fractal.toml``, or ``standard``."""
    base: Literal["live", "frozen"] = "live"
    network: Literal["none", "host"] | tuple[str, ...] | None = None
    """``none``, ``host``, or the hosts that can be reached."""
    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk: int | None = None
    user: str | None = None
    """Who programs run as and files belong to; by default whoever runs fractal.
    A directory that is named must be theirs, an empty one is made so."""


@sandboxenv(name="fractal")
class FractalSandboxEnvironment(SandboxEnvironment):
    """One clone of the machine: programs, files, and what runs in the background."""

    def __init__(self, box: Sandbox, inside: Inside, working_dir: str, scratch: str | None) -> None:
        super().__init__()
        self.box = box
        """The sandbox itself: to fork it or see its changes. It is promoted when
        nothing runs in it, see :meth:`rest`."""
        self._inside = inside
        self._working_dir = working_dir
        self._scratch = scratch
        self._threads = Threads()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a program. One that took too long is not run again, whatever
        ``timeout_retry`` says: its time is kept inside, where nothing gets lost
        on the way. Of output above the limit the end is kept."""
        if not cmd:
            raise ValueError("there is no program to run: the command is empty")
        stdin = input.encode() if isinstance(input, str) else input
        place = posixpath.join(self._working_dir, cwd or "")
        call = Call(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, keeps="end")

        def run(call: Call) -> Done | ExecResult[str]:
            try:
                return self._inside.run(
                    cmd, stdin=stdin, cwd=place, env=env, user=user, timeout=timeout, call=call
                )
            except NoSuchUser as error:
                return _failed(126, f"{error}\n")
            except OSError as error:
                return _not_started(error, cmd[0], place)

        done = await (self._in_turn(run, call) if concurrency else self._do(run, call))
        if isinstance(done, ExecResult):
            return done
        stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if done.timed_out:
            error = TimeoutError(f"the command took longer than {timeout} seconds and was ended")
            error.truncated_output = stdout + stderr or None  # type: ignore[attr-defined]
            raise error
        return ExecResult(done.exit_code == 0, done.exit_code, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        path = self._place(file)
        await self._do(lambda call: self._inside.write(path, data, call=call))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        limit_str = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
        path = self._place(file)
        try:
            data = await self._do(lambda call: self._inside.read(path, limit=limit, call=call))
        except TooMuch:
            raise OutputLimitExceededError(limit_str, None) from None
        return data.decode() if text else data

    def rest(self) -> Sandbox:
        """Ends what runs in the sandbox and gives it; the next command begins again."""
        self._inside.rest()
        return self.box

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A shell in the sandbox. It sees the files; processes are its own."""
        if SandboxClient().url is not None:
            raise NotImplementedError("the sandbox is a server's: enter it there")
        if user is not None:
            raise NotImplementedError("a shell in a sandbox is for whoever runs fractal")
        if not await anyio.to_thread.run_sync(self.box.is_running):
            raise ConnectionError(f"sandbox {self.box.name!r} is not there any more")
        command = f"FRACTAL_HOME={shlex.quote(home())} fractal enter {self.box.name}"
        return SandboxConnection(type="fractal", command=command, container=self.box.name)

    def default_polling_interval(self) -> float:
        return 0.2

    @classmethod
    def default_concurrency(cls) -> int | None:
        return SANDBOXES_PER_CPU * (os.cpu_count() or 1)

    @classmethod
    def config_files(cls) -> list[str]:
        return ["fractal.toml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return FractalSandboxConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Makes a sandbox and drops it, so that what is wrong is said once,
        before the first sample."""
        environments = await cls.sample_init(task_name, config, {})
        await cls.sample_cleanup(task_name, config, environments, False)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        settled = _settled(config)
        # What is being made is made, so that it can be cleaned up.
        with anyio.CancelScope(shield=True):
            made = await anyio.to_thread.run_sync(cls._make, settled)
        return {"default": made}

    @classmethod
    def _make(cls, config: FractalSandboxConfig) -> FractalSandboxEnvironment:
        client = SandboxClient()
        directory, scratch = config.directory, None
        if directory is None and (client.url is None or client.url.startswith("unix://")):
            directory = scratch = tempfile.mkdtemp(prefix=f"fractal-{NAMES}")
        bounds = config.model_dump(exclude={"directory", "user"})
        name = f"{NAMES}{secrets.token_hex(5)}"
        with contextlib.ExitStack() as undo:
            undo.callback(_remove_scratch, scratch)
            box = Sandbox.create(directory, name, client=client, ttl=TTL_S, **bounds)
            undo.callback(box.drop, force=True)
            inside = Inside(box, user=config.user)
            working_dir = inside.cwd
            if config.user is not None and scratch is not None:
                _give(inside, working_dir, config.user)
            undo.pop_all()
        return cls(box, inside, working_dir, scratch)

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            ours = environment.as_type(FractalSandboxEnvironment)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(ours._end)

    def _end(self) -> None:
        try:
            self.box.drop(force=True)
        finally:
            self._inside.close()
            _remove_scratch(self._scratch)

    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        """Says what was left, where samples were told not to clean up."""
        if not cleanup:
            left = [name for name, _ in await anyio.to_thread.run_sync(_left)]
            print(f"fractal sandboxes left: {', '.join(left) or 'none'}")
            print("`fractal enter NAME` opens a shell; `inspect sandbox cleanup fractal` ends them")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        await anyio.to_thread.run_sync(_drop_left, id)

    def _place(self, file: str) -> str:
        return posixpath.join(self._working_dir, file)

    async def _in_turn(self, work: Callable[[Call], T], call: Call) -> T:
        """Does it when not too many others do: all sandboxes share this machine."""
        async with concurrency("fractal programs", PROGRAMS_PER_CPU * (os.cpu_count() or 1)):
            done = await self._do(work, call)
        return done

    async def _do(self, work: Callable[[Call], T], call: Call | None = None) -> T:
        """Does something inside, and says in Inspect's own errors what is wrong."""
        try:
            return await self._threads.wait(work, call)
        except Gone as error:
            raise SandboxUnavailableError(str(error)) from error
        except OneUserOnly as error:
            raise SandboxUserUnsupportedError(str(error)) from error


def _failed(status: int, why: str) -> ExecResult[str]:
    return ExecResult(False, status, "", why)


def _not_started(error: OSError, program: str, cwd: str) -> ExecResult[str]:
    """What a shell would say of a program that could not be started."""
    if isinstance(error, (Gone, PermissionError)):
        raise error
    if error.filename == cwd:
        return _failed(126, f"cannot work in {cwd}: {error.strerror}\n")
    if isinstance(error, FileNotFoundError):
        return _failed(127, f"{program}: command not found\n")
    return _failed(126, f"{program}: {error.strerror}\n")


def _settled(config: SandboxEnvironmentConfigType | None) -> FractalSandboxConfig:
    """A path stands for the project that is there, or that it is a file of."""
    if config is None:
        return FractalSandboxConfig()
    if isinstance(config, FractalSandboxConfig):
        return config
    if isinstance(config, str):
        path = os.path.abspath(config)
        is_file = os.path.basename(path) == "fractal.toml"
        return FractalSandboxConfig(directory=os.path.dirname(path) if is_file else path)
    raise TypeError(
        f"{type(config).__name__} does not describe a fractal sandbox: "
        "use FractalSandboxConfig, or the path of a project"
    )


def _give(inside: Inside, directory: str, user: str) -> None:
    """An empty directory of ours becomes the user's, inside."""
    done = inside.run(["chown", user, directory], user="root")
    if done.exit_code != 0:
        raise PermissionError(f"{directory} cannot be given to {user}: {done.stderr.decode()}")


def _remove_scratch(scratch: str | None) -> None:
    # Nothing was ever written there: what samples wrote is in their sandbox.
    if scratch is not None:
        with contextlib.suppress(OSError):
            os.rmdir(scratch)


def _left() -> Iterator[tuple[str, str]]:
    """Names and directories of sandboxes that samples left."""
    for info in SandboxClient().list():
        if info["name"].startswith(NAMES):
            yield info["name"], info["directory"]


def _drop_left(name: str | None) -> None:
    for found, directory in list(_left()):
        if name in (None, found):
            Sandbox.open(found).drop(force=True)
            if os.path.basename(directory).startswith(f"fractal-{NAMES}"):
                _remove_scratch(directory)
            print(f"dropped {found}")
