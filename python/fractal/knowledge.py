"""What was learned: written down, asked for, and looked over.

Records are files that people read, too: ``fractal find`` finds what is written
here. Whose records answer depends on who asks: the local user has those of the
project and notes beside it, a key has those of its tenant.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    When: TypeAlias = datetime | float

__all__ = [
    "FailureGroup",
    "Found",
    "Hit",
    "Learned",
    "Learning",
    "Noted",
    "find",
    "learned",
    "note",
]


@dataclass(frozen=True)
class Noted:
    """What was written, and where."""

    id: str
    """It keeps this, whatever its file is called later."""
    kind: str
    title: str
    root: str
    """The place that it lies in: ``project`` or ``notes``."""
    path: str
    """Where it lies there."""
    file: str | None = field(repr=False)
    """Its file on this machine, for the local user."""


@dataclass(frozen=True)
class Hit:
    """One record that answers a question."""

    key: str
    """What it goes by: its id, or root and path where it has none."""
    kind: str
    title: str
    outcome: str
    tags: Sequence[str]
    written: datetime | None
    snippet: str = field(repr=False)
    """A piece of it, with ``⟦`` and ``⟧`` around words of the question."""
    why: Sequence[str] = field(repr=False)
    """Why it was found, in words."""
    marks: Sequence[str]
    """What no longer holds or was confirmed, in words."""
    score: float
    root: str = field(repr=False)
    path: str = field(repr=False)
    file: str | None = field(repr=False)


@dataclass(frozen=True)
class Found:
    """What answers a question, best first."""

    hits: Sequence[Hit]
    records: int
    """How many records were asked."""
    without: Sequence[str]
    """What could not be used, and why."""

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, at: int) -> Hit:
        return self.hits[at]


@dataclass(frozen=True)
class Learning:
    """One record in a list."""

    key: str
    kind: str
    title: str
    outcome: str
    written: datetime | None
    root: str = field(repr=False)
    path: str = field(repr=False)
    file: str | None = field(repr=False)


@dataclass(frozen=True)
class FailureGroup:
    """Failures that look alike, and what helped."""

    signature: str
    times: int
    last: datetime | None
    failures: Sequence[Learning] = field(repr=False)
    fixed_by: Sequence[Learning]


@dataclass(frozen=True)
class Learned:
    """What was learned in a time."""

    learned: Sequence[Learning]
    """Insights, decisions and patterns, newest first."""
    failures: Sequence[FailureGroup]
    """The most frequent first."""
    passed: int
    """Experiments that passed."""
    failed: int


def note(
    title: str,
    body: str = "",
    directory: str | os.PathLike[str] | None = None,
    **more: Any,
) -> Noted:
    """Writes down what was learned, with the keywords of
    :meth:`fractal.SandboxClient.note`."""
    from .client import SandboxClient

    return SandboxClient().note(title, body, directory, **more)


def find(text: str, directory: str | os.PathLike[str] | None = None, **which: Any) -> Found:
    """Asks what was learned, with the keywords of
    :meth:`fractal.SandboxClient.find`."""
    from .client import SandboxClient

    return SandboxClient().find(text, directory, **which)


def learned(
    since: When | None = None, directory: str | os.PathLike[str] | None = None
) -> Learned:
    """Insights, and failures by what they have in common."""
    from .client import SandboxClient

    return SandboxClient().learned(since, directory)


def _ms(when: When | None) -> int | None:
    """A moment as the engine has it; numbers are seconds since 1970."""
    if isinstance(when, datetime):
        when = when.timestamp()
    return None if when is None else round(when * 1000)


def _relations(
    relations: Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str]],
) -> list[dict[str, str]]:
    if isinstance(relations, Mapping):
        lists = {
            kind: [to] if isinstance(to, str) else to for kind, to in relations.items()
        }
        return [{"type": kind, "to": to} for kind, all in lists.items() for to in all]
    return [{"type": kind, "to": to} for kind, to in relations]


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc)


def _noted(reply: Mapping[str, Any]) -> Noted:
    names = ("kind", "title", "root", "path")
    return Noted(
        id=reply["noted"], file=reply.get("file"), **{name: reply[name] for name in names}
    )


def _learning(told: Mapping[str, Any]) -> Learning:
    return Learning(
        key=told["key"],
        kind=told["kind"],
        title=told["title"],
        outcome=told.get("outcome", ""),
        written=_time(told.get("at_ms")),
        root=told["root"],
        path=told["path"],
        file=told.get("file"),
    )


def _hit(told: Mapping[str, Any]) -> Hit:
    return Hit(
        **vars(_learning(told)),
        tags=tuple(told.get("tags", ())),
        snippet=told["snippet"],
        why=tuple(told["why"]),
        marks=tuple(told.get("marks", ())),
        score=told["score"],
    )


def _found(reply: Mapping[str, Any]) -> Found:
    hits = tuple(_hit(told) for told in reply["hits"])
    return Found(hits, reply["records"], tuple(reply.get("without", ())))


def _learned(reply: Mapping[str, Any]) -> Learned:
    def all_of(told: Iterable[Mapping[str, Any]]) -> tuple[Learning, ...]:
        return tuple(_learning(one) for one in told)

    failures = tuple(
        FailureGroup(
            signature=group["signature"],
            times=group["times"],
            last=_time(group.get("last_ms")),
            failures=all_of(group["failures"]),
            fixed_by=all_of(group["fixed_by"]),
        )
        for group in reply["failures"]
    )
    return Learned(all_of(reply["learned"]), failures, reply["passed"], reply["failed"])
