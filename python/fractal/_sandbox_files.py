"""The files of a sandbox, as programs in it see them.

Contents go straight into and out of its layers where they can. What only
programs can reach (the rest of the machine, mounts) is read and written by
one, and so is everything that is asked about names: what a program would be
told is the truth here.
"""

from __future__ import annotations

import base64
import builtins
import errno
import io
import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, TypedDict, cast, overload

from ._errors import code_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .sandbox import Sandbox
    from .types import Data

__all__ = ["EntryInfo", "Files", "WriteEntry"]

PIECE_BYTES = 256 << 10
"""What a program is given at once to write."""


class WriteEntry(TypedDict):
    """One of several files to write."""

    path: str
    data: Data


@dataclass(frozen=True)
class EntryInfo:
    """What stands at a path."""

    name: str
    path: str
    type: Literal["file", "dir", "symlink", "other"]
    size: int
    mode: int
    """Permission bits."""
    modified: float
    """Seconds since 1970."""
    target: str | None = None
    """Where a symlink leads."""


class Files:
    """Reads and writes files of a sandbox. A path that is not absolute is seen
    from where programs in the sandbox work."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    @overload
    def read(self, path: str, format: Literal["text"] = "text") -> str: ...
    @overload
    def read(self, path: str, format: Literal["bytes"]) -> bytes: ...
    def read(self, path: str, format: Literal["text", "bytes"] = "text") -> str | bytes:
        """The content of a file; text is UTF-8."""
        if format not in ("text", "bytes"):
            raise ValueError(f"{format!r} is no format: use 'text' or 'bytes'")
        try:
            with self.open(path) as file:
                data = file.read()
        except (OSError, ValueError) as error:
            if not _is_for_programs(error):
                raise
            data = self._read_by_program(path)
        return data.decode() if format == "text" else data

    def open(self, path: str) -> IO[bytes]:
        """A file of the project, or one that was made in the sandbox, for
        reading piece by piece; as it is now, whatever is written later."""
        return self._box._connection.open_file(self._box.name, self._place(path))

    def write(self, path: str, data: Data | IO[bytes], *, mode: int | None = None) -> None:
        """Makes a file or replaces what it holds; directories that are missing
        are made. ``mode`` are its permission bits."""
        executable = mode is not None and mode & 0o111 != 0
        content: bytes | IO[bytes]
        if isinstance(data, str):
            content = data.encode()
        elif isinstance(data, io.IOBase):
            content = cast("IO[bytes]", data)
        else:
            content = bytes(cast("Buffer", data))
        by_engine: tuple[int, ...] = (0o644, 0o755)
        if not self._put(path, content, executable):
            self._write_by_program(path, content)
            by_engine = ()
        if mode is not None and mode not in by_engine:
            self._do('chmod -- "$2" "$1"', path, f"{mode & 0o7777:o}")

    def _put(self, path: str, content: bytes | IO[bytes], executable: bool) -> bool:
        """Has the engine write; whether it did."""
        if self._box.commands.list():
            # It would wait for them, and then refuse.
            return False
        try:
            self._box._connection.put_file(self._box.name, self._place(path), content, executable)
        except (OSError, ValueError) as error:
            if code_of(error) != "busy" and not _is_for_programs(error):
                raise
            return False
        return True

    def write_files(self, files: Iterable[WriteEntry | Mapping[str, Any]]) -> None:
        """Writes several, in their order."""
        for file in files:
            self.write(file["path"], file["data"])

    def list(self, path: str = ".", *, depth: int = 1) -> builtins.list[EntryInfo]:
        """What a directory holds, by name; with a greater ``depth`` also what
        the directories in it hold. Links are not followed."""
        if depth < 1:
            raise ValueError(f"a depth is above zero: it is {depth}")
        script = (
            '[ -e "$1" ] || exit 102; [ -d "$1" ] || exit 120; cd -- "$1" || exit 113; '
            r"""printf '%s\0' "$PWD"; """
            'exec find . -mindepth 1 -maxdepth "$2" '
            r"-printf '%y %s %m %T@ %P\0%l\0'"
        )
        where, *cells = self._do(script, path, str(depth)).split("\0")[:-1]
        pairs = zip(cells[::2], cells[1::2], strict=True)
        entries = [_entry(where, told, target) for told, target in pairs]
        return sorted(entries, key=lambda entry: entry.path)

    def exists(self, path: str) -> bool:
        """Whether something stands there; a link that leads nowhere does not."""
        return self._done('[ -e "$1" ]', path) == 0

    def get_info(self, path: str) -> EntryInfo:
        """What stands at a path. A link is what is told of, not where it leads."""
        script = (
            '[ -e "$1" ] || [ -L "$1" ] || exit 102; '
            r"""exec find "$1" -maxdepth 0 -printf '%y %s %m %T@ %P\0%l\0'"""
        )
        told, target, _ = self._do(script, self._place(path)).split("\0")
        above, name = posixpath.split(posixpath.normpath(self._place(path)))
        return _entry(above, told + name, target)

    def make_dir(self, path: str) -> bool:
        """Makes a directory, and those above it; false when it was there."""
        script = '[ -d "$1" ] && exit 1; [ -e "$1" ] && exit 117; mkdir -p -- "$1" || exit 113'
        return self._done(script, path, expect=(0, 1)) == 0

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        script = '[ -e "$1" ] || [ -L "$1" ] || exit 102; rm -rf -- "$1" || exit 113'
        self._do(script, path)

    def rename(self, old: str, new: str) -> EntryInfo:
        """Gives a file or directory another path."""
        script = (
            '[ -e "$1" ] || [ -L "$1" ] || exit 102; [ -d "$2" ] && [ ! -d "$1" ] && exit 121; '
            'mkdir -p -- "$(dirname -- "$2")" && mv -fT -- "$1" "$2" || exit 113'
        )
        self._do(script, old, self._place(new))
        return self.get_info(new)

    def _place(self, path: str) -> str:
        if "\0" in path or not path:
            raise ValueError("a path is not empty and has no null in it")
        return self._box._place(path)

    def _read_by_program(self, path: str) -> bytes:
        script = (
            '[ -e "$1" ] || exit 102; [ -d "$1" ] && exit 121; [ -r "$1" ] || exit 113; '
            'exec base64 -- "$1"'
        )
        heard: builtins.list[str] = []
        done = self._box.commands.run(
            ["sh", "-c", script, "sh", self._place(path)], on_stdout=heard.append
        )
        self._judge(done.exit_code, path, done.stderr)
        return base64.b64decode("".join(heard))

    def _write_by_program(self, path: str, content: bytes | IO[bytes]) -> None:
        script = (
            '[ -d "$1" ] && exit 121; mkdir -p -- "$(dirname -- "$1")" || exit 113; '
            'cat > "$1" || exit 113'
        )
        words = ["sh", "-c", script, "sh", self._place(path)]
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        data.seek(0)
        command = self._box.commands.run(words, background=True)
        try:
            while piece := data.read(PIECE_BYTES):
                command.send_stdin(piece)
        except BrokenPipeError:
            pass  # it says why it does not want more
        except BaseException:
            command.kill()
            raise
        command.close_stdin()
        done = command.wait()
        self._judge(done.exit_code, path, done.stderr)

    def _do(self, script: str, path: str, *more: str, stdin: str | None = None) -> str:
        """What a script prints about a path; raises what it says is wrong."""
        words = ["sh", "-c", script, "sh", self._place(path), *more]
        done = self._box.run(words, stdin=stdin)
        self._judge(done.exit_code, path, done.stderr)
        if done.truncated:
            raise OSError(errno.E2BIG, "there is more than can be told", path)
        return done.stdout

    def _done(self, script: str, path: str, *, expect: tuple[int, ...] = (0, 1)) -> int:
        """The status of a script about a path."""
        words = ["sh", "-c", script, "sh", self._place(path)]
        done = self._box.run(words)
        if done.exit_code not in expect:
            self._judge(done.exit_code, path, done.stderr)
        return done.exit_code

    def _judge(self, status: int, path: str, why: str) -> None:
        if status == 0:
            return
        # Scripts here say 100 and the number that Linux has for it.
        number = status - 100 if status in (102, 113, 117, 120, 121) else errno.EIO
        reason = why.strip().splitlines()[-1:] if number in (errno.EACCES, errno.EIO) else []
        if reason and "No space left" in reason[0]:
            number = errno.ENOSPC
        raise OSError(number, reason[0] if reason else os.strerror(number), path)


def _is_for_programs(error: Exception) -> bool:
    """Whether a program may do what the engine did not: it does not read
    beside the project, and not in mounts. Programs then say what is wrong."""
    return code_of(error) in ("denied", "unsupported", "invalid", "not_found")


def _entry(above: str, told: str, target: str) -> EntryInfo:
    kind, size, mode, modified, name = told.split(" ", 4)
    kinds: dict[str, Literal["file", "dir", "symlink"]] = {"f": "file", "d": "dir", "l": "symlink"}
    return EntryInfo(
        name=posixpath.basename(name),
        path=posixpath.join(above, name),
        type=kinds.get(kind, "other"),
        size=int(size),
        mode=int(mode, 8),
        modified=float(modified),
        target=target if kind == "l" else None,
    )
