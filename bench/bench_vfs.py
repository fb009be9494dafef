"""Trees in memory: ours beside sandfs-core, the same questions in one process."""

import subprocess

from common import BENCH, TARGET, Report, p50

PROGRAM = TARGET / "release/bench-vfs"


def main(_place, quick):
    build = ["cargo", "build", "--release", "--quiet", "--target-dir", str(TARGET)]
    subprocess.run(build, cwd=BENCH / "vfs", check=True)
    report = Report("vfs", "Trees in memory: fractal-fs and sandfs-core 0.9", quick)
    report.add("Processor time of the calling thread in nanoseconds, the middle of all rounds; both "
               "are asked in turn. Ours is safe from many threads, theirs is not.\n")
    for entries in [10_000] if quick else [10_000, 1_000_000]:
        report.add(f"## {entries:,} small files, a hundred to a directory\n")
        times = asked("steps", entries, 3 if quick else 9)
        report.table(table(times))
        each = {who: asked("memory", who, entries)["memory"][who][0] for who in ("ours", "theirs")}
        report.add(f"Memory for each file: {each['ours']:.0f} bytes, theirs {each['theirs']:.0f}.\n")
    report.add("## Eight attempts\n")
    report.add("10,000 small files and one of 256 MiB; each of eight forks searches all small ones, "
               "rewrites 50, adds 10, deletes 5 and lists its changes.\n")
    report.table(table(asked("attempts", 3 if quick else 9)))
    report.write()


def asked(*words):
    """Nanoseconds by step and by whose."""
    done = subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True, text=True)
    times = {}
    for line in done.stdout.splitlines():
        step, who, ns = line.rsplit(" ", 2)
        times.setdefault(step, {}).setdefault(who, []).append(float(ns))
    return times


def table(times):
    rows = [["step", "ours ns", "theirs ns", "theirs / ours", "target"]]
    for step, by in times.items():
        ours, theirs = p50(by["ours"]), p50(by["theirs"])
        rows.append([step, f"{ours:,.0f}", f"{theirs:,.0f}", f"{theirs / ours:.2f}",
                     "≥ 1" if step in ("fork", "attempts", "fill") else "≥ 1.5"])
    return rows
