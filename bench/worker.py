"""Does a piece of work per line of input and answers how long it took.

The same file runs inside and outside, so that work can be interleaved while
each side keeps its mounts and caches warm: `worker.py BUILD_DIR`.
"""

import json
import os
import resource
import subprocess
import sys
import time

for line in sys.stdin:
    command = line.rstrip("\n").replace("@BUILD@", sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answer = {"wall": wall, "cpu": cpu, "exit": done.returncode, "errors": done.stderr.decode()[-300:]}
    os.write(1, (json.dumps(answer) + "\n").encode())
