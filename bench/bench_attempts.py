"""Three attempts on a real, dirty checkout with a large build directory."""

import json
import os
import subprocess
import time

from common import FRACTAL, ROOT, Report, environment


def main(place, quick):
    megabytes = 100 if quick else 1200
    report = Report("attempts", f"Three attempts beside {megabytes:,} MB of build output", quick)
    project = checkout(place, megabytes)
    home = place / "home"
    rows = [["what", "live", "frozen", "target"]]
    times = {kind: [attempt(home, project, kind) for _ in range(3)] for kind in ("live", "frozen")}
    for at, (what, target) in enumerate([("first time", "live: < 2 s"), ("second time", "< 2 s"),
                                         ("third time", "< 2 s")]):
        rows.append([what, *(f"{times[kind][at]['seconds']:.2f} s" for kind in times), target])
    changed = times["live"][-1]
    rows.append(["disk for three attempts that change one line each", f"{changed['disk'] // 1024} KiB",
                 f"{times['frozen'][-1]['disk'] // 1024} KiB", "≈ bytes changed"])
    report.add("`fractal try -n 3 -- sh -c 'echo $FRACTAL_ATTEMPT >> README.md'`, from the command "
               "to the table, without checks:\n")
    report.table(rows)
    copy = time.monotonic()
    subprocess.run(["cp", "-a", project, place / "copy"], check=True)
    report.add(f"\n`cp -a` of the same directory, once: {time.monotonic() - copy:.2f} s\n")
    report.write()


def checkout(place, megabytes):
    project = place / "project"
    subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), project], check=True)
    (project / "SPEC.md").write_text("dirty\n")
    (project / "notes.txt").write_text("untracked\n")
    build = project / "target" / "debug" / "deps"
    build.mkdir(parents=True)
    block = os.urandom(1 << 20)
    for at in range(megabytes * 2):
        (build / f"object-{at:05}.o").write_bytes(block[: 1 << 19])
    return project


def attempt(home, project, kind):
    """One `try`; its time, and the disk space that it took."""
    before = usage(home)
    start = time.monotonic()
    argv = [FRACTAL, "try", "--json", "--base", kind, "-n", "3", "--",
            "sh", "-c", "echo $FRACTAL_ATTEMPT >> README.md"]
    done = subprocess.run(argv, cwd=project, env=environment(home), capture_output=True)
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise RuntimeError(f"try failed: {done.stderr.decode()}")
    names = [one["sandbox"] for one in json.loads(done.stdout)["attempts"]]
    if len(names) != 3:
        raise RuntimeError(f"{len(names)} attempts")
    return {"seconds": seconds, "disk": usage(home) - before}


def usage(home):
    if not home.exists():
        return 0
    layers = home / "layers"
    out = subprocess.run(["du", "-s", "--block-size=1", layers], capture_output=True, check=True)
    return int(out.stdout.split()[0])
