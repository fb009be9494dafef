"""Names for what the calls of this package take, for annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Literal, Protocol

from ._fractal import (
    Archive,
    CommandResult,
    Context,
    GitCommit,
    HostDir,
    Item,
    Text,
    Vfs,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

    _Table: TypeAlias = Mapping[str, "Maker | Text | Data"]

__all__ = [
    "Access",
    "Answer",
    "Data",
    "Kind",
    "Lists",
    "Maker",
    "Names",
    "Path",
    "Reads",
    "Source",
]


class Reads(Protocol):
    """Makes the content of files."""

    def read(self, context: Context, /) -> Data: ...


class Lists(Protocol):
    """Makes the names of directories: one with a slash at its end is a
    directory."""

    def list(self, context: Context, /) -> Names: ...


Path: TypeAlias = "str | bytes | PathLike[str] | PathLike[bytes]"
"""Where something is."""

Data: TypeAlias = "str | Buffer"
"""What is written: text is UTF-8."""

Access: TypeAlias = Literal["hidden", "read_only", "append_only", "writable"]
"""What may be done at a path."""

Kind: TypeAlias = Literal["file", "directory", "symlink"]
"""What stands at a path."""

Names: TypeAlias = "Iterable[str | bytes | Item]"
"""What a directory holds."""

Maker: TypeAlias = "Reads | Lists | Callable[[Context], Data]"
"""What makes the entry at a path of a table."""

Source: TypeAlias = (
    "HostDir | Archive | GitCommit | Vfs | _Table | Reads | Lists"
    " | Callable[[Context], Data | Names]"
)
"""What can be mounted."""

Answer: TypeAlias = "Data | CommandResult | int | None"
"""What a command returns."""
