"""Copies of the real machine in which real programs run.

Everything here is an action of the engine that the command line uses too, in
the same state directory: ``fractal list`` shows what is made here. Whether the
engine is in this process or behind a server, a :class:`fractal.SandboxClient`
knows; a sandbox does the same with either.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pathlib
import posixpath
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._commands import Command as Command
from ._commands import Commands
from ._connection import Connection, InProcess, environment
from ._errors import code_of
from ._fractal import Change, Vfs
from ._sandbox_files import Files

if TYPE_CHECKING:
    from .attempts import Attempts, Checks
    from .client import SandboxClient
    from .types import Data

Words = str | Sequence[str]
World = Literal["native", "virtual"]


@dataclass(frozen=True)
class RunResult:
    """What a run left behind. One that failed or met a limit is a result too."""

    stdout: str
    stderr: str
    exit_code: int
    outcome: str
    """``exited``, ``signalled``, ``timeout``, ``memory``, ``disk`` or ``output``."""
    truncated: bool
    tier: str
    """How strongly it was fenced in: ``clone``, ``masked``, ``rootless``,
    ``copied`` or ``virtual``."""
    usage: Mapping[str, int]
    changes: Sequence[Change] = field(repr=False)

    @property
    def error(self) -> str | None:
        """Why it did not simply return with 0, in a few words."""
        if self.outcome != "exited":
            return f"ended by {_ENDS.get(self.outcome, self.outcome)}"
        return f"exit status {self.exit_code}" if self.exit_code else None


_ENDS = {
    "signalled": "a signal",
    "timeout": "its time limit",
    "memory": "its memory limit",
    "disk": "its disk limit",
    "output": "its output limit",
}


@dataclass(frozen=True)
class Promotion:
    """What became of bringing a sandbox's changes to where it came from."""

    verdict: str
    """``applied``, ``made``, ``nothing``, ``planned``, ``conflict``, ``gate``
    or ``denied``; only ``applied`` changed anything."""
    stage: str
    applied: Sequence[str]
    conflicts: Sequence[str]
    undo_id: str | None
    notes: Sequence[str]
    reply: Mapping[str, Any] = field(repr=False)
    """All that the engine said."""


def _words(command: Words) -> list[str]:
    if isinstance(command, str):
        return ["sh", "-c", command]
    return [os.fspath(word) for word in command]


def _changes(listed: Iterable[Mapping[str, Any]]) -> list[Change]:
    return [
        Change(
            change["path"],
            change["kind"],
            change["entry"],
            change["mode"],
            change["size_bytes"],
            change.get("autorun", False),
        )
        for change in listed
    ]


def _result(reply: Mapping[str, Any]) -> RunResult:
    return RunResult(
        stdout=reply["stdout"],
        stderr=reply["stderr"],
        exit_code=reply["exit"],
        outcome=reply["outcome"],
        truncated=reply["truncated"],
        tier=reply["isolation"]["tier"],
        usage=reply["usage"],
        changes=_changes(reply["changes"]),
    )


def _promotion(reply: Mapping[str, Any]) -> Promotion:
    return Promotion(
        verdict=reply["verdict"],
        stage=reply["stage"],
        applied=[path["path"] for path in reply["applied"]],
        conflicts=[f"{clash['path']}: {clash['why']}" for clash in reply["conflicts"]],
        undo_id=reply["undo"],
        notes=reply.get("notes", []),
        reply=reply,
    )


def _bounds(
    memory: int | None,
    cpus: float | None,
    pids: int | None,
    disk: int | None,
    timeout: float | None,
    output: int | None,
) -> dict[str, Any]:
    limits = {
        "memory_bytes": memory,
        "cpu_milli": None if cpus is None else round(cpus * 1000),
        "pids": pids,
        "disk_bytes": disk,
        "time_ms": None if timeout is None else round(timeout * 1000),
        "output_bytes": output,
    }
    for name, value in limits.items():
        if value is not None and value <= 0:
            raise ValueError(f"a limit is above zero: {name} is {value}")
    return {"limits": {name: value for name, value in limits.items() if value is not None}}


def _network(rule: str | Iterable[str] | None) -> Any:
    """``"none"``, ``"host"``, or the hosts that can be reached."""
    if rule is None or rule in ("none", "host"):
        return rule
    if isinstance(rule, str):
        raise ValueError(f"{rule!r} is no network: use 'none', 'host' or a list of hosts")
    return {"allow": sorted(rule)}


def _client(client: SandboxClient | None) -> SandboxClient:
    from .client import SandboxClient

    return SandboxClient() if client is None else client


class Sandbox:
    """A copy-on-write clone of the machine, with a name.

    Use :meth:`clone`, :meth:`create` or :meth:`open` to get one. With ``with``
    it is dropped at the end.
    """

    def __init__(
        self,
        name: str,
        directory: str | os.PathLike[str],
        *,
        connection: Connection | None = None,
        template: str = "clone",
        envs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.directory = os.path.realpath(directory) if connection is None else str(directory)
        self.commands = Commands(self)
        """Programs in it, also such that go on beside you."""
        self.files = Files(self)
        """Its files."""
        self._connection = connection or InProcess(self.directory)
        self._template = template
        self._envs = dict(envs or {})
        self._inside: str | None = None

    @property
    def sandbox_id(self) -> str:
        """Its name."""
        return self.name

    @property
    def id(self) -> str:
        """Its name."""
        return self.name

    @classmethod
    def clone(
        cls,
        directory: str | os.PathLike[str] | None = None,
        name: str | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> Sandbox:
        """A clone of the machine for work in a directory."""
        return cls.create(directory, name, client=client)

    @classmethod
    def create(
        cls,
        directory: str | os.PathLike[str] | None = None,
        name: str | None = None,
        *,
        client: SandboxClient | None = None,
        world: World | None = None,
        template: str | None = None,
        base: Literal["live", "frozen"] = "live",
        network: str | Iterable[str] | None = None,
        memory: int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        disk: int | None = None,
        timeout: float | None = None,
        output: int | None = None,
        ttl: float | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> Sandbox:
        """A new sandbox whose bounds hold for everything that runs in it.

        It works in the current directory, or in a server's own. ``world="virtual"``
        makes one in which scripts run in memory and see the directory alone.
        ``base="frozen"`` keeps the directory as it is now. Sizes are bytes, times
        seconds; ``timeout`` is for each run, and after ``ttl`` a sandbox that is
        forgotten expires. ``envs`` are for all that is run through this object.
        """
        connection = _client(client).connection(directory)
        if connection.directory is not None and not pathlib.Path(connection.directory).is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "there is no directory to work in", connection.directory
            )
        if world == "virtual" and template is None:
            template = "virtual"
        run = {
            "command": ["true"],
            "name": name or f"py-{secrets.token_hex(5)}",
            "world": world,
            "template": template,
            "base": base,
            "network": _network(network),
            "ask": _bounds(memory, cpus, pids, disk, timeout, output),
            "ttl_ms": None if ttl is None else round(ttl * 1000),
        }
        return _box(connection.make(run), connection, envs)

    @classmethod
    def open(
        cls,
        name: str,
        directory: str | os.PathLike[str] | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> Sandbox:
        """A sandbox that exists."""
        connection = _client(client).connection(directory)
        return _box(connection.apply("show", sandbox=name), connection)

    @classmethod
    def connect(
        cls,
        name: str,
        directory: str | os.PathLike[str] | None = None,
        *,
        client: SandboxClient | None = None,
    ) -> Sandbox:
        """The same as :meth:`open`."""
        return cls.open(name, directory, client=client)

    @classmethod
    def attempts(
        cls,
        ways: Mapping[str, Words] | Sequence[Words],
        directory: str | os.PathLike[str] | None = None,
        *,
        client: SandboxClient | None = None,
        **how: Any,
    ) -> Attempts:
        """Tries several ways side by side, each in a fork of its own, checks and
        ranks them; with the keywords of :meth:`fractal.SandboxClient.attempts`."""
        return _client(client).attempts(ways, directory, **how)

    def run(
        self,
        command: Words,
        *,
        stdin: Data | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        world: World | None = None,
        network: str | Iterable[str] | None = None,
        memory: int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        disk: int | None = None,
        timeout: float | None = None,
        output: int | None = None,
    ) -> RunResult:
        """Runs a program, or a script given as one string.

        It can be given less than the sandbox may, never more. Ctrl-C ends it.
        """
        bounds = _bounds(memory, cpus, pids, disk, timeout, output)
        run = self._run(command, env, cwd, world, network, bounds)
        return _result(self._connection.run(run, stdin))

    def _run(
        self,
        command: Words,
        env: Mapping[str, str] | None,
        cwd: str | None,
        world: World | None,
        network: str | Iterable[str] | None,
        bounds: dict[str, Any],
    ) -> dict[str, Any]:
        return {
            "command": _words(command),
            "sandbox": self.name,
            "env": {**self._envs, **(env or {})},
            "cwd": cwd,
            "world": world,
            "network": _network(network),
            "ask": bounds,
        }

    def _asked(
        self,
        command: Words,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        world: World | None = None,
        network: str | Iterable[str] | None = None,
        memory: int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        disk: int | None = None,
        timeout: float | None = None,
        output: int | None = None,
    ) -> dict[str, Any]:
        """What :meth:`run` asks for, with the same keywords."""
        bounds = _bounds(memory, cpus, pids, disk, timeout, output)
        return self._run(command, env, cwd, world, network, bounds)

    def _place(self, path: str) -> str:
        """A path from where its programs work."""
        if path.startswith("/"):
            return path
        if self._inside is None:
            own = self._template in ("clone", "virtual")
            self._inside = self.directory if own else self.run("pwd").stdout.rstrip("\n")
        return posixpath.join(self._inside, path)

    def _finish(self, command: Command, reply: dict[str, Any]) -> RunResult:
        heard = command._out, command._err
        reply["stdout"], reply["stderr"] = (output.text() for output in heard)
        reply["truncated"] |= any(output.truncated for output in heard)
        return _result(reply)

    def stop(self) -> None:
        """Ends what runs in it, without waiting; whoever waits for the run is
        told how it ended."""
        self._connection.stop(self.name)

    def pause(self) -> None:
        """Ends what runs in it and keeps its files; processes are not kept."""
        self.stop()

    def resume(self) -> Sandbox:
        """Nothing has to be done to go on; what ran has to be started again."""
        self.info()
        return self

    def is_running(self) -> bool:
        """Whether it is still there to run something in."""
        try:
            self.info()
        except OSError as error:
            if code_of(error) != "not_found":
                raise
            return False
        return True

    def edit(self, work: Callable[[Vfs], object], *, why: str = "edit") -> RunResult:
        """Has a function work on the sandbox's files, in memory.

        What it changed is in the sandbox when it returns; ``why`` stands in
        the journal. Not through a server.
        """
        run = {"command": ["python", why], "sandbox": self.name, "world": "virtual"}
        engine = self._in_process("edit").engine
        return _result(json.loads(engine.edit(json.dumps(run), environment(), work)))

    def view(self) -> Vfs:
        """What the sandbox shows now: its changes and its directory.

        What is written into the view stays there; see :meth:`edit`. Not through
        a server.
        """
        return self._in_process("view").engine.view(self.name)

    def _in_process(self, verb: str) -> InProcess:
        if isinstance(self._connection, InProcess):
            return self._connection
        raise io.UnsupportedOperation(
            f"`{verb}` is for sandboxes of this process: use `files` and `run`"
        )

    def changes(self, since: str | None = None) -> list[Change]:
        """What differs from what it stands on, or from a snapshot of it."""
        return _changes(self._connection.apply("diff", sandbox=self.name, since=since)["changes"])

    def diff(self, since: str | None = None, *, everything: bool = False) -> str:
        """The same as a patch for ``git apply`` in its directory; with
        ``everything`` from the root of the machine."""
        return self._connection.patch(self.name, since, everything).decode(errors="replace")

    def fork(self, name: str | None = None) -> Sandbox:
        """A child that sees exactly what this one sees now."""
        child = self._connection.apply("fork", sandbox=self.name, name=name)
        return _box(child, self._connection, self._envs)

    def snapshot(self, name: str | None = None) -> str:
        """Names this state; returns the name, for :meth:`rollback`."""
        made = self._connection.apply("snapshot", sandbox=self.name, name=name)["name"]
        assert isinstance(made, str)
        return made

    def create_snapshot(self, name: str | None = None) -> str:
        """The same as :meth:`snapshot`."""
        return self.snapshot(name)

    def snapshots(self) -> list[str]:
        """The names of its snapshots, oldest first."""
        return [snapshot["name"] for snapshot in reversed(self.info()["snapshots"])]

    def rollback(self, to: str) -> None:
        """Goes back to a snapshot; what runs is ended first."""
        self._connection.apply("rollback", sandbox=self.name, to=to)

    def compare(
        self, *others: Sandbox, checks: Checks | None = None, score: str | None = None
    ) -> Attempts:
        """This one and others side by side: what each changed, which checks it
        passes, in their order."""
        from .attempts import asked_checks, attempts

        boxes = {box.name: box for box in (self, *others)}
        reply = self._connection.apply(
            "compare", sandboxes=list(boxes), checks=asked_checks(checks), score=score
        )
        return attempts(reply, lambda name: boxes[name])

    def promote(
        self,
        *,
        to: str | None = None,
        only: Iterable[str] = (),
        ours: Iterable[str] = (),
        theirs: Iterable[str] = (),
        dry_run: bool = False,
        allow_autorun: bool = False,
        ignored: bool = False,
        outside: bool = False,
    ) -> Promotion:
        """Brings the changes into the directory, behind the project's checks.

        A conflict or a check that does not pass is no exception: look at
        ``verdict``. :func:`undo` takes a promotion back.
        """
        reply = self._connection.apply(
            "promote",
            sandbox=self.name,
            to=to,
            only=list(only),
            ours=list(ours),
            theirs=list(theirs),
            dry_run=dry_run,
            allow_autorun=allow_autorun,
            ignored=ignored,
            outside=outside,
        )
        return _promotion(reply)

    def undo(self, promotion: Promotion | None = None) -> Promotion:
        """Takes a promotion back, the latest one of its directory by default."""
        wanted = None if promotion is None else promotion.undo_id
        return _promotion(self._connection.apply("undo", promotion=wanted))

    def info(self) -> Mapping[str, Any]:
        """What is known about it: parent, policy, snapshots, children, size."""
        return self._connection.apply("show", sandbox=self.name)

    def drop(self, *, force: bool = False) -> None:
        """Forgets it. Dropping twice is no error."""
        self._connection.apply("drop", sandboxes=[self.name], force=force)

    def kill(self) -> bool:
        """Ends what runs in it and forgets it; whether it was there."""
        was_there = self.is_running()
        self.drop(force=True)
        return was_there

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop(force=True)

    def __repr__(self) -> str:
        return f"<fractal.Sandbox {self.name!r}>"


def _box(
    info: Mapping[str, Any], connection: Connection, envs: Mapping[str, str] | None = None
) -> Sandbox:
    if isinstance(connection, InProcess) and connection.directory != info["directory"]:
        connection = InProcess(info["directory"], connection.state, connection.settings)
    return Sandbox(
        info["name"], info["directory"], connection=connection, template=info["template"], envs=envs
    )


def sandboxes() -> list[str]:
    """The names of all sandboxes, oldest first."""
    return [info["name"] for info in _client(None).list()]


def undo(
    promotion: Promotion | str | None = None, directory: str | os.PathLike[str] | None = None
) -> Promotion:
    """Takes a promotion back, the latest one of a directory by default."""
    return _client(None).undo(promotion, directory)
