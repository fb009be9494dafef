"""Files and directories into and out of a sandbox, as tar archives.

Programs inside pack and unpack there, so that permissions and every byte arrive
as they are; what comes out is made of files and directories alone.
"""

from __future__ import annotations

import base64
import binascii
import errno
import io
import pathlib
import posixpath
import shutil
import tarfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..sandbox import RunResult, Sandbox

ARCHIVE_BYTES_MAX = 256 << 20
PIECE_BYTES = 256 << 10


class _Sending(io.RawIOBase):
    """A file whose content is sent on."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._send(bytes(data))
        return len(data)


def send(box: Sandbox, source: pathlib.Path, target: str) -> RunResult:
    """Puts a file or a directory of this machine at a path inside."""
    script = 'mkdir -p -- "$1" && exec tar -x --no-same-owner -f - -C "$1"'
    words = ["sh", "-c", script, "sh", posixpath.dirname(target)]
    receiver = box.commands.run(words, background=True)
    try:
        file = _Sending(receiver.send_stdin)
        with tarfile.open(fileobj=file, mode="w|", bufsize=PIECE_BYTES) as archive:
            archive.add(source.resolve(), arcname=posixpath.basename(target))
    except BrokenPipeError:
        pass  # it says why it does not read
    except BaseException:
        receiver.kill()
        raise
    receiver.close_stdin()
    return receiver.wait()


# A link is followed where it is what was asked for.
_PACK = (
    '[ -e "$1" ] || exit 102; [ ! -L "$1" ] || set -- "$(readlink -f -- "$1")"; '
    'stat -c "%s %f" -- "$1" || exit 1; '
    'tar -c -f - -C "$(dirname -- "$1")" -- "$(basename -- "$1")" | base64 -w 0'
)


def fetch(box: Sandbox, where: str) -> tuple[RunResult, str]:
    """Has what stands at a path packed, for :func:`read`."""
    heard: list[str] = []
    words = ["sh", "-c", _PACK, "sh", where]
    done = box.commands.run(words, on_stdout=heard.append, output=ARCHIVE_BYTES_MAX // 3 * 4)
    return done, "".join(heard)


def read(path: str, done: RunResult, text: str) -> tuple[bytes, dict[str, Any]]:
    """What was packed as a tar archive, with its name, size and mode."""
    if done.exit_code == 102:
        raise FileNotFoundError(errno.ENOENT, "nothing stands there in the sandbox", path)
    if done.outcome == "output":
        raise OSError(errno.EFBIG, f"it holds more than {ARCHIVE_BYTES_MAX} bytes", path)
    if done.exit_code != 0:
        raise OSError(errno.EIO, f"it cannot be read: {why(done)}", path)
    said, _, encoded = text.partition("\n")
    size, mode = said.split()
    try:
        bits = base64.b64decode(encoded, validate=True)
        with tarfile.open(fileobj=io.BytesIO(bits)) as archive:
            archive.getmembers()
    except (binascii.Error, tarfile.TarError) as error:
        raise OSError(errno.EIO, f"what came is no archive: {error}", path) from error
    return bits, {"name": posixpath.basename(path), "size": int(size), "mode": int(mode, 16)}


def why(done: RunResult) -> str:
    """What a program says about its failure."""
    return done.stderr.strip() or str(done.error)


def unpack(archive: tarfile.TarFile, dest: pathlib.Path) -> None:
    """Makes files and directories and nothing else, whatever the archive says:
    without links nothing in it leads elsewhere."""
    members = archive.getmembers()
    for member in members:
        parts = pathlib.PurePosixPath(member.name).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise ValueError(f"the archive has a path that leads elsewhere: {member.name}")
        target = dest if members[0].isfile() else dest.joinpath(*parts)
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif member.isfile() and (content := archive.extractfile(member)) is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
