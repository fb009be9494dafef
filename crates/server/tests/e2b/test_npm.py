"""E2B's client from npm, in a process of its own. E2B_NODE names a directory
with `node_modules/e2b`; E2B_NODE_PROGRAM the Node to run it with."""

import os
import pathlib
import subprocess

import pytest


def test_the_client_from_npm(variables):
    modules = os.environ.get("E2B_NODE")
    if not modules:
        pytest.skip("E2B_NODE names no directory with the client from npm")
    node = os.environ.get("E2B_NODE_PROGRAM", "node")
    script = pathlib.Path(__file__).with_name("client.mjs")
    done = subprocess.run([node, script, modules], text=True, capture_output=True, check=False,
                          timeout=300, env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout
