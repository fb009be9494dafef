"""A server of its own for these tests, and E2B's clients as they are on PyPI.

FRACTAL names the command. Everything lies in a temporary directory and is gone
afterwards, also the processes.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

FRACTAL = os.environ.get("FRACTAL", "fractal")


class Server:
    """`fractal serve` on a free port of the loopback."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.home = self.root / "home"
        self.project = self.root / "project"
        self.project.mkdir(exist_ok=True)
        (self.project / "README").write_text("a project\n")
        self.process = None
        self.url = None

    def environment(self):
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {**kept, "FRACTAL_HOME": str(self.home)}

    def start(self):
        log = open(self.root / "log", "ab")
        listen = self.url.removeprefix("http://") if self.url else "127.0.0.1:0"
        self.process = subprocess.Popen(
            [FRACTAL, "serve", "--json", "--listen", listen, "--drain", "2s"],
            cwd=self.project, env=self.environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError((self.root / "log").read_text())
        self.url = json.loads(line)["listen"][0]

    def fractal(self, *words):
        done = subprocess.run([FRACTAL, *words], cwd=self.project, env=self.environment(),
                              text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout

    def variables(self):
        return json.loads(self.fractal("--json", "env", "e2b", "--url", self.url))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture(scope="session")
def server():
    root = tempfile.mkdtemp(prefix="fractal-e2b-")
    os.chmod(root, 0o755)
    server = Server(root)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def variables(server):
    """Two variables and a key are all that a client needs."""
    names = server.variables()
    os.environ.update(names)
    return names


@pytest.fixture(scope="session")
def box(variables):
    """One sandbox that most tests share."""
    from e2b import Sandbox
    sandbox = Sandbox.create(timeout=1800)
    yield sandbox
    sandbox.kill()


@pytest.fixture
def fresh(variables):
    """A sandbox that a test may end."""
    from e2b import Sandbox
    sandbox = Sandbox.create(timeout=600)
    yield sandbox
    sandbox.kill()


@pytest.fixture
def place(box, request):
    """A directory of the shared sandbox for one test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    path = f"/home/user/{name}"
    box.files.make_dir(path)
    return path
