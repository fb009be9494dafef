"""An agent with one tool, over a private filesystem.

The tool is `exec`: a shell script in, its output out. What the agent sees is a
view in memory: files of a template, the answer of a live SQLite query as files,
and scratch space. Nothing that it does reaches the machine; what it leaves in
`/outbox` is looked at when it is done.

The "model" here is a list of what a model would have said, so that the example
runs without a network and says the same every time. A real one goes where
`ScriptedModel` is: it is given what the tools answered and returns the next
call.

    python examples/agent/agent.py
"""

from __future__ import annotations

import json
import pathlib
import sqlite3
from collections.abc import Iterator

from fractal import Context, HostDir, Shell, Vfs

HERE = pathlib.Path(__file__).parent


class Orders:
    """Open orders of a database as files. Asked anew for each look."""

    def __init__(self, database: str) -> None:
        self.database = database

    def rows(self, where: str = "1", *values: object) -> list[sqlite3.Row]:
        # Providers answer on threads of their own, and so does each connection.
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as db:
            db.row_factory = sqlite3.Row
            query = f"SELECT * FROM orders WHERE shipped = 0 AND {where} ORDER BY id"
            return db.execute(query, values).fetchall()

    def list(self, context: Context) -> list[str]:
        return ["summary.tsv"] + [f"{row['id']}.json" for row in self.rows()]

    def read(self, context: Context) -> str:
        if context.at == "/summary.tsv":
            lines = [f"{row['id']}\t{row['days']}\t{row['customer']}\n" for row in self.rows()]
            return "".join(lines)
        (row,) = self.rows("id = ?", int(pathlib.PurePosixPath(context.at).stem))
        return json.dumps(dict(row), indent=1) + "\n"


class ScriptedModel:
    """What a model would have asked for, one call after the other."""

    def __init__(self) -> None:
        self.script: Iterator[str] = iter(
            [
                "cat README.md policies/*",
                "awk -F'\\t' '$2 > 7' orders/summary.tsv | tee scratch/late.tsv",
                "rm -f orders/17.json; echo oops > policies/late.md; ls orders | wc -l",
                'while IFS="$(printf "\\t")" read -r id days who; do\n'
                '  printf "Dear %s,\\norder %s has waited for %s days. We are sorry.\\n" '
                '"$who" "$id" "$days" > outbox/$id.txt\n'
                "done < scratch/late.tsv; ls outbox",
            ]
        )
        self.heard: list[str] = []

    def next_call(self, answer: str | None) -> str | None:
        if answer is not None:
            self.heard.append(answer)
        return next(self.script, None)


def desk(database: str) -> Vfs:
    """The agent's filesystem."""
    vfs = Vfs(bytes_max=16 << 20, who="agent")
    vfs.import_dir(HERE / "template")
    vfs.mount("/orders", Orders(database), max_age=0)
    for name in ("/scratch", "/outbox"):
        vfs.mkdir(name)
    vfs.set_access("/policies", "read_only")
    vfs.set_access("/outbox", "append_only")
    vfs.rebase()
    return vfs


def run(database: str) -> Vfs:
    """Lets the agent work, and returns what it left."""
    vfs = desk(database)
    shell, model = Shell(vfs, timeout=10), ScriptedModel()
    answer = None
    while (call := model.next_call(answer)) is not None:
        done = shell.run(call)
        answer = done.stdout + done.stderr + f"[exit {done.exit_code}]"
        print(f"$ {call}\n{answer}\n")
    return vfs


def sample(database: str) -> None:
    """Some orders to look at."""
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE orders (id INTEGER, customer TEXT, days INTEGER, shipped INTEGER)")
        rows = [(16, "Ann", 9, 0), (17, "Bob", 2, 0), (18, "Cy", 30, 1), (19, "Dee", 12, 0)]
        db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/shop.db"
        sample(database)
        left = run(database)
        print("left behind:")
        for change in left.changes():
            print(f"  {change.kind} {change.path}")
        for letter in left.glob("/outbox/*"):
            print(f"\n{letter}:\n{left.read_text(letter)}", end="")


if __name__ == "__main__":
    main()
