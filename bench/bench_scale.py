"""Many sandboxes at once: memory of each, start, end, and right answers."""

import os
import pathlib
import signal
import time

from common import Report, Stopwatch, running


def main(place, quick):
    count = 100 if quick else 1000
    report = Report("scale", "Many sandboxes at once", quick)
    rows = [["what", "measured"]]
    with Stopwatch(place / "home", cwd=place) as watch:
        watch.ask("many", count=4)
        many = watch.ask("many", count=200)
        rows.append(["200 concurrent runs, right answers", f"{many['right']} of 200 in {many['ms'] / 1e3:.2f} s"])
        for wrong in many["wrong"][:3]:
            report.add(f"wrong: {wrong}\n")
        watch.ask("settle")
    report.table(rows)
    jail, engine = alive(place, count, False), alive(place, count, True)
    report.table([[f"{count} alive at once", "jail, one thread", "engine, a thread each", "target"]]
                 + [[what, jail[what][0], *engine[what]] for what in jail])
    report.add("Each sandbox is `sleep` with its supervisor and init, started by one process through "
               "the library. They end by kill -9 of that process: nobody is left to clean "
               "up but the supervisors themselves.\n")
    report.write()


def alive(place, count, engine):
    watch = Stopwatch(place / "home", cwd=place)
    before_groups, before_mounts = groups(), mounts()
    watch.run(["true"], discard=True)
    watch.ask("settle")
    before, others = available_kib(), set(processes())
    started = watch.ask("hold", count=count, engine=engine)
    time.sleep(0.5)
    after = available_kib()
    # Supervisors are children of the spawner, which is nobody's child.
    pids = [pid for pid in processes()
            if pid not in others and (name(pid) == "sleep" or name(pid).startswith("fractal-"))]
    pss = {}
    for pid in [*pids, watch.process.pid]:
        pss[name(pid)] = pss.get(name(pid), 0) + pss_kib(pid)
    parts = ", ".join(f"{who} {kib / count:.0f}" for who, kib in sorted(pss.items()))
    programs = [pid for pid in pids if name(pid) == "sleep"]
    start = time.perf_counter()
    os.kill(watch.process.pid, signal.SIGKILL)
    programs_gone = wait_gone(programs, start)
    all_gone = wait_gone(pids, start)
    watch.process.wait()
    left = len([group for group in groups() if group not in before_groups])
    each = started["ms"] / count
    return {
        "programs counted": [len(programs), count],
        "time until all have started": [f"{started['ms'] / 1e3:.2f} s ({each:.2f} ms each)", ""],
        "memory each, drop of MemAvailable": [f"{(before - after) / count:.0f} KiB", "≤ 512 KiB"],
        "memory each, PSS of its processes": [f"{sum(pss.values()) / count:.0f} KiB ({parts})", ""],
        "processes each": [f"{len(pids) / count:.2f}", ""],
        "time until all programs are gone": [f"{programs_gone:.2f} s", "< 2 s"],
        "time until supervisors are gone too": [f"{all_gone:.2f} s", ""],
        "groups left behind": [left, 0],
        "mounts left behind on the host": [mounts() - before_mounts, 0],
    }


def wait_gone(pids, start):
    """Seconds since `start` until none of them runs, at most a minute."""
    waiting = list(pids)
    while waiting and time.perf_counter() - start < 60:
        waiting = [pid for pid in waiting if running(pid)]
        time.sleep(0.005)
    return time.perf_counter() - start if not waiting else float("inf")


def processes():
    return [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]


def name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def pss_kib(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def available_kib():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    return 0


def groups():
    return {str(path) for path in pathlib.Path("/sys/fs/cgroup").glob("**/fractal-*")}


def mounts():
    return len(pathlib.Path("/proc/self/mountinfo").read_text().splitlines())
