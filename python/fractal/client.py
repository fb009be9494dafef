"""A client of fractal: where sandboxes are made, with which tools and settings.

Without an address the engine works in this process; with one, a server does.
The classes here are the way in: :class:`SandboxClient`, the
:class:`~fractal.ToolRegistry`, and :class:`ConfigManager` for what is set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._connection import Connection, InProcess, engine, home, user_settings
from ._http import Http
from ._remote import Remote
from .attempts import Attempts, Checks, asked_checks, asked_ways, attempts
from .knowledge import Found, Learned, Noted, _found, _learned, _ms, _noted, _relations
from .sandbox import Promotion, Sandbox, Words, _bounds, _box, _network, _promotion, _words
from .tools import ToolRegistry

if TYPE_CHECKING:
    from .knowledge import When

__all__ = ["ConfigManager", "SandboxClient", "Setting", "ToolRegistry"]

Directory = str | os.PathLike[str]


class SandboxClient:
    """Makes and finds sandboxes, in this process or through a server.

    ``url`` is ``http://HOST:PORT``, ``https://…`` or ``unix:///PATH`` and by
    default what ``FRACTAL_URL`` says; ``key`` is by default ``FRACTAL_KEY``.
    With neither the engine works in this process, on the state directory
    ``home``, with the user's own file of settings or ``settings`` in its place. A
    program that was given a door works through it.

    >>> SandboxClient().url is None
    True
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        home: Directory | None = None,
        settings: Directory | None = None,
        timeout: float | None = None,
        ca_file: Directory | None = None,
    ) -> None:
        if url is None and home is None:
            url = os.environ.get("FRACTAL_URL") or None
            door = os.environ.get("FRACTAL_DOOR")
            if url is None and door:
                url = f"unix://{door}"
        elif url is not None and home is not None:
            raise ValueError("a server has its own state directory: give `url` or `home`")
        if url is not None and settings is not None:
            raise ValueError("a server has its own settings: give `url` or `settings`")
        self.url = url
        self._settings = None if settings is None else os.path.abspath(settings)
        self._home = None if home is None else os.path.abspath(home)
        self._http: Http | None = None
        if url is not None:
            key = key or os.environ.get("FRACTAL_KEY") or None
            self._http = Http(url, key, timeout=timeout, ca_file=ca_file)

    def connection(self, directory: Directory | None = None) -> Connection:
        """The way to the engine for work in a directory; the current one by
        default, and whoever comes with a key works in the server's own."""
        if self._http is None:
            return InProcess("." if directory is None else directory, self._home, self._settings)
        return Remote(self._http, directory)

    def create(
        self, directory: Directory | None = None, name: str | None = None, **bounds: Any
    ) -> Sandbox:
        """A new sandbox, with the keywords of :meth:`fractal.Sandbox.create`."""
        return Sandbox.create(directory, name, client=self, **bounds)

    def open(self, name: str, directory: Directory | None = None) -> Sandbox:
        """A sandbox that exists."""
        return Sandbox.open(name, directory, client=self)

    def list(self) -> list[Mapping[str, Any]]:
        """What is known of all sandboxes, oldest first."""
        listed: list[Mapping[str, Any]] = self.connection().apply("list")["sandboxes"]
        return listed

    def attempts(
        self,
        ways: Mapping[str, Words] | Sequence[Words],
        directory: Directory | None = None,
        *,
        checks: Checks | None = None,
        score: str | None = None,
        rank: str | None = None,
        repeat: int | None = None,
        stop_first: bool = False,
        budget: float | None = None,
        jobs: int | None = None,
        base: Literal["live", "frozen"] = "live",
        network: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        template: str | None = None,
        memory: int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        disk: int | None = None,
        timeout: float | None = None,
        output: int | None = None,
    ) -> Attempts:
        """Tries several ways side by side, each in a fork of its own, runs the
        checks in each and ranks them.

        ``checks`` are shell commands by name; ``score`` is one that prints a
        number. ``budget`` is the time for everything together.
        """
        connection = self.connection(directory)
        run = {
            "command": [],
            "env": dict(env or {}),
            "template": template,
            "network": _network(network),
            "ask": _bounds(memory, cpus, pids, disk, timeout, output),
        }
        reply = connection.apply(
            "try",
            attempts=asked_ways(ways, _words),
            checks=asked_checks(checks),
            score=score,
            rank=_rank(rank),
            repeat=repeat,
            stop_first=stop_first,
            budget_ms=None if budget is None else round(budget * 1000),
            jobs=jobs,
            base=base,
            run=run,
        )

        def box(name: str) -> Sandbox:
            return _box(connection.apply("show", sandbox=name), connection, env)

        return attempts(reply, box)

    def undo(
        self, promotion: Promotion | str | None = None, directory: Directory | None = None
    ) -> Promotion:
        """Takes a promotion back, the latest one of a directory by default."""
        wanted = promotion.undo_id if isinstance(promotion, Promotion) else promotion
        return _promotion(self.connection(directory).apply("undo", promotion=wanted))

    def note(
        self,
        title: str,
        body: str = "",
        directory: Directory | None = None,
        *,
        kind: str | None = None,
        tags: Iterable[str] = (),
        outcome: str | None = None,
        experiment: str | None = None,
        sandbox: Sandbox | str | None = None,
        relations: Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str]] = (),
        verified: bool = False,
    ) -> Noted:
        """Writes down what was learned.

        ``kind`` is ``insight`` (the default), ``failure``, ``decision``,
        ``pattern`` or ``problem``; ``relations`` are words such as ``fixes`` and
        the ids of records, or ``file:…``, ``package:…``.
        """
        reply = self.connection(directory).apply(
            "note",
            title=title,
            body=body,
            kind=kind,
            tags=list(tags),
            outcome=outcome,
            experiment=experiment,
            sandbox=sandbox.name if isinstance(sandbox, Sandbox) else sandbox,
            relations=_relations(relations),
            verified=verified,
        )
        return _noted(reply)

    def find(
        self,
        text: str,
        directory: Directory | None = None,
        *,
        kinds: Iterable[str] = (),
        tags: Iterable[str] = (),
        outcome: str | None = None,
        sandbox: Sandbox | str | None = None,
        since: When | None = None,
        until: When | None = None,
        limit: int | None = None,
    ) -> Found:
        """Asks what was learned, in words.

        Records have all of ``tags`` and one of ``kinds``; a moment without a
        date is in seconds since 1970.
        """
        reply = self.connection(directory).apply(
            "find",
            text=text,
            kinds=list(kinds),
            tags=list(tags),
            outcome=outcome,
            sandbox=sandbox.name if isinstance(sandbox, Sandbox) else sandbox,
            since_ms=_ms(since),
            until_ms=_ms(until),
            limit=limit,
        )
        return _found(reply)

    def learned(
        self, since: When | None = None, directory: Directory | None = None
    ) -> Learned:
        """Insights, and failures by what they have in common."""
        return _learned(self.connection(directory).apply("learned", since_ms=_ms(since)))

    def tools(self, directory: Directory | None = None) -> ToolRegistry:
        """The tools of a directory, which agents may be offered."""
        return ToolRegistry(directory, client=self)

    def close(self) -> None:
        """Closes connections; sandboxes stay."""
        if self._http is not None:
            self._http.close()

    def __enter__(self) -> SandboxClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<fractal.SandboxClient {self.url or 'in process'}>"


def _rank(rank: str | None) -> Any:
    if rank in (None, "copeland", "weighted", "lexicographic"):
        return rank
    return {"command": rank}


@dataclass(frozen=True)
class Setting:
    """One thing that is set."""

    name: str
    value: str
    origin: str
    """The file that says so, or ``default``."""


class ConfigManager(Mapping[str, str]):
    """What is set for work in a directory, and by which file.

    A project's ``fractal.toml`` speaks before the user's own file, and that
    before the defaults. They are read anew whenever something is asked; a
    file that does not read is a ``ValueError`` with its line.

    >>> ConfigManager("/")["limits.pids"]
    '4096'
    """

    def __init__(self, directory: Directory = ".", *, home: Directory | None = None) -> None:
        self.directory = os.path.realpath(directory)
        self._home = None if home is None else os.path.abspath(home)

    @property
    def home(self) -> str:
        """The state directory."""
        return self._home or home()

    @property
    def user_file(self) -> str:
        """Where the user's own settings are, or would be."""
        return user_settings()

    @property
    def project_file(self) -> str | None:
        """The nearest ``fractal.toml``, in the directory or above."""
        at = self.directory
        while True:
            found = os.path.join(at, "fractal.toml")
            if os.path.exists(found):
                return found
            if at == os.path.dirname(at):
                return None
            at = os.path.dirname(at)

    def settings(self) -> list[Setting]:
        """Every setting with its origin. Some names have several values."""
        told = json.loads(engine(self.directory, self._home).settings())
        return [Setting(**setting) for setting in told]

    def __getitem__(self, name: str) -> str:
        values = [setting.value for setting in self.settings() if setting.name == name]
        if not values:
            raise KeyError(name)
        return " ".join(values)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(setting.name for setting in self.settings()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def origin(self, name: str) -> str:
        """The file that says what a name is set to, or ``default``."""
        for setting in self.settings():
            if setting.name == name:
                return setting.origin
        raise KeyError(name)

    def client(self) -> SandboxClient:
        """A client on the same state directory."""
        return SandboxClient(home=self.home)
