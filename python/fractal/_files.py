"""File objects over a view, as ``io`` has them."""

from __future__ import annotations

import errno
import io
import os
from typing import IO, TYPE_CHECKING, Any, cast

from ._fractal import Vfs

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from .types import Path

MODES = {"r", "w", "a", "x"}


class RawFile(io.RawIOBase):
    """One file of a view, without a buffer.

    It holds a path, not a file: what is renamed under it is no longer found.
    """

    def __init__(self, vfs: Vfs, path: Path, mode: str) -> None:
        super().__init__()
        self._vfs = vfs
        self._path = path
        self._at = 0
        kind = mode.replace("b", "").replace("+", "")
        self._reads = kind == "r" or "+" in mode
        self._writes = kind != "r" or "+" in mode
        self._appends = kind == "a"
        self.name = path
        self.mode = mode
        if kind == "x":
            vfs.create(path)
        elif kind == "w":
            vfs.write(path, b"")
        elif kind == "a":
            vfs.append(path, b"")
        elif vfs.stat(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if self._appends:
            self._at = self._size()

    def _size(self) -> int:
        return self._vfs.stat(self._path).st_size

    def _check(self, able: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not able:
            raise io.UnsupportedOperation(f"the file is not open for {what}")

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._check(self._reads, "reading")
        into = memoryview(buffer).cast("B")
        data = self._vfs.read_range(self._path, self._at, self._at + len(into))
        into[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check(self._reads, "reading")
        data = self._vfs.read_range(self._path, self._at, max(self._at, self._size()))
        self._at += len(data)
        return data

    def write(self, data: ReadableBuffer) -> int:
        self._check(self._writes, "writing")
        out = bytes(memoryview(data).cast("B"))
        if self._appends:
            self._vfs.append(self._path, out)
            self._at = self._size()
        else:
            self._vfs.write_at(self._path, self._at, out)
            self._at += len(out)
        return len(out)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check(True, "seeking")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        if start is None:
            if whence != io.SEEK_END:
                raise ValueError(f"{whence} is no place to seek from")
            start = self._size()
        if start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        self._check(True, "seeking")
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._check(self._writes, "writing")
        size = self._at if size is None else size
        self._vfs.truncate(self._path, size)
        return size


def open_file(
    vfs: Vfs,
    path: Path,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> IO[Any]:
    """What ``Vfs.open`` gives: the same objects as ``io.open`` does."""
    binary = "b" in mode
    plain = mode.replace("b", "").replace("t", "")
    kind = plain.replace("+", "", 1)
    if kind not in MODES or (binary and "t" in mode) or len(set(mode)) != len(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    if binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("a binary file has no encoding, errors or newline")
    if buffering == 0 and not binary:
        raise ValueError("a text file cannot be without a buffer")
    raw = RawFile(vfs, path, plain + "b")
    if buffering == 0:
        return cast(IO[Any], raw)
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    buffered: io.BufferedRandom | io.BufferedReader | io.BufferedWriter
    if "+" in plain:
        buffered = io.BufferedRandom(raw, size)
    elif kind == "r":
        buffered = io.BufferedReader(raw, size)
    else:
        buffered = io.BufferedWriter(raw, size)
    if binary:
        return buffered
    # Text is UTF-8 here, whatever the machine around it speaks.
    text = io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, buffering == 1)
    text.mode = mode  # type: ignore[misc]  # as io.open does
    return text
