#!/usr/bin/env python3
"""bench/peers/wheels.py [--quick]

Views from Python: our wheel beside the one of sandfs 0.8, the same questions in
one process, in turn. Builds our wheel in release mode and puts both into an
environment below the target directory. The table goes to standard output and
to bench/results/wheels.md.
"""

import pathlib
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import Report, python_with  # noqa: E402

FILES = 10_000
EACH = 100
PEER = "sandfs==0.8.0"


def path_of(number):
    return f"/d{number // EACH:04}/f{number % EACH:02}"


class Ours:
    def __init__(self):
        from fractal import Vfs

        self.view = Vfs()

    def make_dir(self, path):
        self.view.mkdir(path)

    def entries(self, path):
        return self.view.scandir(path)

    def names(self, path):
        return self.view.list(path)


class Theirs:
    def __init__(self):
        import sandfs

        self.view = sandfs.Workspace()

    def make_dir(self, path):
        self.view.mkdir(path)

    def entries(self, path):
        return self.view.list(path)

    def names(self, path):
        return [entry.name for entry in self.view.list(path)]


def fill(side):
    for number in range(FILES // EACH):
        side.make_dir(f"/d{number:04}")
    for number in range(FILES):
        side.view.write(path_of(number), f"file {number}\n")


def times(side, many):
    """Nanoseconds of each step, the whole loop divided by its turns."""
    view = side.view
    paths = [path_of(number * 7919 % FILES) for number in range(many)]
    dirs = [path.rpartition("/")[0] for path in paths[: max(1, many // 50)]]

    def clock(work, over):
        start = time.perf_counter_ns()
        for item in over:
            work(item)
        return (time.perf_counter_ns() - start) / len(over)

    fork = view.fork()
    told = {
        "fork": clock(lambda _: view.fork(), paths),
        "read": clock(view.read, paths),
        "stat": clock(view.stat, paths),
        f"names of {EACH}": clock(side.names, dirs),
        f"entries of {EACH}": clock(side.entries, dirs),
        "write": clock(lambda path: fork.write(path, b"other\n"), paths),
    }
    small = view.fork()
    small.write(path_of(5), b"changed\n")
    assert [change.path for change in small.changes(view)] == [path_of(5)]
    told[f"changes, 1 of {FILES:,}"] = clock(lambda _: small.changes(view), paths)
    return told


def measure(rounds, many):
    sides = {"ours": Ours(), "theirs": Theirs()}
    for side in sides.values():
        fill(side)
    all_times = {}
    for number in range(rounds):
        order = list(sides) if number % 2 else list(sides)[::-1]
        for who in order:
            for step, ns in times(sides[who], many).items():
                all_times.setdefault(step, {}).setdefault(who, []).append(ns)
    for step, by in all_times.items():
        print(step, *(statistics.median(by[who]) for who in sides), sep="\t")


def main():
    quick = "--quick" in sys.argv
    if "--measure" in sys.argv:
        measure(3 if quick else 9, 500 if quick else 5000)
        return
    # Not from the folder of the package's source.
    again = [python_with(PEER), pathlib.Path(__file__).resolve(), "--measure", *sys.argv[1:]]
    done = subprocess.run(again, cwd="/", check=True, capture_output=True, text=True)
    report = Report("wheels", f"Views from Python: fractal and {PEER}", quick)
    report.add(f"{FILES:,} small files, {EACH} to a directory; nanoseconds for one call, the middle "
               "of all rounds. Ours lets go of the interpreter in each call and is safe from many "
               "threads; theirs is not.\n")
    rows = [["step", "ours ns", "theirs ns", "theirs / ours"]]
    for line in done.stdout.splitlines():
        step, ours, theirs = line.split("\t")
        ratio = float(theirs) / float(ours)
        rows.append([step, f"{float(ours):,.0f}", f"{float(theirs):,.0f}", f"{ratio:.2f}"])
    report.table(rows)
    report.write()


if __name__ == "__main__":
    main()
