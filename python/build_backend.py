"""Builds the wheel: what maturin makes of the package, and the program.

So installing the wheel is the whole installation: ``fractal`` lands beside
``python``. ``FRACTAL_PROGRAM`` names a program that was built before; without
it cargo builds one, as the package itself is built: from a clone of the
repository. For that reason there is no source distribution.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import zipfile
from collections.abc import Mapping
from typing import Any

import maturin
from maturin import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, Any] | None

ROOT = pathlib.Path(__file__).resolve().parent.parent


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    # First what can be missing.
    program = _program(maturin.get_maturin_pep517_args(config_settings))
    name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    _add(pathlib.Path(wheel_directory, name), program)
    return name


def _program(maturin_args: list[str]) -> pathlib.Path:
    """The program, built before or now."""
    given = os.environ.get("FRACTAL_PROGRAM")
    if given:
        path = pathlib.Path(given)
        if not os.access(path, os.X_OK) or not path.is_file():
            raise SystemExit(f"FRACTAL_PROGRAM is {given}, which is no program")
        return path
    words = ["cargo", "build", "--package=fractal-cli", "--bin=fractal", "--message-format=json"]
    words.append(f"--profile={_profile(maturin_args)}")
    print(f"Running `{shlex.join(words)}`", flush=True)
    built = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise SystemExit(f"`{shlex.join(words)}` failed with exit status {built.returncode}")
    said = [json.loads(line) for line in built.stdout.splitlines()]
    [path] = [message["executable"] for message in said if message.get("executable")]
    return pathlib.Path(path)


def _profile(maturin_args: list[str]) -> str:
    """The profile that maturin was asked to build the package with."""
    for word, after in zip(maturin_args, [*maturin_args[1:], ""]):
        if word == "--profile":
            return after
        if word.startswith("--profile="):
            return word.partition("=")[2]
    return "release"


def _add(wheel: pathlib.Path, program: pathlib.Path) -> None:
    """Puts the program among the scripts of a wheel, and on its record."""
    distribution, version = wheel.name.split("-")[:2]
    stem = f"{distribution}-{version}"
    record, script = f"{stem}.dist-info/RECORD", f"{stem}.data/scripts/fractal"
    whole = wheel.with_suffix(".whole")
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(whole, "w") as after:
        for entry in before.infolist():
            if entry.filename != record:
                after.writestr(entry, before.read(entry), compresslevel=6)
        entry = zipfile.ZipInfo.from_file(program, script)
        entry.external_attr = 0o100755 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        content = program.read_bytes()
        after.writestr(entry, content, compresslevel=6)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        listed = before.read(record).decode()
        lines = f"{script},sha256={digest},{len(content)}\n"
        after.writestr(before.getinfo(record), listed.replace(f"{record},,", lines + f"{record},,"))
    whole.replace(wheel)
