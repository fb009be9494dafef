"""How long until a program has started, run and ended: /bin/true."""

import pathlib
import shutil
import subprocess
import tempfile
import time

from common import BWRAP, Report, Stopwatch, interleave, timing_table

TRUE = ["/bin/true"]
PODMAN_IMAGE = "localhost/fractal-bench"
# Podman's defaults need rights that a restricted root lacks; tried in order.
PODMAN_WAYS = [
    ["podman", "run"],
    ["podman", "run", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"],
    ["podman", "--runtime=runc", "run", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"],
]


def main(place, quick):
    report = Report("start", "Start of /bin/true", quick)
    with Stopwatch(place / "home", cwd=place) as watch:
        ways, targets = ways_to_start(watch, place, report)

        def pause():
            # What a way leaves behind to be torn down must not slow the next.
            watch.ask("settle")
            time.sleep(0.004)

        times = interleave(ways, 20 if quick else 200, pause, warm=5)
        base = "bubblewrap" if "bubblewrap" in times else "fork + exec"
        report.table(timing_table(times, base, targets))
        sustained(watch, report, 30 if quick else 200)
        beside_podman(watch, report, 3 if quick else 20)
    report.add("`+ clean-up` also waits until mounts and groups are gone, which a caller does not. "
               "Isolation tier: " + watch.tier + ".\n")
    report.write()


def ways_to_start(watch, place, report):
    def gone():
        start = time.perf_counter()
        watch.run(TRUE, discard=True)
        watch.ask("settle")
        return (time.perf_counter() - start) * 1e3

    ways = {"fork + exec": lambda: watch.exec(TRUE)["ms"]}
    if shutil.which("bwrap"):
        ways["bubblewrap"] = lambda: watch.exec(BWRAP + TRUE)["ms"]
    else:
        report.add("bubblewrap is not installed: `apt install bubblewrap`\n")
    ways["jail as a library"] = lambda: watch.ask("jail", command=TRUE)["ms"]
    ways["library run --rm"] = lambda: watch.run(TRUE, discard=True)["ms"]
    ways["library run --rm + clean-up"] = gone
    watch.run(TRUE, name="kept")
    ways["library run --in x"] = lambda: watch.run(TRUE, sandbox="kept")["ms"]
    watch.fractal("run", "--name", "x", "--", *TRUE, cwd=place)
    ways["CLI run --rm"] = lambda: watch.fractal("run", "--rm", "--", *TRUE, cwd=place)["ms"]
    ways["CLI run --in x"] = lambda: watch.fractal("run", "--in", "x", "--", *TRUE, cwd=place)["ms"]
    return ways, {"library run --rm": 0.7, "CLI run --rm": 1.3, "CLI run --in x": 2.5}


def beside_podman(watch, report, count):
    """A table of its own: it is slow enough to upset the others."""
    command = podman(watch)
    if not command:
        report.add("podman is left out: it does not work here "
                   "(`apt install podman busybox-static runc`).\n")
        return
    ways = {
        "CLI run --rm": lambda: watch.fractal("run", "--rm", "--", *TRUE)["ms"],
        "podman run --rm": lambda: watch.exec(command)["ms"],
    }
    report.add(f"Beside podman (`{' '.join(command)}`):\n")
    report.table(timing_table(interleave(ways, count, warm=1), "CLI run --rm"))


def podman(watch):
    """The first way to start podman that works here, or none."""
    if not shutil.which("podman") or not (image_exists() or make_image()):
        return None
    for way in PODMAN_WAYS:
        command = [*way, "--rm", "--network=none", "--pull=never", PODMAN_IMAGE, "/bin/true"]
        try:
            watch.exec(command)
            return command
        except RuntimeError:
            continue
    return None


def image_exists():
    return subprocess.run(["podman", "image", "exists", PODMAN_IMAGE], check=False).returncode == 0


def make_image():
    """An image of one file, since pulling one needs a registry."""
    busybox = shutil.which("busybox")
    if not busybox:
        return False
    with tempfile.TemporaryDirectory() as root:
        target = pathlib.Path(root) / "bin"
        target.mkdir()
        shutil.copy(busybox, target / "busybox")
        (target / "true").symlink_to("busybox")
        tar = subprocess.run(["tar", "-C", root, "-c", "."], check=True, capture_output=True)
        imported = subprocess.run(["podman", "import", "-", PODMAN_IMAGE], input=tar.stdout,
                                  capture_output=True, check=False)
        return imported.returncode == 0


def sustained(watch, report, count):
    """One after the other without a pause, in blocks that take turns:
    deferred clean-up shows here."""
    ways = {
        "bubblewrap": lambda: watch.exec(BWRAP + TRUE),
        "library run --rm": lambda: watch.run(TRUE, discard=True),
        "CLI run --rm": lambda: watch.fractal("run", "--rm", "--", *TRUE),
    }
    if not shutil.which("bwrap"):
        return
    def block(way):
        start = time.perf_counter()
        for _ in range(10):
            way()
        watch.ask("settle")
        return (time.perf_counter() - start) * 100
    blocks = {name: (lambda way=way: block(way)) for name, way in ways.items()}
    times = interleave(blocks, max(3, count // 10), warm=1)
    report.add("Back to back, clean-up included, per run:\n")
    report.table(timing_table(times, "bubblewrap"))
