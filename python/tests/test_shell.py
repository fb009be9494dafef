"""Scripts over a view."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
import time

import pytest

from conftest import interruptible

from fractal import Call, CommandResult, Shell, Vfs


def test_exec_tells_output_and_status(vfs: Vfs) -> None:
    vfs.write("/a.txt", "x\nyx\nz\n")
    done = vfs.exec("ls | grep a; grep -c x a.txt; echo oops >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == ("a.txt\n2\n", "oops\n", 3)
    assert done.ended == "exited" and not done.truncated
    assert repr(CommandResult("a", "b", 1)) == "CommandResult(stdout='a', stderr='b', exit_code=1)"


def test_exec_takes_input_environment_and_directory(vfs: Vfs) -> None:
    vfs.mkdir("/work")
    done = vfs.exec("cat; echo $NAME; pwd", stdin="in\n", env={"NAME": "v"}, cwd="/work")
    assert done.stdout == "in\nv\n/work\n"
    assert vfs.exec("echo $PATH", env=os.environ).stdout == os.environ["PATH"] + "\n"
    assert vfs.exec("printf '\\xff'").stdout_bytes == b"\xff"


def test_a_script_that_takes_too_long_is_ended(vfs: Vfs) -> None:
    done = vfs.exec("echo begun; while :; do :; done", timeout=0.2)
    assert (done.exit_code, done.ended, done.stdout) == (124, "timeout", "begun\n")
    with pytest.raises(ValueError):
        vfs.exec("true", timeout=-1)


def test_nothing_of_the_host_is_in_reach(vfs: Vfs) -> None:
    os.environ["FRACTAL_TEST_SECRET"] = "s"
    try:
        assert vfs.exec("env | grep SECRET; cat /etc/passwd 2>/dev/null").stdout == ""
    finally:
        del os.environ["FRACTAL_TEST_SECRET"]


def test_a_session_keeps_directory_and_variables(vfs: Vfs) -> None:
    shell = Shell(vfs, env={"A": "1"})
    shell.run("mkdir -p /d/e; cd /d; B=2; f() { echo f$1; }")
    assert shell.run("pwd; echo $A$B; f x").stdout == "/d\n12\nfx\n"
    assert shell.cwd == "/d"
    shell.cd("/d/e")
    shell.set_env("C", "3")
    assert shell.run("pwd; env | grep ^C=").stdout == "/d/e\nC=3\n"
    with pytest.raises(FileNotFoundError):
        shell.cd("/none")


def test_callables_are_commands(vfs: Vfs) -> None:
    def greet(call: Call) -> str:
        call.view.append("/log", f"{call.cwd} {call.path('x')}\n")
        return f"hello {' '.join(call.args)} {call.stdin.decode()}{call.env['WHO']}\n"

    def broken(call: Call) -> None:
        raise RuntimeError("on purpose")

    vfs.register("greet", greet)
    vfs.register("broken", broken)
    vfs.register("status", lambda call: 7)
    vfs.register("result", lambda call: CommandResult("out", b"err", 4))
    vfs.mkdir("/w")
    done = vfs.exec("printf in | greet a b; status; echo $?; result", env={"WHO": "me"}, cwd="/w")
    assert (done.stdout, done.stderr, done.exit_code) == ("hello a b inme\n7\nout", "err", 4)
    assert vfs.read_text("/log") == "/w /w/x\n"
    done = vfs.fork().exec("broken || echo went on")
    assert done.stdout == "went on\n" and done.stderr == "broken: RuntimeError: on purpose\n"
    with pytest.raises(TypeError):
        vfs.register("x", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        vfs.register("a b", greet)


def test_a_command_may_run_a_script_itself(vfs: Vfs) -> None:
    vfs.register("twice", lambda call: call.view.exec(f"echo {call.args[0]}{call.args[0]}"))
    assert vfs.exec("twice ab | rev").stdout == "baba\n"


def test_one_session_runs_one_script_at_a_time(vfs: Vfs) -> None:
    shell = Shell(vfs)
    inside = threading.Event()
    shell.register("wait", lambda call: inside.set())
    shell.register("itself", lambda call: shell.cwd)
    assert "already" in shell.run("itself").stderr
    runner = threading.Thread(target=shell.run, args=("wait; while :; do :; done",))
    runner.start()
    assert inside.wait(10)
    with pytest.raises(RuntimeError, match="already"):
        shell.run("true")
    while runner.is_alive():
        shell.cancel()
        runner.join(0.05)
    assert shell.run("echo again").stdout == "again\n"


def test_other_threads_go_on_meanwhile(vfs: Vfs) -> None:
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    vfs.exec("while :; do :; done", timeout=0.5)
    stop.set()
    thread.join()
    assert len(ticks) > 10


def test_an_interrupt_ends_a_script() -> None:
    program = textwrap.dedent(
        """
        from fractal import Vfs
        vfs = Vfs()
        vfs.register("begun", lambda call: print("begun", flush=True))
        try:
            vfs.exec("begun; while :; do :; done")
        except KeyboardInterrupt:
            print("interrupted", vfs.exec("echo fine").stdout, end="")
        """
    )
    with interruptible(program) as started:
        assert started.stdout is not None and started.stdout.readline() == "begun\n"
        started.send_signal(signal.SIGINT)
        out, _ = started.communicate(timeout=60)
        assert out == "interrupted fine\n" and started.returncode == 0


def test_python_runs_over_the_view(vfs: Vfs) -> None:
    vfs.write("/numbers.json", "[1, 2, 3]")
    code = """
import json, sys
total = sum(json.load(open("/numbers.json")))
print(total, sys.argv[1:], sys.stdin.read())
open("/total", "w").write(str(total))
sys.exit(7)
"""
    done = vfs.python(code, "it's", "b c", stdin="in")
    assert (done.stdout, done.exit_code) == ("6 [\"it's\", 'b c'] in\n", 7), done.stderr
    assert vfs.read_text("/total") == "6"
    assert vfs.exec("python3 -c 'print(1)' | cat").stdout == "1\n"


def test_python_reaches_nothing_of_the_host_and_ends_in_time(vfs: Vfs) -> None:
    done = vfs.python("import os; print(os.path.exists('/etc/passwd'), dict(os.environ).get('HOME'))")
    assert done.stdout.startswith("False"), done.stdout
    assert vfs.python("while True: pass", timeout=0.5).exit_code == 124
    assert "ZeroDivisionError" in vfs.python("1 / 0").stderr
