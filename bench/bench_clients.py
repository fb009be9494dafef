"""What a way in costs: E2B's own client, our Python package (in process, by the
server's socket, over HTTP with a key) and the command line, side by side on one
state directory: the first echo in a new sandbox, a thousand programs in one
that is there, and a large file up and down."""

import functools
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

from common import BENCH, FRACTAL, Report, environment, interleave, p50, python_with, timing_table

PEER = "e2b==2.63.0"
FILE_BYTES = 100_000_000


def main(place, quick):
    python = python_with(PEER)
    project, home = place / "project", place / "home"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    server = subprocess.Popen(
        [FRACTAL, "serve", "--json", "--listen", "127.0.0.1:0", "--log", "error"],
        cwd=project, env=environment(home), stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(server.stdout.readline())["listen"][0]
        asked = [FRACTAL, "--json", "env", "e2b", "--url", url]
        said = subprocess.run(asked, cwd=project, env=environment(home), check=True, capture_output=True, text=True)
        made = subprocess.run([FRACTAL, "key", "create", "--role", "operator"], cwd=project,
                              env=environment(home), check=True, capture_output=True, text=True)
        known = {**json.loads(said.stdout), "BENCH_KEY": made.stdout.strip(), "BENCH_URL": url, "BENCH_SOCKET": f"unix://{home}/server.sock"}
        worker = [python, BENCH / "bench_clients.py", *(["--quick"] if quick else [])]
        told = subprocess.run(worker, cwd=project, env={**environment(home), **known}, check=True,
                              stdout=subprocess.PIPE, text=True)
    finally:
        server.terminate()
        server.wait()
    report = Report("clients", f"Ways in: {PEER}, the package, the command line", quick)
    times = json.loads(told.stdout)
    for step, by in times.items():
        report.add(f"**{step}**\n")
        rows = timing_table(by, "package, in process")
        report.table([[*row[:-1]] for row in rows])
    transfers = [[name, *(f"{FILE_BYTES / 1e3 / p50(times[step][name]):,.0f}" for step in list(times)[2:])]
                 for name in times["100 MB up"]]
    report.table([["100 MB", "up MB/s", "down MB/s"], *transfers])
    report.add("Every sandbox stands on the same project and state directory, and every output and file is compared. "
               "The command line finds the server and asks it, as it does wherever one runs; \"alone\" asks none. "
               "E2B's client starts each command through the program that speaks its protocol inside the sandbox; "
               "the others start it as a run of its own, with limits, usage and changes of its own.\n")
    report.write()


# From here on: in an interpreter that has both packages.


class Package:
    def __init__(self, **how):
        from fractal import SandboxClient

        self.client = SandboxClient(**how)
        self.directory = "." if how.get("key") is None else None

    def create(self):
        return self.client.create(self.directory)

    def run(self, box, *words):
        return box.commands.run(list(words)).stdout

    def write(self, box, data):
        box.files.write("large", data)

    def read(self, box):
        return box.files.read("large", "bytes")

    def drop(self, box):
        box.drop(force=True)


class Theirs:
    def create(self):
        from e2b import Sandbox

        return Sandbox.create()

    def run(self, box, *words):
        return box.commands.run(" ".join(words)).stdout

    def write(self, box, data):
        box.files.write("/tmp/large", data)

    def read(self, box):
        return bytes(box.files.read("/tmp/large", format="bytes"))

    def drop(self, box):
        box.kill()


class CommandLine:
    """It makes a sandbox with the first run in it."""

    def __init__(self, *options):
        self.options, self.made = options, 0

    def ask(self, *words):
        done = subprocess.run([FRACTAL, "--quiet", *self.options, *words], stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    def create(self):
        self.made += 1
        return Named(f"line{len(self.options)}-{self.made}")

    def run(self, box, *words):
        where, box.there = ("--in" if box.there else "--name"), True
        return self.ask("run", where, box.name, "--", *words)

    def write(self, box, data):
        pathlib.Path("../up").write_bytes(data)
        self.ask("cp", "../up", f"{box.name}:{os.getcwd()}/large")

    def read(self, box):
        self.ask("cp", f"{box.name}:{os.getcwd()}/large", "../down")
        return pathlib.Path("../down").read_bytes()

    def drop(self, box):
        self.ask("drop", "--force", box.name)


@dataclasses.dataclass
class Named:
    name: str
    there: bool = False


def measure(quick):
    ways = {
        "package, in process": Package(),
        "package, by socket": Package(url=os.environ["BENCH_SOCKET"]),
        "package, HTTP and key": Package(url=os.environ["BENCH_URL"], key=os.environ["BENCH_KEY"]),
        "E2B's client": Theirs(),
        "command line": CommandLine(),
        "command line, alone": CommandLine("--no-server"),
    }
    creating = {name: lambda way=way: first_echo(way) for name, way in ways.items()}
    times = {"create, first `echo`": interleave(creating, 4 if quick else 40)}
    boxes = {name: way.create() for name, way in ways.items()}
    for name, way in ways.items():
        assert way.run(boxes[name], "echo", "there") == "there\n"
    running = {name: lambda way=way, box=boxes[name]: clock(way.run, box, "true")[0] for name, way in ways.items()}
    times[f"`true` in a sandbox that is there, {50 if quick else 1000:,} ×"] = interleave(running, 50 if quick else 1000)
    data = os.urandom(FILE_BYTES)
    up = {name: lambda way=way, box=boxes[name]: clock(way.write, box, data)[0] for name, way in ways.items()}
    down = {name: lambda way=way, box=boxes[name]: compared(way, box, data) for name, way in ways.items()}
    times["100 MB up"] = interleave(up, 2 if quick else 7, warm=1)
    times["100 MB down"] = interleave(down, 2 if quick else 7, warm=1)
    for name, way in ways.items():
        way.drop(boxes[name])
    print(json.dumps(times))


def clock(work, *words):
    start = time.perf_counter()
    done = work(*words)
    return (time.perf_counter() - start) * 1e3, done


def first_echo(way):
    def begin():
        box = way.create()
        return box, way.run(box, "echo", "hello")

    ms, (box, said) = clock(begin)
    assert said == "hello\n", said
    way.drop(box)
    return ms


def compared(way, box, data):
    ms, read = clock(way.read, box)
    assert read == data
    return ms


if __name__ == "__main__":
    measure("--quick" in sys.argv)
