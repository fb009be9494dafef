"""Work inside against the same work outside, on warm caches."""

import json
import os
import pathlib
import random
import subprocess
import sys

from common import BENCH, FRACTAL, Report, environment, p50

SNAPSHOTS = 50
FILES_WANTED = 20_000
TREE_BYTES_MAX = 600 << 20


def main(place, quick):
    report = Report("work", "Work inside and outside", quick)
    project = place / "project"
    project.mkdir()
    sources = c_project(project / "c", 20 if quick else 150)
    files, size = large_tree(project / "tree", 4000 if quick else FILES_WANTED * 3 // 2)
    report.add(f"C project of {sources} files, `make -j2` with gcc -O1; git repository of {files:,} files, "
               f"{size >> 20} MiB.\n")
    jobs = {
        f"compile {sources} C files": "rm -rf @BUILD@ && make -s -C c -j2 OUT=$PWD/@BUILD@",
        "git status": "git -C tree --no-optional-locks status --porcelain",
        "git grep": "git -C tree grep -c -e 'return [a-z]*error'",
        "grep -r": "grep -rc 'return [a-z]*error' tree",
    }
    sides, depth = start_sides(place, project)
    if depth < SNAPSHOTS:
        report.add(f"A run on {depth + 1} snapshots could not start; measured on {depth}.\n")
    try:
        measure(report, sides, jobs, 3 if quick else 5)
    finally:
        for worker in sides.values():
            worker.stdin.close()
        for worker in sides.values():
            worker.wait(60)
    report.write()


def start_sides(place, project):
    """One worker per side; each stays in its sandbox for the whole run."""
    home = place / "home"
    def fractal(*words):
        subprocess.run([FRACTAL, "--home", home, "--quiet", *words], cwd=project, check=True,
                       env=environment(home), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    depth = 0
    for number in range(SNAPSHOTS):
        where = ["--in", "deep"] if number else ["--name", "deep"]
        try:
            fractal("run", *where, "--", "sh", "-c",
                    f"echo // {number} >> c/src/unit0.c; mkdir -p tree/new; echo {number} > tree/new/{number}")
        except subprocess.CalledProcessError:
            fractal("rollback", "deep", f"s{depth - 2}")
            depth -= 1
            break
        fractal("snapshot", "deep", f"s{depth}")
        depth += 1
    python = sys.executable
    def worker(prefix, build):
        return subprocess.Popen([*prefix, python, "-B", str(project / "worker.py"), build], cwd=project, text=True,
                                bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home))
    (project / "worker.py").write_text((BENCH / "worker.py").read_text())
    # The limits of the default policy stay on: they are part of the price.
    inside = [str(FRACTAL), "--home", str(home), "--quiet", "run"]
    sides = {
        "outside": worker([], "build-outside"),
        **({"overlayfs alone": worker(bare_overlay(place), "build-bare")} if os.geteuid() == 0 else {}),
        "throw-away": worker([*inside, "--rm", "--"], "build-memory"),
        "kept": worker([*inside, "--name", "flat", "--"], "build-kept"),
        f"{depth} snapshots": worker([*inside, "--in", "deep", "--"], "build-deep"),
    }
    return sides, depth


def bare_overlay(place):
    """The kernel's copy-on-write by hand and nothing else of ours: what of the price is not ours to lower."""
    room = place / "bare"
    room.mkdir()
    script = (f"mount -t tmpfs none {room} && mkdir {room}/top {room}/work {room}/root && "
              f"mount -t overlay -o lowerdir=/,upperdir={room}/top,workdir={room}/work none {room}/root && "
              f'cd "{room}/root$PWD" && exec "$@"')
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def measure(report, sides, jobs, rounds):
    order, taken = random.Random(1), {}
    for job, command in jobs.items():
        for number in range(rounds + 2):
            names = list(sides)
            order.shuffle(names)
            for side in names:
                answer = ask(sides[side], command)
                if number >= 2:
                    taken.setdefault((job, side), []).append(answer)
    for what, key in (("Wall-clock time", "wall"), ("Processor time", "cpu")):
        rows = [["job", "outside p50 s", *[f"{side}, × outside" for side in sides if side != "outside"], "target"]]
        for job in jobs:
            seconds = {side: p50([answer[key] for answer in taken[job, side]]) for side in sides}
            ratios = [f"{ratio(taken, job, side, key):.2f} ({seconds[side] / seconds['outside']:.2f})"
                      for side in sides if side != "outside"]
            rows.append([job, f"{seconds['outside']:.3f}", *ratios, "≤ 1.05"])
        report.add(f"{what}: median over {rounds} rounds of inside ÷ outside in the same round (in brackets: "
                   "ratio of the p50s):\n")
        report.table(rows)


def ratio(taken, job, side, key):
    pairs = zip(taken[job, side], taken[job, "outside"])
    return p50([inside[key] / outside[key] for inside, outside in pairs])


def ask(worker, command):
    worker.stdin.write(command + "\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a worker ended early")
    answer = json.loads(line)
    if answer["exit"] not in (0, 1):
        raise RuntimeError(f"`{command}` failed inside: {answer['errors']}")
    return answer


def c_project(path, count):
    """Sources of a realistic size: a few hundred lines and common headers."""
    (path / "src").mkdir(parents=True)
    for unit in range(count):
        body = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", "#include <errno.h>",
                "struct item { long key; char name[32]; struct item *next; };"]
        for number in range(25):
            body.append(f"""
static long step_{unit}_{number}(struct item *list, long seed) {{
    long sum = seed;
    for (struct item *at = list; at; at = at->next) {{
        if (at->key % {number + 2} == 0) sum += at->key * {unit + 3};
        else if (strlen(at->name) > {number % 31}) sum ^= (long)at->name[{number % 31}];
        switch (sum & 7) {{ case 0: sum += 3; break; case 1: sum -= {number}; break; default: sum *= 5; }}
    }}
    return sum;
}}""")
        calls = " + ".join(f"step_{unit}_{number}(list, seed)" for number in range(25))
        body.append(f"long unit_{unit}(struct item *list, long seed) {{ return {calls}; }}")
        (path / f"src/unit{unit}.c").write_text("\n".join(body) + "\n")
    (path / "Makefile").write_text(
        "UNITS := $(patsubst src/%.c,$(OUT)/%.o,$(wildcard src/*.c))\n"
        "$(OUT)/all.a: $(UNITS)\n\tar rcs $@ $^\n"
        "$(OUT)/%.o: src/%.c | $(OUT)\n\tgcc -O1 -c -o $@ $<\n"
        "$(OUT):\n\tmkdir -p $@\n")
    return count


def large_tree(path, wanted):
    """Copies real sources of this machine until there are enough files."""
    home = pathlib.Path(os.path.expanduser("~"))
    places = [home / ".cargo/registry/src", pathlib.Path("/usr/include"), *sorted(pathlib.Path("/usr/lib").glob("python3*")),
              pathlib.Path("/usr/share/doc"), pathlib.Path("/usr/share/perl"), home / ".rustup/toolchains",
              *sorted(home.glob(".pyenv/versions/*/lib/python3*")), pathlib.Path("/usr/share")]
    count = size = 0
    for number, place in enumerate(places):
        for parent, dirs, names in os.walk(place):
            dirs[:] = [name for name in dirs if name not in (".git", "__pycache__")]
            target = path / str(number) / os.path.relpath(parent, place)
            for name in names:
                source = os.path.join(parent, name)
                if os.path.islink(source) or not os.path.isfile(source) or os.path.getsize(source) > 1 << 20:
                    continue
                if name == ".gitignore" or count >= wanted or size > TREE_BYTES_MAX:
                    continue
                target.mkdir(parents=True, exist_ok=True)
                content = pathlib.Path(source).read_bytes()
                (target / name).write_bytes(content)
                count, size = count + 1, size + len(content)
            if count >= wanted or size > TREE_BYTES_MAX:
                break
    git = ["git", "-C", str(path), "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    for words in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "tree"]):
        subprocess.run([*git, *words], check=True, stdin=subprocess.DEVNULL)
    # A git index is only trusted a second after the files it describes.
    subprocess.run([*git, "status", "--porcelain"], check=True, stdout=subprocess.DEVNULL)
    return count, size
