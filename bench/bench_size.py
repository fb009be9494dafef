"""The price of a clone must not depend on how much is cloned."""

import time

from common import Report, Stopwatch, interleave, make_files, p50, p95

SMALL, LARGE = 10, 200_000


def main(place, quick):
    large = 20_000 if quick else LARGE
    report = Report("size", f"`run -- true` beside {SMALL} and {large:,} files", quick)
    dirs = {SMALL: place / "small", large: place / "large"}
    for count, path in dirs.items():
        make_files(path, count)
    with Stopwatch(place / "home", cwd=place) as watch:
        ways = {}
        for count, path in dirs.items():
            kept = f"kept-{count}"
            watch.fractal("run", "--name", kept, "--", "true", cwd=path)
            ways |= {
                ("CLI run --rm", count): lambda path=path: watch.fractal("run", "--rm", "--", "true", cwd=path)["ms"],
                ("CLI run --in x", count): lambda path=path, kept=kept: watch.fractal("run", "--in", kept, "--", "true", cwd=path)["ms"],
                ("library run --rm", count): lambda path=path: watch.run(["true"], cwd=path, discard=True)["ms"],
                ("library run --in x", count): lambda path=path, kept=kept: watch.run(["true"], cwd=path, sandbox=kept)["ms"],
            }

        def pause():
            watch.ask("settle")
            time.sleep(0.004)

        times = interleave(ways, 10 if quick else 60, pause)
    rows = [["way", f"p50 / p95 ms, {SMALL} files", f"p50 / p95 ms, {large:,} files", "ratio", "target"]]
    for way in dict.fromkeys(way for way, _ in ways):
        few, many = times[way, SMALL], times[way, large]
        rows.append([way, f"{p50(few):.2f} / {p95(few):.2f}", f"{p50(many):.2f} / {p95(many):.2f}",
                     f"{p50(many) / p50(few):.2f}", "≤ 1.2×"])
    report.table(rows)
    report.write()
