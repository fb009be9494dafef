"""Several ways to do one thing, each in a sandbox of its own, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sandbox import Sandbox, Words

__all__ = ["Attempt", "Attempts", "CheckResult", "Checks"]

Checks = Mapping[str, str] | Sequence[Mapping[str, Any]]
"""Shell commands by name, or each as the engine takes it."""


@dataclass(frozen=True)
class CheckResult:
    """What one check said."""

    name: str
    result: str
    """``pass``, ``fail``, ``error`` (it could not say) or ``flaky``."""
    required: bool
    exit_code: int
    why: str | None
    output: str = field(repr=False)


@dataclass(frozen=True)
class Attempt:
    """How one way went."""

    name: str
    box: Sandbox | None = field(repr=False)
    """The sandbox that holds its work, unless it never started."""
    outcome: str | None
    exit_code: int | None
    checks: Sequence[CheckResult]
    score: float | None
    usage: Mapping[str, int] = field(repr=False)
    files_changed: int
    lines_changed: int
    rank: int | None
    """Its place, 1 being the best; ``None`` when it is ruled out."""
    why: str
    """Why it stands there, in words."""
    output: str = field(repr=False)


@dataclass(frozen=True)
class Attempts:
    """All of them, best first."""

    attempts: Sequence[Attempt]
    winner: Attempt | None
    """The best one that passes."""
    base: Mapping[str, Any]
    """What they stand on, and what the checks say of it untouched."""
    notes: Sequence[str]

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    def __getitem__(self, name: str) -> Attempt:
        for attempt in self.attempts:
            if attempt.name == name:
                return attempt
        raise KeyError(name)

    def drop(self, *, but: Attempt | None = None) -> None:
        """Forgets them all, except for one."""
        for attempt in self.attempts:
            if attempt.box is not None and attempt is not but:
                attempt.box.drop(force=True)


def asked_checks(checks: Checks | None) -> list[dict[str, Any]]:
    """As the engine takes them: by name, or each with what it asks for."""
    if checks is None:
        return []
    if isinstance(checks, Mapping):
        return [{"name": name, "command": command} for name, command in checks.items()]
    return [dict(check) for check in checks]


def asked_ways(
    ways: Mapping[str, Words] | Sequence[Words], words: Callable[[Words], list[str]]
) -> list[dict[str, Any]]:
    """As the engine takes them; those without names are numbered."""
    if not isinstance(ways, Mapping):
        if isinstance(ways, str):
            raise TypeError("several ways are a mapping of names to commands, or a list")
        ways = {str(number): way for number, way in enumerate(ways, 1)}
    return [{"name": name, "command": words(way)} for name, way in ways.items()]


def attempts(reply: Mapping[str, Any], box: Callable[[str], Sandbox]) -> Attempts:
    """What the engine said."""
    told = [_attempt(report, box) for report in reply["attempts"]]
    winner = next((attempt for attempt in told if attempt.name == reply["winner"]), None)
    return Attempts(told, winner, reply["base"], reply.get("notes", []))


def _attempt(report: Mapping[str, Any], box: Callable[[str], Sandbox]) -> Attempt:
    sandbox = report["sandbox"]
    return Attempt(
        name=report["name"],
        box=None if sandbox is None else box(sandbox),
        outcome=report["outcome"],
        exit_code=report["exit"],
        checks=[_check(check) for check in report["checks"]],
        score=report["score"],
        usage=report["usage"],
        files_changed=report["files_changed"],
        lines_changed=report["lines_changed"],
        rank=report["rank"],
        why=report["why"],
        output=report.get("output", ""),
    )


def _check(report: Mapping[str, Any]) -> CheckResult:
    return CheckResult(
        name=report["name"],
        result=report["result"],
        required=report["required"],
        exit_code=report["exit"],
        why=report.get("why"),
        output=report.get("output", ""),
    )
