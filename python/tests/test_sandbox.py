"""Sandboxes of the real machine, through the engine."""

from __future__ import annotations

import os
import pathlib
import signal
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from conftest import interruptible

import fractal
from fractal import Sandbox, Vfs


@pytest.fixture
def project(home: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "notes.txt").write_text("one\n")
    return tmp_path


@pytest.fixture
def box(project: pathlib.Path) -> Iterator[Sandbox]:
    with Sandbox.clone(project) as box:
        yield box


def test_a_program_runs_in_a_clone(box: Sandbox, project: pathlib.Path) -> None:
    done = box.run("cat notes.txt; echo two >> notes.txt; echo oops >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == ("one\n", "oops\n", 3)
    assert done.outcome == "exited" and done.tier in ("clone", "masked", "rootless", "copied")
    assert [(c.path, c.kind) for c in box.changes()] == [(f"{project}/notes.txt", "modified")]
    assert [c.path for c in done.changes] == [f"{project}/notes.txt"]
    assert "+two" in box.diff()
    assert (project / "notes.txt").read_text() == "one\n"
    assert box.name in fractal.sandboxes()


def test_input_environment_and_words(box: Sandbox) -> None:
    assert box.run(["cat", "-"], stdin="in").stdout == "in"
    assert box.run(["sh", "-c", "echo $A"], env={"A": "x y"}).stdout == "x y\n"
    assert box.run("pwd", cwd="/").stdout == "/\n"


def test_limits_are_results_and_not_exceptions(box: Sandbox) -> None:
    done = box.run("sleep 60", timeout=0.3)
    assert (done.exit_code, done.outcome) == (124, "timeout")
    with pytest.raises(ValueError):
        box.run("true", memory=0)
    with pytest.raises(ValueError):
        box.run("true", network="everything")


def test_fork_snapshot_and_rollback(box: Sandbox) -> None:
    box.run("echo 1 > n")
    good = box.snapshot()
    box.run("echo 2 > n")
    with box.fork() as child:
        assert child.run("cat n").stdout == "2\n"
        box.rollback(good)
        assert box.run("cat n").stdout == "1\n" and child.run("cat n").stdout == "2\n"
    assert [c.kind for c in box.changes(good)] == []


def test_promote_and_undo(box: Sandbox, project: pathlib.Path) -> None:
    box.run("echo two >> notes.txt; echo new > new.txt")
    assert box.promote(dry_run=True).verdict == "planned"
    brought = box.promote()
    assert brought.verdict == "applied" and brought.undo_id
    assert (project / "notes.txt").read_text() == "one\ntwo\n"
    assert sorted(os.path.basename(path) for path in brought.applied) == ["new.txt", "notes.txt"]
    assert box.undo(brought).verdict == "applied"
    assert (project / "notes.txt").read_text() == "one\n" and not (project / "new.txt").exists()


def test_a_conflict_is_told_and_writes_nothing(box: Sandbox, project: pathlib.Path) -> None:
    box.run("echo mine > notes.txt")
    (project / "notes.txt").write_text("theirs\n")
    refused = box.promote()
    assert refused.verdict == "conflict" and "notes.txt" in refused.conflicts[0]
    assert (project / "notes.txt").read_text() == "theirs\n"


def test_errors_say_what_to_do(home: pathlib.Path, project: pathlib.Path, box: Sandbox) -> None:
    with pytest.raises(FileNotFoundError, match="no sandbox") as caught:
        Sandbox.open("nothing-like-it", project)
    assert caught.value.code == "not_found" and caught.value.hint  # type: ignore[attr-defined]
    with pytest.raises(FileExistsError):
        Sandbox.clone(project, box.name)
    with pytest.raises(NotADirectoryError):
        Sandbox.clone(project / "none")
    with pytest.raises(ValueError, match="no command"):
        box.run([])
    assert Sandbox.open(box.name).name == box.name
    assert box.info()["directory"] == str(project)


def test_dropping_twice_is_no_error(project: pathlib.Path) -> None:
    box = Sandbox.clone(project)
    box.drop()
    box.drop()
    assert box.name not in fractal.sandboxes()


def test_code_works_on_the_files_of_a_sandbox(box: Sandbox, project: pathlib.Path) -> None:
    def work(view: Vfs) -> None:
        view.append(f"{project}/notes.txt", "from python\n")
        view.write(f"{project}/d/x", "x", parents=True)

    done = box.edit(work, why="add a line")
    assert len(done.changes) == 3
    assert box.run("cat notes.txt d/x").stdout == "one\nfrom python\nx"
    assert box.view().read_text(f"{project}/d/x") == "x"
    assert box.view().exists("/etc/passwd") is False
    box.view().write(f"{project}/d/x", "only in the view")
    assert box.view().read_text(f"{project}/d/x") == "x"

    def broken(view: Vfs) -> None:
        view.write(f"{project}/kept", "")
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        box.edit(broken)
    assert box.view().exists(f"{project}/kept")


def test_scripts_in_memory(project: pathlib.Path) -> None:
    with Sandbox.create(project, world="virtual") as box:
        done = box.run("sed -i s/one/three/ notes.txt; cat notes.txt")
        assert (done.stdout, done.tier) == ("three\n", "virtual")
        assert box.run("cat notes.txt", world="native").stdout == "three\n"


def test_bounds_of_a_sandbox_hold_for_its_runs(project: pathlib.Path) -> None:
    with Sandbox.create(project, pids=50) as box:
        assert box.run("true", pids=40).exit_code == 0
        with pytest.raises(PermissionError) as caught:
            box.run("true", pids=500)
        assert caught.value.code == "denied"  # type: ignore[attr-defined]


def test_many_threads_run_at_once(project: pathlib.Path) -> None:
    said: dict[int, str] = {}

    def work(number: int) -> None:
        with Sandbox.clone(project) as box:
            for step in range(3):
                box.run(f"echo {number}-{step} >> notes.txt")
            said[number] = box.run("cat notes.txt").stdout

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {n: f"one\n{n}-0\n{n}-1\n{n}-2\n" for n in range(3)}


def test_a_forked_process_runs_too(box: Sandbox) -> None:
    box.run("true")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if box.run("echo child").stdout == "child\n" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert box.run("echo parent").stdout == "parent\n"


def test_an_interrupt_ends_a_run(box: Sandbox, project: pathlib.Path) -> None:
    program = textwrap.dedent(
        f"""
        from fractal import Sandbox
        box = Sandbox.open({box.name!r})
        try:
            box.run("echo begun > begun; sleep 60")
        except KeyboardInterrupt:
            print("interrupted", box.run("cat begun").stdout, end="")
        """
    )
    with interruptible(program) as started:
        # The run's layer shows what it wrote while it still runs.
        while not any(change.path.endswith("/begun") for change in box.changes()):
            assert started.poll() is None
            time.sleep(0.02)
        started.send_signal(signal.SIGINT)
        out, _ = started.communicate(timeout=60)
        assert out == "interrupted begun\n" and started.returncode == 0
