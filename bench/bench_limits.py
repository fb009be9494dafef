"""Hostile programs against their limits: what happens to them, and to us."""

import json
import pathlib
import subprocess
import threading
import time

from common import FRACTAL, Report, environment, p50, p95

ATTACKS = [
    ("fork bomb", ["--pids", "64", "--time", "5s"],
     "bomb() { bomb | bomb & }; bomb; sleep 3; echo stopped", "pids"),
    ("memory hog", ["--memory", "64m", "--time", "20s"],
     "python3 -c \"x = bytearray(1 << 30)\"", "outcome memory"),
    ("dd to a full disk", ["--disk", "16m", "--time", "20s"],
     "dd if=/dev/zero of=big bs=1M count=512", "ENOSPC or outcome disk"),
    ("sleep with traps", ["--time", "1s"],
     "trap '' TERM INT HUP; (trap '' TERM; sleep 1000) & sleep 1000; sleep 1000", "outcome timeout"),
    ("100 MB of output", ["--time", "20s"],
     "head -c 100000000 /dev/zero | tr '\\0' x", "bounded"),
]


def main(place, quick):
    report = Report("limits", "Limits", quick)
    home = place / "home"
    def fractal(*words):
        return subprocess.run([FRACTAL, "--home", home, *words], cwd=place, env=environment(home),
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
    fractal("run", "--rm", "--", "true")
    quiet = host_times(lambda: time.sleep(1))[1]
    rows = [["program", "limits", "outcome", "exit", "took s", "bytes kept", "says", "host's own `true`, p50 / p95 ms"],
            ["(nothing)", "", "", "", "1.00", "", "", quiet]]
    for name, limits, script, _ in ATTACKS:
        start = time.perf_counter()
        done, host = host_times(lambda: fractal("run", "--rm", "--json", *limits, "--", "bash", "-c", script))
        took = time.perf_counter() - start
        rows.append([name, " ".join(limits), *describe(done, took), host])
    report.table(rows)
    time.sleep(0.5)
    report.add(f"Processes of these runs still alive afterwards: {len(still_alive(home))}.\n")
    report.write()


def still_alive(home):
    """Supervisors and inits keep the environment of the call that made them."""
    mark, found = f"FRACTAL_HOME={home}".encode(), []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def describe(done, took):
    try:
        reply = json.loads(done.stdout)
    except ValueError:
        return [f"no reply: {done.stderr.decode()[-80:]!r}", done.returncode, f"{took:.2f}", "", ""]
    kept = len(reply["stdout"]) + len(reply["stderr"])
    lines = (reply["stderr"].strip() or reply["stdout"][-40:].strip()).splitlines()
    says = lines[-1][-60:].replace("|", "¦") if lines else ""
    return [reply["outcome"], done.returncode, f"{took:.2f}",
            f"{kept:,}{' (truncated)' if reply['truncated'] else ''}", says]


def host_times(work):
    """Does the work and meanwhile starts `true` on the host again and again."""
    times, over = [], threading.Event()
    def beat():
        while not over.is_set():
            start = time.perf_counter()
            subprocess.run(["/bin/true"], check=True)
            times.append((time.perf_counter() - start) * 1e3)
            time.sleep(0.02)
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        result = work()
    finally:
        over.set()
        thread.join()
    return result, f"{p50(times):.1f} / {p95(times):.1f}"
