"""Sandboxes for work that goes on for long, with a volume that outlives them.

In the template ``standard`` `/data` is a volume, `/src` the project, read-only,
and `/workspace` and `/root` are scratch space. The volume is the project's own
unless another one is named.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pathlib
import re
import weakref
from typing import IO, Any

from .._connection import Connection, user_settings
from ..client import SandboxClient
from ..sandbox import Sandbox

TEMPLATE = "standard"
VOLUME_AT = "/data"
PIECE_BYTES = 256 << 10

Directory = str | os.PathLike[str]


def create(
    directory: Directory | None = None,
    *,
    client: SandboxClient | None = None,
    template: str | None = None,
    volume_name: str | None = None,
    **bounds: Any,
) -> Sandbox:
    """A new sandbox; with ``volume_name`` that volume is its `/data`, made when
    it is missing."""
    if volume_name is None:
        client = client or SandboxClient()
        return client.create(directory, template=template or TEMPLATE, **bounds)
    if template is not None:
        raise ValueError("a template says what it mounts: give `template` or `volume_name`")
    return _with_volume(directory, client or SandboxClient(), volume_name, bounds)


def _with_volume(
    directory: Directory | None, client: SandboxClient, volume: str, bounds: dict[str, Any]
) -> Sandbox:
    if client.url is not None:
        raise ValueError(
            f"the templates of {client.url} are its own: write one into its settings that mounts "
            f"the volume {volume!r} at {VOLUME_AT}, and give its name as `template`"
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", volume):
        raise ValueError(f"{volume!r} is no name for a volume: use letters, digits, and . _ -")
    mount = f'{{ at = "{VOLUME_AT}", volume = "{volume}" }}'
    return _with_template(directory, client, f"{TEMPLATE}-{volume}", TEMPLATE, mount, bounds)


def with_scratch(
    at: str, directory: Directory | None, *, client: SandboxClient, **bounds: Any
) -> Sandbox:
    """A clone with scratch space at a path that this machine need not have."""
    mount = f"{{ at = {json.dumps(at)}, scratch = true }}"
    return _with_template(directory, client, "clone-with-scratch", "clone", mount, bounds)


def _with_template(
    directory: Directory | None,
    client: SandboxClient,
    name: str,
    base: str,
    mount: str,
    bounds: dict[str, Any],
) -> Sandbox:
    # The engine knows templates by name alone, and asks for them with each run:
    # this one stands with the user's settings in a file that lies nowhere.
    text = f'{_own_settings()}\n[templates."{name}"]\nbase = "{base}"\nmounts = [{mount}]\n'
    file = os.fdopen(os.memfd_create("fractal-settings"), "wb", buffering=0)
    file.write(text.encode())
    settings = f"/proc/self/fd/{file.fileno()}"
    maker = SandboxClient(home=client._home, settings=settings)
    box = maker.create(directory, template=name, **bounds)
    _open_files[box._connection] = file
    return box


def _own_settings() -> str:
    try:
        return pathlib.Path(user_settings()).read_text("utf-8")
    except FileNotFoundError:
        return ""


# As long as somebody works through a connection, its settings are there.
_open_files: weakref.WeakKeyDictionary[Connection, IO[bytes]] = weakref.WeakKeyDictionary()


def upload(box: Sandbox, source: Directory | bytes, name: str | None = None) -> str:
    """Puts a file, a directory or bytes into the volume; returns the path inside.

    A file is there whole or not at all.
    """
    if isinstance(source, bytes):
        if name is None:
            raise ValueError("bytes have no name: give `name`")
        return _put(box, _place(name), io.BytesIO(source), len(source))
    path = pathlib.Path(source)
    target = _place(path.resolve().name if name is None else name)
    if not path.is_dir():
        return _put_file(box, target, path)
    for file in sorted(path.rglob("*")):
        if file.is_file():
            _put_file(box, f"{target}/{file.relative_to(path).as_posix()}", file)
    box.files.make_dir(target)
    return target


def _place(name: str) -> str:
    parts = pathlib.PurePosixPath(name).parts
    if not parts or ".." in parts or parts[0] == "/":
        raise ValueError(f"{name!r} is no path below {VOLUME_AT}: give one that stays there")
    return f"{VOLUME_AT}/{pathlib.PurePosixPath(name)}"


def _put_file(box: Sandbox, target: str, path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return _put(box, target, file, os.fstat(file.fileno()).st_size)


# Who sends may be killed in the middle: only what has the right size counts.
_RECEIVE = (
    '[ -d "$3" ] || { echo "there is no $3 in this sandbox: name a template that mounts a '
    'volume there" >&2; exit 1; }; [ ! -d "$1" ] || { echo "$1 is a directory" >&2; exit 1; }; '
    'mkdir -p -- "$(dirname -- "$1")" && part=$(mktemp -- "$1.XXXXXX") || exit 1; '
    'trap \'rm -f -- "$part"\' EXIT; cat > "$part" || exit 1; '
    'came=$(wc -c < "$part"); [ "$came" -eq "$2" ] || { '
    'echo "$came of $2 bytes came: the file changed, or the sender went away" >&2; exit 1; }; '
    'chmod 644 -- "$part" && mv -fT -- "$part" "$1"'
)


def _put(box: Sandbox, target: str, source: IO[bytes], size: int) -> str:
    words = ["sh", "-c", _RECEIVE, "sh", target, str(size), VOLUME_AT]
    receiver = box.commands.run(words, background=True)
    try:
        while piece := source.read(PIECE_BYTES):
            receiver.send_stdin(piece)
    except BrokenPipeError:
        pass  # it says below why it does not read
    except BaseException:
        receiver.kill()
        raise
    receiver.close_stdin()
    done = receiver.wait()
    if done.exit_code != 0:
        why = done.stderr.strip() or done.error
        raise OSError(errno.EIO, f"{why}", target)
    return target
