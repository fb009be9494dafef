"""What every benchmark needs: the stopwatch, a place to work, and tables.

Nothing here judges: a slow figure is printed, never an error. All figures of
one table come from one interleaved run (A B C, B C A, ...), so that a busy
machine slows every column alike and the ratios stay meaningful.
"""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
STOPWATCH = TARGET / "release/examples/bench"
FRACTAL = TARGET / "bench/fractal"

BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/",
         "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def install():
    """Puts the command where the benchmarks take it from, as it is after a boot. What a linker just wrote lies in
    the kernel's cache in the smallest pieces, and each page that a start touches costs a fault of its own."""
    FRACTAL.parent.mkdir(exist_ok=True)
    shutil.copy(TARGET / "release/fractal", FRACTAL)
    with open(FRACTAL, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def python_with(*packages):
    """An interpreter that has our wheel, built in release mode, and these packages."""
    place = TARGET / "wheels-bench"
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [python, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", "maturin", *packages], check=True)
    wheels = place / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT / "python"]
    path = f"{place}/bin:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "CARGO_TARGET_DIR": str(TARGET)}
    if (TARGET / "release/fractal").exists():
        variables["FRACTAL_PROGRAM"] = str(TARGET / "release/fractal")
    subprocess.run(build, env=variables, check=True)
    subprocess.run([*pip, "install", "--force-reinstall", "--no-deps", *wheels.glob("*.whl")], check=True)
    return python


class Stopwatch:
    """The Rust example that times one thing per line."""

    def __init__(self, home, cwd=None):
        self.home = pathlib.Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        raise_open_files()
        self.process = subprocess.Popen(
            [str(STOPWATCH), str(self.home)], cwd=cwd, text=True, bufsize=1,
            env=environment(self.home), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tier = json.loads(self.process.stdout.readline())["tier"]

    def ask(self, do, **fields):
        self.process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the stopwatch ended during `{do}`")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{do}: {answer['error']}")
        answer["ms"] = answer["ns"] / 1e6
        return answer

    def exec(self, argv, cwd=None):
        answer = self.ask("exec", argv=[str(word) for word in argv], cwd=cwd and str(cwd))
        if answer["exit"] != 0:
            raise RuntimeError(f"{' '.join(map(str, argv))}: exit {answer['exit']}")
        return answer

    def fractal(self, *words, cwd=None):
        """The command line on this stopwatch's state directory."""
        return self.exec([FRACTAL, "--home", self.home, *words], cwd=cwd)

    def run(self, command, cwd=None, **run):
        return self.ask("run", run={"command": [str(word) for word in command], **run},
                        cwd=cwd and str(cwd))

    def apply(self, action, cwd=None):
        return self.ask("apply", action=action, cwd=cwd and str(cwd))

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def environment(home):
    return {**os.environ, "FRACTAL_HOME": str(home)}


def raise_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Workplace:
    """A temporary directory that is gone afterwards, also after an interrupt.

    `/var/tmp` by default: it is on a disk where `/tmp` often is not, and a
    sandbox on disk should be measured on one. BENCH_DIR chooses another.
    """

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(143))
        parent = os.environ.get("BENCH_DIR", "/var/tmp")
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="fractal-bench-", dir=parent))
        return self.path

    def __exit__(self, *_):
        # A second signal must not stop the clean-up, nor the `rm` it starts.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Supervisors remove mounts and groups once their caller is gone, so
        # only the callers are killed; the rest follows, or is made to.
        below = descendants(os.getpid())
        kill([pid for pid in below if parent(pid) == os.getpid()])
        deadline = time.monotonic() + 10
        while any(map(running, below)) and time.monotonic() < deadline:
            time.sleep(0.02)
        kill(filter(running, below))
        # `rm` removes several hundred thousand files faster than Python.
        subprocess.run(["rm", "-rf", str(self.path)], check=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interleave(ways, rounds, pause=lambda: None, warm=2):
    """Calls every way once per round, in a new order each time; returns the
    milliseconds of each way. `pause` runs, unmeasured, between two calls."""
    order = random.Random(1)
    times = {name: [] for name in ways}
    for number in range(rounds + warm):
        names = list(ways)
        order.shuffle(names)
        for name in names:
            pause()
            ms = ways[name]()
            if number >= warm:
                times[name].append(ms)
    return times


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def p50(values):
    return statistics.median(values)


def p95(values):
    return quantile(values, 0.95)


def timing_table(times, baseline, targets=None):
    """Rows of p50, p95, ratio to the baseline's p50, and the target."""
    targets = targets or {}
    base = p50(times[baseline])
    rows = [["way", "n", "p50 ms", "p95 ms", f"× {baseline}", "target"]]
    for name, values in times.items():
        target = targets.get(name)
        rows.append([name, len(values), f"{p50(values):.2f}", f"{p95(values):.2f}",
                     f"{p50(values) / base:.2f}", f"≤ {target}×" if target else ""])
    return rows


class Report:
    """Prints while it goes and writes Markdown at the end."""

    def __init__(self, name, title, quick):
        self.name, self.quick, self.lines = name, quick, []
        self.load = os.getloadavg()[0]
        self.add(f"# {title}\n")

    def add(self, text=""):
        print(text, flush=True)
        self.lines.append(text)

    def table(self, rows):
        rows = [[str(cell) for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        def line(row):
            return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
        self.add("\n".join([line(rows[0]), "|" + "|".join("-" * (width + 2) for width in widths) + "|",
                            *map(line, rows[1:])]) + "\n")

    def write(self):
        commit = output(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])
        self.add(f"Taken {time.strftime('%Y-%m-%d %H:%M')} on {os.cpu_count()} cores, Linux "
                 f"{os.uname().release}, load average {self.load:.1f} before and "
                 f"{os.getloadavg()[0]:.1f} after, commit {commit}"
                 f"{', quick' if self.quick else ''}. Other work may have been going on: trust "
                 f"ratios within a table, never milliseconds across tables.")
        results = BENCH / "results"
        results.mkdir(exist_ok=True)
        (results / f"{self.name}.md").write_text("\n".join(self.lines) + "\n")


def output(argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def stat_fields(pid):
    """State, parent and so on; empty for a process that is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def running(pid):
    return stat_fields(pid)[:1] not in ([], ["Z"], ["X"])


def parent(pid):
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def descendants(pid):
    """Processes below `pid`, nearest first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children.setdefault(parent(entry), []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def make_files(directory, count, per_directory=1000, size=64):
    """A tree of small files."""
    content = b"x" * size
    for start in range(0, count, per_directory):
        below = pathlib.Path(directory) / f"d{start // per_directory:04}"
        below.mkdir(parents=True)
        for number in range(start, min(count, start + per_directory)):
            with open(below / f"f{number:06}", "wb") as file:
                file.write(content)
