"""The guide's program, as it stands there."""

import os
import pathlib
import re
import subprocess
import sys

GUIDE = pathlib.Path(__file__).parents[4] / "docs" / "guide" / "swe-rex.md"


def test_the_program_of_the_guide_runs(server):
    [program] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    words = re.search(r"fractal (key create .*)", GUIDE.read_text())[1].split()
    key = server.fractal(*words).strip()
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                          env={**os.environ, "SERVER": server.url, "KEY": key}, check=False)
    assert done.returncode == 0, done.stderr
    assert "mended\n1" in done.stdout
    assert "note" in server.fractal("diff", "task-1")
    server.fractal("drop", "task-1")
