"""Scripts in memory beside real bash on a tmpfs, the bashkit wheel and just-bash."""

import json
import os
import shutil
import subprocess
import sys

from common import BENCH, ROOT, TARGET, Report

PEERS = BENCH / "peers"
ROUNDS = 3


def main(place, quick):
    files = 2_000 if quick else 10_000
    build = ["cargo", "build", "--release", "--quiet", "--target-dir", str(TARGET)]
    subprocess.run([*build, "-p", "fractal-shell", "--example", "speed"], cwd=ROOT, check=True)
    program = TARGET / "release/examples/speed"
    tmpfs = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(place)
    report = Report("shell", "Scripts in memory: ours, bash on a tmpfs, bashkit, just-bash", quick)
    report.add(f"{files:,} files of 10 lines; the best of several rounds. Bash pays for being a "
               "program, and its commands for being programs. `≠` marks another answer than ours.\n")
    out = run([program, str(files), "--bash", tmpfs])
    ours, bash = {}, {}
    for name, ms, said in lines(out):
        (bash if name.startswith("bash: ") else ours)[name.removeprefix("bash: ")] = (ms, said)
    work = [line.split("\t", 1) for line in run([program, "--work"]).splitlines()]
    asked = json.dumps({"files": tree(files), "work": work, "rounds": ROUNDS})
    peers = {"bash": bash, "bashkit": in_bashkit(asked), "just-bash": in_just_bash(asked)}
    rows = [["", "ours, ms", *(f"{name} / ours" for name in peers)]]
    for name, (ms, said) in ours.items():
        rows.append([name, f"{ms:.3f}", *(cell(peer.get(name), ms, said) for peer in peers.values())])
    report.table(rows)
    if not quick:
        report.add("## By size of the tree\n")
        report.table(growth(program))
    report.write()


def run(command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def lines(text):
    for line in text.splitlines():
        name, ms, *said = line.split("\t")
        yield name, float(ms), (said or [""])[0]


def cell(theirs, ms, said):
    if theirs is None:
        return "–"
    return f"{theirs[0] / ms:.2f}" + ("" if theirs[1] == said or not said else " ≠")


def tree(files):
    def text(number):
        word = "needle" if number % 100 == 0 else "straw"
        return "".join(f"line {line} of file {number} with {word}\n" for line in range(10))
    return {f"tree/d{number // 100}/f{number}.txt": text(number) for number in range(files)}


def in_bashkit(asked):
    venv = TARGET / "bench-venv"
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "bashkit"], check=True)
    return answers([python, PEERS / "shell_bashkit.py"], asked)


def in_just_bash(asked):
    if not shutil.which("npm"):
        return {}
    home = TARGET / "bench-npm"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "node_modules/just-bash").exists():
        subprocess.run(["npm", "install", "--silent", "--prefix", home, "just-bash"], check=True)
    script = shutil.copy(PEERS / "shell_just_bash.mjs", home)
    return answers(["node", script], asked)


def answers(command, asked):
    done = subprocess.run(command, input=asked, text=True, capture_output=True)
    if done.returncode != 0:
        print(f"bench: {command[-1]}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return {name: (ms, said) for name, ms, said in lines(done.stdout)}


def growth(program):
    """Nothing may grow faster than the tree."""
    sizes = [10_000, 100_000, 1_000_000]
    found = [{name: ms for name, ms, _ in lines(run([program, str(size)]))} for size in sizes]
    rows = [["µs a file", *(f"{size:,} files" for size in sizes)]]
    for name in ["grep -r", "grep -rn regex", "find name", "find exec", "ls -R", "ls -lR"]:
        rows.append([name, *(f"{ms[name] * 1000 / size:.2f}" for ms, size in zip(found, sizes))])
    return rows
