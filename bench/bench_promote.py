"""Bringing many changed files into a directory: promote, undo, cp, git."""

import json
import subprocess
import time

from common import FRACTAL, Report, environment, interleave, make_files, p50, p95

# Every changed file is replaced as a whole, as build tools and editors do.
CHANGE = """
import os
for folder, _, names in os.walk('.'):
    for name in names:
        path = os.path.join(folder, name)
        with open(path + '~', 'wb') as file:
            file.write(b'y' * 80)
        os.rename(path + '~', path)
"""


def main(place, quick):
    count = 5_000 if quick else 100_000
    report = Report("promote", f"Writing {count:,} changed small files into a directory", quick)
    project, home = place / "project", place / "home"
    make_files(project, count)
    fractal(home, project, "run", "--name", "x", "--quiet", "--", "python3", "-c", CHANGE)
    source, target = place / "changed", place / "copied"
    make_files(source, count, size=80)
    make_files(target, count)
    repository(place / "repository", source, count)
    ways = {
        "cp -a, sync": lambda: timed(["cp", "-a", f"{source}/.", target], target),
        "git checkout, sync": lambda: checkout(place / "repository"),
        "fractal promote": lambda: promote(home, project, count),
    }
    undos = []

    def pause():
        # The tree is old again before the next one; an undo is timed aside.
        start = time.monotonic()
        if (project / "d0000/f000000").stat().st_size == 80:
            fractal(home, project, "undo", "--quiet")
            undos.append((time.monotonic() - start) * 1e3)
        subprocess.run(["sync"], check=True)

    times = interleave(ways, 3, pause, warm=1)
    pause()
    times["fractal undo"] = undos[1:]
    table(report, times, count)
    phases(report, home, project, count)
    report.write()


def fractal(home, project, *words):
    done = subprocess.run([FRACTAL, *words], cwd=project, env=environment(home), check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"fractal {words[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def promote(home, project, count):
    start = time.monotonic()
    reply = json.loads(fractal(home, project, "promote", "x", "--json"))
    if len(reply["applied"]) != count:
        raise RuntimeError(f"{len(reply['applied'])} of {count} files were promoted")
    return (time.monotonic() - start) * 1e3


def timed(argv, where):
    """Until it is on disk: what we do is, when we say so."""
    start = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["sync", "-f", where], check=True)
    return (time.monotonic() - start) * 1e3


def repository(path, source, count):
    make_files(path, count)
    settings = {"user.name": "bench", "user.email": "bench@localhost", "gc.auto": "0"}
    git(path, "init", "-q")
    for name, value in settings.items():
        git(path, "config", name, value)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "old")
    git(path, "branch", "old")
    subprocess.run(["cp", "-a", f"{source}/.", path], check=True)
    git(path, "commit", "-qam", "new")
    git(path, "branch", "new")


def git(path, *words):
    subprocess.run(["git", "-C", path, *words], check=True, stdout=subprocess.DEVNULL)


def checkout(path):
    git(path, "checkout", "-q", "old")
    subprocess.run(["sync"], check=True)
    return timed(["git", "-C", path, "checkout", "-q", "new"], path)


def table(report, times, count):
    base = p50(times["cp -a, sync"])
    rows = [["way", "n", "p50 s", "p95 s", "files/s", "× cp -a", "target"]]
    for name, values in times.items():
        middle = p50(values)
        rows.append([name, len(values), f"{middle / 1e3:.2f}", f"{p95(values) / 1e3:.2f}",
                     f"{count / middle * 1e3:,.0f}", f"{middle / base:.2f}",
                     "≤ 1.5×" if name == "fractal promote" else ""])
    report.table(rows)
    report.add("`cp -a` writes over the old files: it compares nothing, keeps nothing, and a crash "
               "leaves a mixture. Promoting weighs every file against what is there, keeps what it "
               "replaces, and leaves old or new.\n")


def phases(report, home, project, count):
    """How much of it is looking, from a rehearsal without writing."""
    start = time.monotonic()
    fractal(home, project, "promote", "x", "--dry-run", "--json")
    looked = time.monotonic() - start
    report.add(f"Weighing {count:,} files without writing any (`--dry-run`): {looked:.2f} s.\n")
