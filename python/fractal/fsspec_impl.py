"""``fractal://SANDBOX/path`` for everything that speaks fsspec.

The first part of a path is the name of a sandbox, or of a view of this process
that was given a name with :func:`share`.
"""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from fsspec.spec import AbstractFileSystem

from ._fractal import Entry, Stat, Vfs
from .sandbox import Sandbox

_shared: dict[str, Vfs] = {}


def share(name: str, vfs: Vfs | None) -> None:
    """Has ``fractal://NAME/`` mean a view, in this process; ``None`` ends it.

    It comes before a sandbox of the same name.
    """
    if not name or "/" in name:
        raise ValueError(f"{name!r} is no name for a view")
    if vfs is None:
        _shared.pop(name, None)
    else:
        _shared[name] = vfs


def _split(path: str) -> tuple[str, str]:
    name, _, below = path.partition("/")
    if not name:
        raise ValueError("a path begins with the name of a sandbox: fractal://SANDBOX/path")
    return name, "/" + below


class FractalFileSystem(AbstractFileSystem):  # type: ignore[misc]  # it has no types
    """Files of sandboxes, and of views of this process.

    What is written into a sandbox is one run of it in the journal for each
    file, so that ``fractal log`` tells of it.
    """

    protocol = "fractal"
    # Others write into sandboxes too: what was listed is not kept.
    cachable = True
    use_listings_cache = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, builtins.list):
            return [cls._strip_protocol(one) for one in path]
        stripped: str = super()._strip_protocol(path)
        return stripped.strip("/")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._boxes: dict[str, Sandbox] = {}

    def _box(self, name: str) -> Sandbox:
        """A sandbox by its name; where it lies is asked once."""
        if name not in self._boxes:
            self._boxes[name] = Sandbox.open(name)
        return self._boxes[name]

    def _view(self, name: str) -> Vfs:
        """Somewhere to look."""
        shared = _shared.get(name)
        return self._box(name).view() if shared is None else shared

    def _change(self, name: str, why: str, work: Callable[[Vfs], object]) -> None:
        """Changes something, in the sandbox or in the view itself."""
        shared = _shared.get(name)
        if shared is None:
            self._box(name).edit(work, why=why)
        else:
            work(shared)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        stripped = self._strip_protocol(path)
        name, below = _split(stripped)
        return _told(stripped, self._view(name).stat(below))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> builtins.list[Any]:
        stripped = self._strip_protocol(path)
        name, below = _split(stripped)
        view = self._view(name)
        if not view.is_dir(below):
            listed = [_told(stripped, view.stat(below))]
        else:
            listed = [_entry(name, view, entry) for entry in view.scandir(below)]
        return listed if detail else sorted(entry["name"] for entry in listed)

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        return True

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        name, below = _split(self._strip_protocol(path))
        view = self._view(name)
        if start is None and end is None:
            return view.read(below)
        size = view.stat(below).st_size
        first, last, _ = slice(start, end).indices(size)
        return view.read_range(below, first, max(first, last))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        name, below = _split(self._strip_protocol(path))
        data = bytes(value)

        def write(view: Vfs) -> None:
            if mode == "create":
                view.mkdir(_above(below), parents=True, exist_ok=True)
                view.create(below)
            view.write(below, data, parents=True)

        self._change(name, f"write {below}", write)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        name, below = _split(self._strip_protocol(path))
        self._change(
            name, f"mkdir {below}", lambda view: view.mkdir(below, parents=create_parents)
        )

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        name, below = _split(self._strip_protocol(path))
        if below == "/" and exist_ok:
            return
        self._change(
            name,
            f"mkdir {below}",
            lambda view: view.mkdir(below, parents=True, exist_ok=exist_ok),
        )

    def rmdir(self, path: str) -> None:
        name, below = _split(self._strip_protocol(path))
        self._change(name, f"rmdir {below}", lambda view: view.rmdir(below))

    def rm_file(self, path: str) -> None:
        name, below = _split(self._strip_protocol(path))
        self._change(name, f"remove {below}", lambda view: view.remove(below))

    def rm(
        self, path: str | builtins.list[str], recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        if not recursive or maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for one in [path] if isinstance(path, str) else path:
            for found in self.expand_path(one) if "*" in one else [one]:
                name, below = _split(self._strip_protocol(found))
                self._change(name, f"remove {below}", _removing(below))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        name, below = _split(source)
        if self._view(name).is_dir(below):
            self.makedirs(target, exist_ok=True)
            return
        to_name, to_below = _split(target)
        if name != to_name:
            self.pipe_file(target, self.cat_file(source))
            return

        def copy(view: Vfs) -> None:
            view.mkdir(_above(to_below), parents=True, exist_ok=True)
            view.copy(below, to_below)

        self._change(name, f"copy {below} {to_below}", copy)

    def mv_file(self, path1: str, path2: str) -> None:
        """Moves a file within one sandbox."""
        (name, below), (to_name, to_below) = (
            _split(self._strip_protocol(path)) for path in (path1, path2)
        )
        if name != to_name:
            self.cp_file(path1, path2)
            self.rm_file(path1)
        else:
            self._change(
                name, f"rename {below} {to_below}", lambda view: view.rename(below, to_below)
            )

    def created(self, path: str) -> datetime:
        """Nobody keeps this: the time of the last change."""
        return self.modified(path)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any
    ) -> Any:
        stripped = self._strip_protocol(path)
        name, below = _split(stripped)
        shared = _shared.get(name)
        if shared is not None:
            if mode[0] in "wax":
                shared.mkdir(_above(below), parents=True, exist_ok=True)
            return shared.open(below, mode)
        if mode == "rb":
            return self._view(name).open(below, "rb")
        return _Pending(self, stripped, mode)


class _Pending(io.BytesIO):
    """A file of a sandbox that is written when it is closed: as a whole, and
    not at all if what writes it fails."""

    def __init__(self, fs: FractalFileSystem, path: str, mode: str) -> None:
        self._fs, self._path, self._mode = fs, path, mode
        exists = fs.exists(path)
        if "x" in mode and exists:
            raise FileExistsError(path)
        if exists and fs.info(path)["type"] == "directory":
            raise IsADirectoryError(path)
        if mode[0] == "r" and not exists:
            raise FileNotFoundError(path)
        super().__init__(fs.cat_file(path) if exists and mode[0] in "ra" else b"")
        if "a" in mode:
            self.seek(0, io.SEEK_END)

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._fs.pipe_file(self._path, data)


def _told(path: str, stat: Stat) -> dict[str, Any]:
    kind = {"file": "file", "directory": "directory"}.get(stat.kind, "other")
    return {
        "name": path,
        "type": kind,
        "size": 0 if stat.is_dir() else stat.st_size,
        "mode": stat.st_mode,
        "uid": stat.st_uid,
        "gid": stat.st_gid,
        "mtime": stat.st_mtime,
        "ino": stat.st_ino,
        "nlink": stat.st_nlink,
    }


def _entry(name: str, view: Vfs, entry: Entry) -> dict[str, Any]:
    told = _told(name + entry.path, entry.stat)
    if entry.is_symlink():
        told["islink"] = True
        told["destination"] = view.readlink(entry.path)
        if view.exists(entry.path):
            led = _told(told["name"], view.stat(entry.path))
            told.update(type=led["type"], size=led["size"])
    return told


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _removing(path: str) -> Callable[[Vfs], object]:
    return lambda view: view.remove_all(path)
