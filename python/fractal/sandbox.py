"""Copies of the real machine in which real programs run.

Everything here is an action of the engine that the command line uses too, in
the same state directory: ``fractal list`` shows what is made here.
"""

from __future__ import annotations

import json
import os
import pathlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._fractal import Change, Engine, Vfs

if TYPE_CHECKING:
    from .types import Data

Command = str | Sequence[str]
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


def home() -> str:
    """The state directory: ``FRACTAL_HOME``, or the user's own."""
    named = os.environ.get("FRACTAL_HOME")
    if named:
        return os.path.abspath(named)
    return os.path.join(_user_directory("XDG_DATA_HOME", ".local/share"), "fractal")


def _user_directory(variable: str, below_home: str) -> str:
    named = os.environ.get(variable, "")
    if os.path.isabs(named):
        return named
    return os.path.join(os.path.expanduser("~"), below_home)


def _environment() -> list[tuple[bytes, bytes]]:
    return list(os.environb.items())


# State directories that this process holds open, the latest last.
_open: dict[tuple[str, str], Engine] = {}
_OPEN_MAX = 16
# Those of the processes that this one was forked from. Theirs alone is the
# right to close them.
_inherited: list[dict[tuple[str, str], Engine]] = []


def _forget_parents() -> None:
    global _open
    _inherited.append(_open)
    _open = {}


os.register_at_fork(after_in_child=_forget_parents)


def _engine(directory: str | os.PathLike[str], state: str | None = None) -> Engine:
    # The kernel's own name of it, as the command line has it.
    where = (state or home(), os.path.realpath(directory))
    engine = _open.pop(where, None)
    if engine is None:
        config = _user_directory("XDG_CONFIG_HOME", ".config")
        settings = os.path.join(config, "fractal/config.toml")
        engine = Engine(*where, settings=settings)
    _open[where] = engine
    for oldest in list(_open)[:-_OPEN_MAX]:
        _open.pop(oldest, None)
    return engine


def _apply(engine: Engine, action: str, **fields: Any) -> dict[str, Any]:
    asked = json.dumps({"action": action, **fields})
    reply = json.loads(engine.apply(asked, _environment()))
    assert isinstance(reply, dict)
    return reply


def _words(command: Command) -> list[str]:
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


def _result(text: str) -> RunResult:
    reply = json.loads(text)
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


class Sandbox:
    """A copy-on-write clone of the machine, with a name.

    Use :meth:`clone`, :meth:`create` or :meth:`open` to get one. With ``with``
    it is dropped at the end.
    """

    def __init__(self, name: str, directory: str | os.PathLike[str]) -> None:
        self.name = name
        self.directory = os.path.realpath(directory)
        self._home = home()

    @property
    def _engine(self) -> Engine:
        return _engine(self.directory, self._home)

    @classmethod
    def clone(cls, directory: str | os.PathLike[str] = ".", name: str | None = None) -> Sandbox:
        """A clone of the machine for work in a directory."""
        return cls.create(directory, name)

    @classmethod
    def create(
        cls,
        directory: str | os.PathLike[str] = ".",
        name: str | None = None,
        *,
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
    ) -> Sandbox:
        """A new sandbox whose bounds hold for everything that runs in it.

        ``world="virtual"`` makes one in which scripts run in memory and see the
        directory alone. ``base="frozen"`` keeps the directory as it is now.
        Sizes are bytes, times seconds.
        """
        if not pathlib.Path(directory).is_dir():
            raise NotADirectoryError(f"{os.fspath(directory)} is no directory to work in")
        if world == "virtual" and template is None:
            template = "virtual"
        name = name or f"py-{secrets.token_hex(5)}"
        run = {
            "command": ["true"],
            "name": name,
            "world": world,
            "template": template,
            "base": base,
            "network": _network(network),
            "ask": _bounds(memory, cpus, pids, disk, timeout, output),
        }
        _engine(directory).run(json.dumps(run), _environment(), None)
        return cls(name, directory)

    @classmethod
    def open(cls, name: str, directory: str | os.PathLike[str] = ".") -> Sandbox:
        """A sandbox that exists."""
        shown = _apply(_engine(directory), "show", sandbox=name)
        return cls(shown["name"], shown["directory"])

    def run(
        self,
        command: Command,
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
        run = {
            "command": _words(command),
            "sandbox": self.name,
            "env": dict(env or {}),
            "cwd": cwd,
            "world": world,
            "network": _network(network),
            "ask": _bounds(memory, cpus, pids, disk, timeout, output),
        }
        return _result(self._engine.run(json.dumps(run), _environment(), stdin))

    def stop(self) -> None:
        """Ends what runs in it, without waiting; whoever waits for the run is
        told how it ended."""
        self._engine.stop(self.name)

    def edit(self, work: Callable[[Vfs], object], *, why: str = "edit") -> RunResult:
        """Has a function work on the sandbox's files, in memory.

        What it changed is in the sandbox when it returns; ``why`` stands in
        the journal.
        """
        run = {"command": ["python", why], "sandbox": self.name, "world": "virtual"}
        return _result(self._engine.edit(json.dumps(run), _environment(), work))

    def view(self) -> Vfs:
        """What the sandbox shows now: its changes and its directory.

        What is written into the view stays there; see :meth:`edit`.
        """
        return self._engine.view(self.name)

    def changes(self, since: str | None = None) -> list[Change]:
        """What differs from what it stands on, or from a snapshot of it."""
        return _changes(_apply(self._engine, "diff", sandbox=self.name, since=since)["changes"])

    def diff(self, since: str | None = None, *, everything: bool = False) -> str:
        """The same as a patch for ``git apply`` in its directory; with
        ``everything`` from the root of the machine."""
        return self._engine.patch(self.name, since, everything).decode(errors="replace")

    def fork(self, name: str | None = None) -> Sandbox:
        """A child that sees exactly what this one sees now."""
        child = _apply(self._engine, "fork", sandbox=self.name, name=name)
        return Sandbox(child["name"], child["directory"])

    def snapshot(self, name: str | None = None) -> str:
        """Names this state; returns the name, for :meth:`rollback`."""
        made = _apply(self._engine, "snapshot", sandbox=self.name, name=name)["name"]
        assert isinstance(made, str)
        return made

    def rollback(self, to: str) -> None:
        """Goes back to a snapshot; what runs is ended first."""
        _apply(self._engine, "rollback", sandbox=self.name, to=to)

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
        reply = _apply(
            self._engine,
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
        return _promotion(_apply(self._engine, "undo", promotion=wanted))

    def info(self) -> Mapping[str, Any]:
        """What is known about it: parent, policy, snapshots, children, size."""
        return _apply(self._engine, "show", sandbox=self.name)

    def drop(self, *, force: bool = False) -> None:
        """Forgets it. Dropping twice is no error."""
        _apply(self._engine, "drop", sandboxes=[self.name], force=force)

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


def sandboxes() -> list[str]:
    """The names of all sandboxes, oldest first."""
    reply = _apply(_engine("."), "list")
    return [sandbox["name"] for sandbox in reply["sandboxes"]]


def undo(promotion: Promotion | str | None = None, directory: str | os.PathLike[str] = ".") -> Promotion:
    """Takes a promotion back, the latest one of a directory by default."""
    wanted = promotion.undo_id if isinstance(promotion, Promotion) else promotion
    return _promotion(_apply(_engine(directory), "undo", promotion=wanted))
