"""The examples run, the guide's code holds, and docstrings tell the truth."""

from __future__ import annotations

import doctest
import pathlib
import subprocess
import sys

import pytest

import fractal

ROOT = pathlib.Path(__file__).parents[2]


def play(example: str) -> str:
    command = [sys.executable, "-I", ROOT / "examples" / example]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_agent_writes_its_letters_and_nothing_else() -> None:
    said = play("agent/agent.py")
    assert "16\t9\tAnn\n19\t12\tDee\n" in said
    # It may not change what is not its own.
    assert "policies/late.md: Read-only file system" in said and "\n4\n" in said
    left = said.partition("left behind:\n")[2]
    assert left.startswith(
        "  added /outbox/16.txt\n  added /outbox/19.txt\n  added /scratch/late.tsv\n"
    )
    assert "order 19 has waited for 12 days" in left


def test_an_api_is_files() -> None:
    said = play("http_provider/http_provider.py")
    assert "$ ls /issues\n1.json\n7.json\n" in said
    assert "It crashes\nCrash on start\n" in said
    assert "$ grep -l urgent /issues/*\n/issues/7.json\n" in said
    assert "$ jq -r .state /issues/2.json\nclosed\n" in said
    assert "the tracker says 404 Not Found" in said


def test_docstrings_tell_the_truth() -> None:
    assert doctest.testmod(fractal).failed == 0


def blocks(page: pathlib.Path) -> list[str]:
    found: list[str] = []
    inside: list[str] | None = None
    for line in page.read_text().splitlines():
        if line == "```python":
            inside = []
        elif line == "```" and inside is not None:
            found.append("\n".join(inside) + "\n")
            inside = None
        elif inside is not None:
            inside.append(line)
    return found


@pytest.mark.parametrize("page", ["docs/guide/python-package.md", "python/README.md"])
def test_the_code_of_a_page_runs(
    page: str, home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page, one after the other, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    code = blocks(ROOT / page)
    assert code
    known: dict[str, object] = {}
    for number, block in enumerate(code):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), known)
