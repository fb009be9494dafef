"""How long until a program has started, run and ended: /bin/true."""

import shutil
import time

from common import BWRAP, Report, Stopwatch, interleave, timing_table

TRUE = ["/bin/true"]
PODMAN_IMAGE = "docker.io/library/busybox"


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
    if shutil.which("podman") and podman_works(watch):
        ways["podman run --rm"] = lambda: watch.exec(podman())["ms"]
    else:
        report.add("podman is left out: it is not installed, or has no image "
                   f"`{PODMAN_IMAGE}` (`podman pull {PODMAN_IMAGE}`).\n")
    return ways, {"library run --rm": 0.7, "CLI run --rm": 1.3, "CLI run --in x": 2.5}


def podman():
    return ["podman", "run", "--rm", "--network=none", "--pull=never", PODMAN_IMAGE, "/bin/true"]


def podman_works(watch):
    try:
        watch.exec(podman())
        return True
    except RuntimeError:
        return False


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
