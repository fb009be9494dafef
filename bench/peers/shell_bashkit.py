"""The work of `crates/shell/examples/speed.rs` in the bashkit wheel.

Reads {"files": {name: content}, "work": [[name, script]], "rounds": n} and
prints a line of `name<TAB>milliseconds<TAB>what it said` for each.
"""

import json
import sys
import time

import bashkit

asked = json.load(sys.stdin)
files = {f"/{name}": content for name, content in asked["files"].items()}
wide = dict(max_commands=10**9, max_loop_iterations=10**9, timeout_seconds=600.0)


def best(make, script):
    """The fastest of some rounds, each with a shell that `make` gives."""
    times, said = [], ""
    for _ in range(asked["rounds"]):
        shell = make()
        start = time.perf_counter()
        result = (shell or bashkit.Bash(**wide)).execute_sync(script)
        times.append(time.perf_counter() - start)
        said = result.stdout.strip()
    return min(times) * 1000, said


ms, said = best(lambda: None, "echo hi")
print(f"new shell and echo\t{ms:.3f}\t{said}")
shell = bashkit.Bash(files=files, cwd="/", **wide)
for name, script in asked["work"]:
    ms, said = best(lambda: shell, f"cd /; rm -rf new; {script}")
    print(f"{name}\t{ms:.3f}\t{said}", flush=True)
