"""A server of its own for these tests, and SWE-ReX's client as it is on PyPI.

FRACTAL names the command. Everything lies in a temporary directory and is gone
afterwards, also the processes.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.remote import RemoteRuntime

FRACTAL = os.environ.get("FRACTAL", "fractal")
# A slow machine must not make a test fail: what is to be in time is given this.
PATIENCE = 120.0


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
        listen = self.url.removeprefix("http://") if self.url else "127.0.0.1:0"
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(
                [FRACTAL, "serve", "--json", "--listen", listen, "--drain", "2s"],
                cwd=self.project, env=self.environment(), text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError((self.root / "log").read_text())
        self.url = json.loads(line)["listen"][0]

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def fractal(self, *words):
        done = subprocess.run([FRACTAL, *words], cwd=self.project, env=self.environment(),
                              text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout

    def key(self, name, role="operator", *words):
        """A new key, which is a tenant of its own."""
        made = self.fractal("--json", "key", "create", "--role", role, "--name", name, *words)
        return json.loads(made)["secret"]

    def sandboxes(self):
        """Their names."""
        return [one["name"] for one in json.loads(self.fractal("--json", "list"))["sandboxes"]]

    def runtime(self, key, sandbox=None, timeout=PATIENCE):
        """The unmodified client, in a sandbox or in the key's own."""
        host = self.url if sandbox is None else f"{self.url}/swerex/{sandbox}"
        return RemoteRuntime(host=host, auth_token=key, timeout=timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


@contextlib.contextmanager
def serving():
    root = tempfile.mkdtemp(prefix="fractal-swerex-")
    os.chmod(root, 0o755)
    server = Server(root)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def server():
    with serving() as server:
        yield server


@pytest.fixture
def own_server():
    """A server that a test may end."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def key(server):
    return server.key("tests")


@pytest.fixture
def box(server, key, request):
    """A client in a sandbox of one test, which is dropped after it."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
    runtime = server.runtime(key, name)
    runtime.sandbox = name
    yield runtime
    run(runtime.close())
    if name in server.sandboxes():
        server.fractal("drop", "--force", name)


@pytest.fixture
def shell(box):
    """The same with a session."""
    run(box.create_session(CreateBashSessionRequest(startup_timeout=PATIENCE)))
    return Shell(box)


class Shell:
    """Commands in the usual session, one after the other."""

    def __init__(self, runtime):
        self.runtime = runtime

    def act(self, action):
        return run(self.runtime.run_in_session(action))

    def run(self, command, **more):
        more.setdefault("check", "silent")
        return self.act(BashAction(command=command, **more))

    def output(self, command, **more):
        return self.run(command, **more).output


def run(coroutine):
    return asyncio.run(coroutine)
