"""SWE-ReX's own tests of a server, unmodified, against ours.

They are not in the wheel: SWEREX_TESTS names the folder `tests` of the source
distribution. Their own fixtures are not in there either; ours stand in for them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

# Those that ask a server something.
FILES = ["test_execution.py", "test_remote_deployment.py", "test_server.py"]

# What does not hold here, and why.
DIFFERENT = {
    # Looks for a file of the sandbox on the machine outside.
    "test_execution.py::test_read_write_file",
    # `/` is the page of our server.
    "test_server.py::test_hello_world",
    # Asks without a key for paths that begin with two slashes, and wants 403. Its
    # own server says 401 with the versions that are pinned; here nothing is there.
    "test_server.py::test_unauthenticated_request",
}

# Those of the files above in the version that is pinned; one more is marked as
# failing everywhere by its authors.
PASSED = 50

FIXTURES = '''
import os
from types import SimpleNamespace

import pytest
from swerex.runtime.abstract import (
    BashAction as _Action, CloseBashSessionRequest, Command as _Command, CreateBashSessionRequest)
from swerex.runtime.remote import RemoteRuntime

TEST_API_KEY = os.environ["SWEREX_KEY"]
PATIENCE = 120.0
RemoteServer = SimpleNamespace


@pytest.fixture(scope="session")
def remote_server():
    return SimpleNamespace(
        port=int(os.environ["SWEREX_PORT"]), headers={"X-API-Key": TEST_API_KEY})


@pytest.fixture
async def remote_runtime(remote_server):
    runtime = RemoteRuntime(port=remote_server.port, auth_token=TEST_API_KEY, timeout=PATIENCE)
    yield runtime
    await runtime.close()


@pytest.fixture
async def runtime_with_default_session(remote_runtime):
    await remote_runtime.create_session(CreateBashSessionRequest(startup_timeout=PATIENCE))
    yield remote_runtime
    await remote_runtime.close_session(CloseBashSessionRequest())
'''


@pytest.fixture
def tests(tmp_path):
    source = os.environ.get("SWEREX_TESTS")
    if not source:
        if os.environ.get("CI") == "true":
            pytest.fail("SWEREX_TESTS names no folder")
        pytest.skip("SWEREX_TESTS names no folder with SWE-ReX's own tests")
    folder = tmp_path / "tests"
    folder.mkdir()
    for name in FILES:
        shutil.copy(pathlib.Path(source) / name, folder)
    (folder / "__init__.py").touch()
    (folder / "conftest.py").write_text(FIXTURES)
    return folder


def test_its_own_tests_pass_but_for_those_that_are_named(own_server, tests, monkeypatch):
    server = own_server
    server.stop()
    # Shells find `python`, as those of SWE-ReX's images do, and read no files of
    # whoever runs these tests.
    home = server.root / "upstream"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to("/usr/bin/python3")
    (server.project / "fractal.toml").write_text(
        f'template = "upstream"\n\n[templates.upstream.env]\nHOME = "{home}"\n')
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    server.start()
    environment = {**os.environ, "SWEREX_KEY": server.key("upstream"),
                   "SWEREX_PORT": str(server.port)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto",
         "-rfE", "--tb=short", "-q", str(tests)],
        cwd=tests.parent, env=environment, text=True, capture_output=True, check=False)
    print(done.stdout[-8000:], done.stderr[-2000:])
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S*?(test_\w+\.py::\w+)", done.stdout, re.M))
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert failed == DIFFERENT
    assert passed == PASSED
