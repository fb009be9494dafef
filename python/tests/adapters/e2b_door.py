"""A server whose E2B door frameworks are pointed at, with a state of its own.

FRACTAL names the command. A framework is told three variables, which
`fractal env e2b` prints, and nothing else; what it did is then looked at from
the other side of the door, as any owner of the machine would.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

FRACTAL = os.environ.get("FRACTAL", "fractal")
GUIDE = pathlib.Path(__file__).parents[3] / "docs/guide/frameworks"

ANSWER_SECONDS_MAX = 120
"""How long a command of ours may take on a busy machine."""


class Door:
    """`fractal serve` on a free port of the loopback, in a project of its own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir()
        (self.project / "README").write_text("a project\n")
        with (root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [FRACTAL, "serve", "--json", "--listen", "127.0.0.1:0", "--drain", "2s"],
                cwd=self.project,
                env=self._environment(),
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError((root / "log").read_text())
        self.url = json.loads(line)["listen"][0]

    def _environment(self) -> dict[str, str]:
        kept = ("HOME", "TMPDIR")
        known = {name: os.environ[name] for name in kept if name in os.environ}
        # As in a shell where this Python's environment is active: what it has,
        # code in sandboxes has.
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**known, "PATH": path, "FRACTAL_HOME": str(self.root / "home")}

    def fractal(self, *words: str) -> str:
        """What a command line of the owner prints."""
        done = subprocess.run(
            [FRACTAL, *words],
            cwd=self.project,
            env=self._environment(),
            text=True,
            capture_output=True,
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout

    def variables(self) -> dict[str, str]:
        """All that a program has to be told."""
        told: dict[str, str] = json.loads(
            self.fractal("--json", "env", "e2b", "--url", self.url)
        )
        return told

    def key(self) -> str:
        """One for everything that a client of the server itself may ask for."""
        return self.fractal("key", "create", "--role", "admin", "--name", "tests").strip()

    def sandboxes(self) -> list[str]:
        """Those that exist now, by the ids that clients have."""
        listed = json.loads(self.fractal("--json", "list"))["sandboxes"]
        return [box["id"].lower() for box in listed]

    def inside(self, sandbox_id: str, script: str) -> str:
        """What a script prints in a sandbox."""
        return self.fractal("run", "--in", sandbox_id.upper(), "--", "sh", "-c", script)

    def drop(self, sandbox_id: str) -> None:
        """Forgets a sandbox, whatever its client thinks."""
        self.fractal("drop", "--force", sandbox_id.upper())

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextlib.contextmanager
def opened() -> Iterator[Door]:
    root = pathlib.Path(tempfile.mkdtemp(prefix="fractal-door-"))
    root.chmod(0o755)
    try:
        door = Door(root)
        try:
            yield door
        finally:
            door.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """One server for the tests of a file, with its variables set as a shell
    would; no sandbox outlives the tests that made it."""
    with opened() as door:
        patch = pytest.MonkeyPatch()
        for name in [name for name in os.environ if name.startswith("E2B_")]:
            patch.delenv(name)
        for name, value in door.variables().items():
            patch.setenv(name, value)
        try:
            yield door
        finally:
            patch.undo()
        left = door.sandboxes()
        assert left == [], f"sandboxes that nobody ended: {left}"


def examples(page: str, section: str) -> list[str]:
    """The blocks of Python below a heading of a page of the guide."""
    text = (GUIDE / page).read_text()
    below = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert below is not None, f"{page} has no section {section!r}"
    found = re.findall(r"^```python\n(.*?)^```$", below[1], re.M | re.S)
    assert found, f"{page} shows no Python in {section!r}"
    return found


def play(source: str, **names: Any) -> dict[str, Any]:
    """Runs a block of the guide, with these names there already."""
    exec(compile(source, "<guide>", "exec"), names)
    return names
