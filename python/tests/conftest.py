"""What the tests share: views, and a state directory of their own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fractal import Vfs


def program(code: str) -> list[str]:
    """A Python of its own that imports the package as it is installed."""
    return [sys.executable, "-I", "-c", code]


@contextmanager
def interruptible(code: str) -> Iterator[subprocess.Popen[str]]:
    """The same while it runs, with Ctrl-C as at a terminal, whatever whoever
    started the tests does with it."""
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    started = subprocess.Popen(program(start + code), stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.fixture
def vfs() -> Vfs:
    return Vfs()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A state directory that ends with the tests."""
    path = tmp_path_factory.mktemp("home")
    before = os.environ.get("FRACTAL_HOME")
    os.environ["FRACTAL_HOME"] = str(path)
    yield path
    from fractal._connection import engine

    # Mounts of finished runs are gone before the directory goes.
    engine(path).settle()
    if before is None:
        del os.environ["FRACTAL_HOME"]
    else:
        os.environ["FRACTAL_HOME"] = before
