"""A server of its own for tests of adapters."""

from __future__ import annotations

import os
import pathlib
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(project: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Its address, and a key; FRACTAL names the program."""
    program = os.environ["FRACTAL"]
    server = subprocess.Popen(
        [program, "serve", "--listen", "127.0.0.1:0"],
        cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    assert server.stderr is not None
    try:
        said = next(line for line in server.stderr if "http://127.0.0.1" in line)
        url = "http://127.0.0.1" + said.split("http://127.0.0.1")[1].split()[0].strip("/,")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        made = subprocess.run(
            [program, "key", "create", "--role", "admin", "--name", "tests"],
            cwd=project, capture_output=True, text=True, check=True,
        )
        yield url, made.stdout.strip()
    finally:
        server.terminate()
        server.wait(60)
