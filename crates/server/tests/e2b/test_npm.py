"""E2B's clients from npm, in Node's own runner. E2B_NODE names a directory with
`node_modules/e2b` and `node_modules/@e2b/code-interpreter`; E2B_NODE_PROGRAM
the Node to run them with. Each file says in its first line how many cases it
has: so many must have passed, and nothing may be left behind."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

FILES = sorted((pathlib.Path(__file__).parent / "npm").glob("*.test.mjs"))
CASES_MIN = 80
# One case may take as long, and a file.
CASE_S = 300
FILE_S = 900
# Until what was ended is gone.
PATIENCE_S = 60
# What is shown of a run that failed.
LINES_SHOWN = 120

passed = {}


@pytest.fixture(scope="module")
def node():
    if "E2B_NODE" not in os.environ:
        pytest.skip("E2B_NODE names no directory with the client from npm")
    return os.environ.get("E2B_NODE_PROGRAM", "node")


@pytest.fixture(scope="module")
def keys(server, variables):
    """Ours, one of another tenant, and one that has ended."""
    made = server.fractal("--json", "key", "create", "--role", "runner", "--name", "npm-ended")
    server.fractal("key", "revoke", "npm-ended")
    return {**variables, "E2B_OTHER_KEY": server.variables()["E2B_API_KEY"],
            "E2B_REVOKED_KEY": json.loads(made)["secret"]}


def run(words, environment):
    """Its status and what it said; nothing of it is left when it takes too long."""
    process = subprocess.Popen(words, env=environment, text=True, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, _ = process.communicate(timeout=FILE_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    return process.returncode, said


def there(server):
    """All sandboxes, also paused ones and snapshots, and what runs in them."""
    listed = json.loads(server.fractal("--json", "list"))["sandboxes"]
    mark = f"\0FRACTAL_DIRECTORY={server.project}\0".encode()
    found = {one["id"] for one in listed}
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in b"\0" + (place / "environ").read_bytes():
                found.add(f"process {place.name}: {(place / 'cmdline').read_bytes()}")
        except OSError:
            pass  # It has ended, or is somebody else's.
    return found


def left_behind(server, before):
    """What is more than before, when it has had time to go."""
    until = time.monotonic() + PATIENCE_S
    while (left := there(server) - before) and time.monotonic() < until:
        time.sleep(0.2)
    return left


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".test.mjs"))
def test_npm(file, node, keys, server):
    told = int(re.match(r"// (\d+) cases?[:.]", file.read_text()).group(1))
    before = there(server)
    status, said = run([node, "--test", f"--test-timeout={CASE_S * 1000}", "--test-reporter=spec", str(file)],
                       {**os.environ, **keys})
    closing = "\n".join(said.splitlines()[-LINES_SHOWN:])
    counts = {"pass": "none", "tests": "none", **dict(re.findall(r"^ℹ (\w+) (\d+)$", said, re.MULTILINE))}
    left = left_behind(server, before)
    assert (status, counts["pass"], counts["tests"]) == (0, str(told), str(told)), closing
    assert not left
    passed[file.name] = told


def test_npm_has_many_cases(node):
    """After the others, which count."""
    assert sum(passed.values()) >= CASES_MIN, passed
