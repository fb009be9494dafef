"""The program `fractal` comes with the package."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import pathlib
import subprocess


def test_the_program_is_installed_beside_python(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    installed = importlib.metadata.distribution("fractal")
    [listed] = [file for file in installed.files or () if file.name == "fractal"]
    program = pathlib.Path(str(listed.locate())).resolve()
    assert program.parent.name == "bin"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"fractal {installed.version}\n"
    # It is what the wheel's record says.
    assert listed.hash is not None and listed.hash.mode == "sha256"
    digest = hashlib.sha256(program.read_bytes()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == listed.hash.value
    ran = subprocess.run(
        [program, "run", "--rm", "--", "echo", "it works"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )
    assert ran.stdout == "it works\n"
