"""Snapshot, rollback and fork of a sandbox with many changed files."""

import sqlite3
import subprocess
import time

from common import Report, Stopwatch, interleave, make_files, p50, p95


def main(place, quick):
    count = 20_000 if quick else 200_000
    report = Report("layers", f"Snapshot, rollback, fork of {count:,} changed files", quick)
    project = place / "project"
    project.mkdir()
    with Stopwatch(place / "home", cwd=project) as watch:
        first = first_times(watch, project, count)
        report.add("The first call after the run that wrote them, with all files still in the top:\n")
        report.table(first)
        repeated(report, watch, place, project, count, quick)
    report.write()


def fill(watch, project, name, count, where):
    """Writes the files from inside and waits until they are on disk."""
    script = (f"import os\nfor d in range({count} // 1000):\n"
              f" os.makedirs('{where}/%04d' % d)\n"
              f" for f in range(1000): open('{where}/%04d/%06d' % (d, f), 'w').write('x' * 64)\n")
    known = {"sandbox": name} if exists(watch, name) else {"name": name}
    done = watch.run(["python3", "-c", script], cwd=project, **known)
    if done["exit"] != 0:
        raise RuntimeError(f"could not fill `{name}`: {done}")
    watch.ask("settle")
    subprocess.run(["sync"], check=True)
    return done["ms"]


def exists(watch, name):
    listed = watch.apply({"action": "list", "all": True})["reply"]["sandboxes"]
    return any(sandbox["name"] == name for sandbox in listed)


def snapshot(name, label):
    return {"action": "snapshot", "sandbox": name, "name": label}


def rollback(name, label):
    return {"action": "rollback", "sandbox": name, "to": label}


def fork(name, label):
    return {"action": "fork", "sandbox": name, "name": label, "ttl_ms": None}


def first_times(watch, project, count):
    rows = [["verb", "ms", "target"]]
    fill(watch, project, "a", count, "one")
    rows.append(["snapshot", f"{watch.apply(snapshot('a', 'full'))['ms']:.2f}", "≤ 5"])
    fill(watch, project, "a", count, "two")
    rows.append(["rollback", f"{watch.apply(rollback('a', 'full'))['ms']:.2f}", "≤ 5"])
    fill(watch, project, "b", count, "one")
    rows.append(["fork", f"{watch.apply(fork('b', 'b-child'))['ms']:.2f}", "≤ 5"])
    return rows


def repeated(report, watch, place, project, count, quick):
    numbers = iter(range(1_000_000))
    def label():
        return f"n{next(numbers)}"
    ways = {
        "library snapshot": lambda: watch.apply(snapshot("a", label()))["ms"],
        "library rollback": lambda: watch.apply(rollback("a", "full"))["ms"],
        "library fork": lambda: watch.apply(fork("a", label()))["ms"],
        "CLI snapshot": lambda: watch.fractal("snapshot", "a", label(), cwd=project)["ms"],
        "CLI rollback": lambda: watch.fractal("rollback", "a", "full", cwd=project)["ms"],
        "CLI fork": lambda: watch.fractal("fork", "a", label(), cwd=project)["ms"],
    }
    def change():
        # A snapshot of an unchanged sandbox would have nothing to seal.
        (sandbox_top(watch, "a") / "small-change").write_text("x")
        time.sleep(0.002)
    times = interleave(ways, 10 if quick else 40, change)
    times |= others(place, count, 1 if quick else 2)
    rows = [["way", "n", "p50 ms", "p95 ms", "cp -a ÷ this", "target"]]
    for name, values in times.items():
        rows.append([name, len(values), f"{p50(values):.2f}", f"{p95(values):.2f}",
                     f"{p50(times['cp -a']) / p50(values):,.1f}", "≤ 5 ms" if name.startswith("library") else ""])
    report.add("Again and again, one small change between two calls (the files lie in a sealed layer):\n")
    report.table(rows)
    report.add("The verbs took turns with each other; `cp -a` and `git worktree add` took turns with each other "
               "afterwards, in the same run, because one of them takes longer than all verbs together.\n")


def sandbox_top(watch, name):
    """The top layer of a sandbox, through the only place that knows it."""
    database = sqlite3.connect(f"file:{watch.home / 'state.db'}?mode=ro", uri=True)
    try:
        (top,) = database.execute("select top from sandbox where name = ?", [name]).fetchone()
    finally:
        database.close()
    return watch.home / "layers" / top / "tree"


def others(place, count, rounds):
    """What people use today, on a tree of the same files."""
    tree = place / "tree"
    make_files(tree, count)
    git = ["git", "-C", str(tree), "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "tree"]):
        subprocess.run([*git, *words], check=True)
    def timed(argv, target):
        start = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ms = (time.perf_counter() - start) * 1e3
        subprocess.run(["rm", "-rf", str(target)], check=True)
        subprocess.run([*git, "worktree", "prune"], check=True)
        return ms
    copy, plain = place / "copy", place / "plain"
    # The same files without git's own.
    subprocess.run(["cp", "-al", str(tree), str(plain)], check=True)
    subprocess.run(["rm", "-rf", str(plain / ".git")], check=True)
    ways = {
        "cp -a": lambda: timed(["cp", "-a", str(plain), str(copy)], copy),
        "git worktree add": lambda: timed([*git, "worktree", "add", "--detach", str(copy), "HEAD"], copy),
    }
    return interleave(ways, rounds, warm=0)
