"""Load on the server: 64 clients, each create → run → diff → drop, again and
again; the same through the command line; and containers through podman's API
where podman can run, all in one go on one machine."""

import concurrent.futures
import http.client
import io
import itertools
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import tarfile
import threading
import time

from common import FRACTAL, Report, environment, p50, quantile, raise_open_files, running

CLIENTS = 64
COMMAND = ["sh", "-c", "echo hello > f"]


def main(place, quick):
    raise_open_files()
    report = Report("server", f"Load: {CLIENTS} clients on the server", quick)
    project = place / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    count = 1_000 if quick else 20_000
    few = 200 if quick else 500
    server, port, key = serve(place, project)
    try:
        warm(port, key)
        load, memory = through_server(server, port, key, count)
        alone = through_server(server, port, key, few, clients=1)[0]
        beside = {"the server, once more": through_server(server, port, key, few)[0],
                  "the command line": through_commands(place, project, few)}
    finally:
        server.terminate()
        server.wait()
    containers = through_podman(place, few)
    beside["podman's API"] = containers if isinstance(containers, Load) else None
    report.table(load.rows(f"{count} sandboxes, {CLIENTS} clients"))
    report.table(alone.rows(f"{few} sandboxes, one client"))
    report.table([["memory of the server (RSS)", "KiB"],
                  *[[f"after {done} sandboxes", kib] for done, kib in memory]])
    base = beside["the server, once more"]
    report.table([[f"{few} each, {CLIENTS} clients", "per second", "p50 ms", "p99 ms", "errors",
                   "× the server's rate"]]
                 + [[name, *side.summary(), f"{side.rate / base.rate:.2f}"] if side else
                    [name, "cannot run here", "", "", "", ""] for name, side in beside.items()])
    if not isinstance(containers, Load):
        report.add(f"podman: {containers}\n")
    report.add("One cycle is: make a sandbox, run a program in it that writes a file, ask for what changed, drop "
               "it; for podman: create, start, wait, changes, remove. The clients are Python threads in one process "
               "on the same processors, and cost what they cost.\n")
    report.write()


class Load:
    """Cycles of many clients: how long each step took, and what went wrong."""

    def __init__(self):
        self.steps, self.cycles, self.errors, self.rate = {}, [], [], 0.0

    def summary(self):
        return [f"{self.rate:.0f}", f"{p50(self.cycles):.1f}", f"{quantile(self.cycles, 0.99):.1f}", len(self.errors)]

    def rows(self, title):
        steps = [[name, "", f"{p50(ms):.1f}", f"{quantile(ms, 0.99):.1f}", ""] for name, ms in self.steps.items()]
        return [[title, "per second", "p50 ms", "p99 ms", "errors"], ["whole cycle", *self.summary()], *steps]


def drive(count, clients, cycle, progress=lambda done: None):
    """Has `clients` threads do `count` cycles; a cycle yields its steps' names
    after each of them."""
    load, numbers, lock = Load(), itertools.count(), threading.Lock()

    def client(_):
        worker = cycle()
        while (number := next(numbers)) < count:
            begun = last = time.perf_counter()
            try:
                for step in worker(number):
                    now = time.perf_counter()
                    with lock:
                        load.steps.setdefault(step, []).append((now - last) * 1e3)
                    last = now
            except (RuntimeError, OSError, http.client.HTTPException) as error:
                load.errors.append(f"{type(error).__name__}: {error}")
                worker = cycle()
                continue
            with lock:
                load.cycles.append((time.perf_counter() - begun) * 1e3)
            progress(len(load.cycles))

    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(client, range(clients)))
    load.rate = len(load.cycles) / (time.perf_counter() - begun)
    for error in load.errors[:3]:
        print(f"bench: {error}", flush=True)
    return load


def ask(connection, method, path, body=None, headers=None, expect=(200, 201, 204, 304)):
    text = None if body is None else json.dumps(body)
    more = {"Content-Type": "application/json"} if text else {}
    connection.request(method, path, text, {**more, **(headers or {})})
    response = connection.getresponse()
    answer = response.read()
    if response.status not in expect:
        raise RuntimeError(f"{method} {path}: {response.status} {answer[:200]!r}")
    return json.loads(answer) if answer[:1] in (b"{", b"[") else answer


def serve(place, project):
    home = place / "home"
    server = subprocess.Popen(
        [FRACTAL, "serve", "--json", "--listen", "127.0.0.1:0", "--log", "error"],
        cwd=project, env=environment(home), stdout=subprocess.PIPE, text=True)
    url = json.loads(server.stdout.readline())["listen"][0]
    made = subprocess.run([FRACTAL, "key", "create", "--role", "operator"], env=environment(home),
                          cwd=project, capture_output=True, text=True, check=True)
    return server, int(url.rsplit(":", 1)[1]), made.stdout.strip()


def warm(port, key):
    drive(20, 4, lambda: over_http(port, key))


def over_http(port, key):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Authorization": f"Bearer {key}"}

    def cycle(_):
        made = ask(connection, "POST", "/v1/sandboxes", {}, headers)
        yield "create"
        path = f"/v1/sandboxes/{made['name']}"
        run = ask(connection, "POST", f"{path}/run", {"command": COMMAND}, headers)
        if run["exit"] != 0:
            raise RuntimeError(f"exit {run['exit']}: {run['stderr']}")
        yield "run"
        diff = ask(connection, "GET", f"{path}/diff", None, headers)
        if [change["path"].rsplit("/", 1)[1] for change in diff["changes"]] != ["f"]:
            raise RuntimeError(f"another change than was made: {diff['changes']}")
        yield "diff"
        ask(connection, "DELETE", f"{path}?force=true", None, headers)
        yield "drop"

    return cycle


def through_server(server, port, key, count, clients=CLIENTS):
    memory, lock, marks = [(0, rss_kib(server.pid))], threading.Lock(), set(range(0, count + 1, max(1, count // 10)))

    def progress(done):
        with lock:
            if done in marks and done not in [at for at, _ in memory]:
                memory.append((done, rss_kib(server.pid)))

    load = drive(count, clients, lambda: over_http(port, key), progress)
    return load, memory


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def through_commands(place, project, count):
    def fractal(*words):
        done = subprocess.run([FRACTAL, *words], cwd=project, env=environment(place / "home"),
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}")
        return done.stdout

    def cycle(number):
        name = f"c{number}"
        fractal("run", "--name", name, "--", *COMMAND)
        yield "create and run"
        fractal("diff", name)
        yield "diff"
        fractal("drop", "--force", name)
        yield "drop"

    return drive(count, CLIENTS, lambda: cycle)


class Unix(http.client.HTTPConnection):
    """HTTP over a socket in the filesystem."""

    def __init__(self, path):
        super().__init__("d", timeout=120)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def through_podman(place, count):
    """The same with containers, or why not."""
    busybox = shutil.which("busybox")
    if not (shutil.which("podman") and busybox):
        return "podman or busybox is not installed"
    path = place / "podman.sock"
    words = ["podman", "--root", place / "podman", "--runroot", place / "podman-run", "--log-level", "error",
             "--cgroup-manager", "cgroupfs", *(["--runtime", "runc"] if shutil.which("runc") else [])]
    # Its own limits are more than a user may have who cannot raise them.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = place / "containers.conf"
    settings.write_text(f'[containers]\ndefault_ulimits = ["nofile={soft}:{hard}", "nproc=4096:4096"]\n')
    service = subprocess.Popen([*words, "system", "service", "--time", "0", f"unix://{path}"],
                               env={**os.environ, "CONTAINERS_CONF": str(settings)},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(path, service)
        connection = Unix(path)
        connection.request("POST", "/v4.0.0/libpod/images/import?reference=bench:latest", image(busybox),
                           {"Content-Type": "application/x-tar"})
        response = connection.getresponse()
        if response.status != 200:
            return f"no image: {response.read()[:200]!r}"
        response.read()
        first = drive(1, 1, lambda: container(path))
        if first.errors:
            return f"a container does not start here: {first.errors[0][:300]}"
        return drive(count, CLIENTS, lambda: container(path))
    except OSError as error:
        return str(error)
    finally:
        service.terminate()
        service.wait()
        # Its storage is a mount of itself, more than once.
        while subprocess.run(["umount", place / "podman/overlay"], capture_output=True, check=False).returncode == 0:
            pass


def wait_for(path, process):
    for _ in range(100):
        if path.exists() or not running(process.pid):
            break
        time.sleep(0.1)
    if not path.exists():
        raise OSError("its service did not start")


def image(busybox):
    """A filesystem with a shell, as an archive."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        archive.add(busybox, "bin/sh")
        for name in ("tmp", "proc", "dev", "sys", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return held.getvalue()


def container(path):
    connection = Unix(path)
    base = "/v4.0.0/libpod/containers"

    def cycle(_):
        made = ask(connection, "POST", f"{base}/create",
                   {"image": "localhost/bench:latest", "command": COMMAND, "netns": {"nsmode": "none"}})
        yield "create"
        one = f"{base}/{made['Id']}"
        ask(connection, "POST", f"{one}/start")
        ask(connection, "POST", f"{one}/wait")
        yield "run"
        ask(connection, "GET", f"{one}/changes")
        yield "diff"
        ask(connection, "DELETE", f"{one}?force=true&v=true")
        yield "drop"

    return cycle
