"""Processes: results, streams, input, users, signals, terminals, time."""

import threading
import time

import pytest
from e2b import CommandExitException, InvalidArgumentException, NotFoundException, TimeoutException
from e2b.exceptions import AuthenticationException, SandboxException
from e2b.sandbox.commands.command_handle import PtySize


def wait_until_gone(box, seconds):
    """Until no `sleep` of so many seconds is there any more."""
    until = time.monotonic() + 30
    while box.commands.run(f"pgrep -fc '[s]leep {seconds}' || true", user="root").stdout.strip() != "0":
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_command_gives_its_output(box):
    done = box.commands.run("echo hello")
    assert (done.stdout, done.stderr, done.exit_code) == ("hello\n", "", 0)


def test_errors_go_their_own_way(box):
    done = box.commands.run("echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


@pytest.mark.parametrize("status", [1, 2, 127, 255])
def test_a_status_is_an_exception_with_everything(box, status):
    with pytest.raises(CommandExitException) as failed:
        box.commands.run(f"echo before; exit {status}")
    assert (failed.value.exit_code, failed.value.stdout) == (status, "before\n")


def test_a_missing_program_is_told_by_the_shell(box):
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("surely-no-such-program")
    assert failed.value.exit_code == 127 and "not found" in failed.value.stderr


@pytest.mark.parametrize("text", ["ä€😀", "a'b\"c", "line\nline", "\t\\n", "$HOME `x`"])
def test_text_comes_back_as_it_was(box, text):
    assert box.commands.run("printf %s \"$TEXT\"", envs={"TEXT": text}).stdout == text


def test_variables_are_for_one_command(box):
    assert box.commands.run("echo $A$B", envs={"A": "1", "B": "2"}).stdout == "12\n"
    assert box.commands.run("echo x$A").stdout == "x\n"


def test_it_starts_at_home_and_where_it_is_told_to(box, place):
    assert box.commands.run("pwd").stdout == "/home/user\n"
    assert box.commands.run("pwd", cwd="/etc").stdout == "/etc\n"
    assert box.commands.run("pwd", cwd=place.rsplit("/", 1)[1]).stdout == f"{place}\n"


def test_a_directory_that_is_missing_is_named(box):
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        box.commands.run("true", cwd="/no/such/place")


def test_users_are_who_they_are(box):
    assert box.commands.run("whoami; echo $HOME").stdout == "user\n/home/user\n"
    assert box.commands.run("whoami; id -u", user="root").stdout == "root\n0\n"


def test_users_are_made_as_on_any_machine(box):
    made = "useradd --create-home carl && usermod --groups users carl && groupadd crew && id -nG carl"
    assert box.commands.run(made, user="root").stdout == "carl users\n"
    assert box.commands.run("whoami; stat -c %a /dev/null", user="carl").stdout == "carl\n666\n"


def test_a_user_that_is_missing_is_refused(box):
    with pytest.raises(AuthenticationException):
        box.commands.run("true", user="nobody-like-that")


def test_output_arrives_while_it_runs(box):
    seen = []
    start = time.monotonic()
    box.commands.run("echo one; sleep 1; echo two",
                     on_stdout=lambda text: seen.append((text, time.monotonic() - start)))
    assert [text for text, _ in seen] == ["one\n", "two\n"]
    assert seen[1][1] - seen[0][1] > 0.5


def test_much_output_is_whole(box):
    done = box.commands.run("seq 1 200000", timeout=120)
    assert done.stdout.splitlines() == [str(number) for number in range(1, 200001)]


def test_bytes_that_are_no_text_do_not_break_it(box):
    assert "\ufffd" in box.commands.run(r"printf 'a\xff\xfeb'").stdout


def test_a_background_command_is_waited_for(box):
    handle = box.commands.run("sleep 0.3; echo done", background=True)
    assert handle.wait().stdout == "done\n"


def test_a_background_command_is_listed_and_killed(box):
    handle = box.commands.run("sleep 300", background=True, timeout=0)
    listed = {process.pid: process for process in box.commands.list()}
    assert listed[handle.pid].cmd == "/bin/bash" and "sleep 300" in listed[handle.pid].args
    assert handle.kill() is True
    with pytest.raises(CommandExitException):
        handle.wait()
    assert handle.pid not in {process.pid for process in box.commands.list()}
    assert handle.kill() is False


def test_killing_what_is_not_there_is_false(box):
    assert box.commands.kill(999_999) is False


def test_killing_takes_along_what_it_started(box):
    handle = box.commands.run("sleep 4321 & sleep 4321; wait", background=True, timeout=0)
    time.sleep(0.3)
    handle.kill()
    wait_until_gone(box, "4321")


def test_input_goes_in_until_it_is_closed(box):
    handle = box.commands.run("cat", background=True, stdin=True)
    handle.send_stdin("one\n")
    box.commands.send_stdin(handle.pid, "two\n")
    handle.close_stdin()
    assert handle.wait().stdout == "one\ntwo\n"


def test_streamed_input_arrives_in_order(box):
    handle = box.commands.run("cat", background=True, stdin=True)
    box.commands.stream_input(handle.pid, (f"{number}\n" for number in range(50)))
    box.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "".join(f"{number}\n" for number in range(50))


def test_without_input_there_is_none(box):
    assert box.commands.run("cat; echo end").stdout == "end\n"


def test_input_for_nobody_is_not_found(box):
    with pytest.raises(NotFoundException):
        box.commands.send_stdin(999_999, "x")


def test_one_connects_to_a_command_again(box):
    handle = box.commands.run("sleep 1; echo late", background=True)
    handle.disconnect()
    assert box.commands.connect(handle.pid).wait().stdout == "late\n"


def test_connecting_to_nobody_is_not_found(box):
    with pytest.raises(NotFoundException):
        box.commands.connect(999_999)


def test_a_time_limit_ends_the_command(box):
    with pytest.raises(TimeoutException):
        box.commands.run("sleep 4322", timeout=1)
    wait_until_gone(box, "4322")


def test_commands_see_each_other_and_outlive_their_shell(box):
    box.commands.run("nohup sleep 4323 >/dev/null 2>&1 &")
    found = box.commands.run("pgrep -f '[s]leep 4323'").stdout.split()
    assert len(found) == 1
    box.commands.run(f"kill {found[0]}")


def test_a_shell_does_not_wait_for_what_keeps_its_output(box):
    start = time.monotonic()
    assert box.commands.run("sleep 600 & echo at once", timeout=300).stdout == "at once\n"
    assert time.monotonic() - start < 200
    box.commands.run("pkill -f '[s]leep 600' || true")


def test_many_at_once(box):
    done = {}

    def one(number):
        done[number] = box.commands.run(f"sleep 0.2; echo {number}").stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert done == {number: f"{number}\n" for number in range(20)}


def test_a_signal_is_told_as_one(box):
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("kill -9 $$")
    assert failed.value.exit_code == -1 and "killed" in failed.value.error


def test_the_sandbox_knows_that_it_is_one(box):
    told = box.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID").stdout
    assert told == f"true {box.sandbox_id}\n"


def test_a_service_inside_is_reached_from_inside(box):
    """The way out is a proxy; the loopback is not out."""
    server = box.commands.run("exec python3 -m http.server 8123 -d /etc", background=True, timeout=120)
    ask = ("import time, urllib.request as ask\n"
           "for _ in range(300):\n"
           "    try: print(ask.urlopen('http://localhost:8123/hostname').status); break\n"
           "    except ask.URLError as error: time.sleep(0.1); assert getattr(error, 'code', None) is None, error\n")
    box.files.write("/tmp/ask.py", ask)
    assert box.commands.run("python3 /tmp/ask.py").stdout == "200\n"
    server.kill()


def test_the_project_is_there_at_its_own_path(box, server):
    assert box.commands.run("cat $FRACTAL_DIRECTORY/README").stdout == "a project\n"
    assert box.commands.run("echo x > $FRACTAL_DIRECTORY/made", user="root").exit_code == 0
    assert not (server.project / "made").exists()


def terminal(box, **more):
    seen = bytearray()
    handle = box.pty.create(PtySize(rows=30, cols=100), timeout=60, **more)

    def read():
        try:
            handle.wait(on_pty=lambda data: seen.extend(data))
        except SandboxException:
            pass

    thread = threading.Thread(target=read)
    thread.start()
    return handle, seen, thread


def wait_for(seen, text, seconds=20):
    until = time.monotonic() + seconds
    while text.encode() not in seen:
        assert time.monotonic() < until, bytes(seen)
        time.sleep(0.05)


def test_a_terminal_echoes_has_a_size_and_ends(box):
    handle, seen, thread = terminal(box)
    box.pty.send_stdin(handle.pid, b"stty size; echo mark$((40+2))\n")
    wait_for(seen, "mark42")
    assert b"30 100" in seen
    box.pty.resize(handle.pid, PtySize(rows=11, cols=77))
    box.pty.send_stdin(handle.pid, b"stty size\n")
    wait_for(seen, "11 77")
    box.pty.send_stdin(handle.pid, b"exit\n")
    thread.join(20)
    assert not thread.is_alive()


def test_a_terminal_passes_interrupts(box):
    handle, seen, thread = terminal(box)
    box.pty.send_stdin(handle.pid, b"sleep 4324\n")
    time.sleep(0.5)
    box.pty.send_stdin(handle.pid, b"\x03")
    box.pty.send_stdin(handle.pid, b"echo back$((1+1))\n")
    wait_for(seen, "back2")
    assert box.pty.kill(handle.pid) is True
    thread.join(20)


def test_a_terminal_is_for_who_is_asked(box):
    handle, seen, thread = terminal(box, user="root", cwd="/etc", envs={"MARK": "here"})
    box.pty.send_stdin(handle.pid, b"echo $(whoami)-$PWD-$MARK-$(tty | cut -c1-8); exit\n")
    wait_for(seen, "root-/etc-here-/dev/pts")
    thread.join(20)


def test_killing_what_answers_inside_is_survived(box):
    box.files.write("/home/user/before", "kept")
    try:
        box.commands.run("pkill -9 -x fractal", user="root", timeout=10)
    except (SandboxException, TimeoutException):
        pass
    until = time.monotonic() + 20
    while True:
        try:
            assert box.commands.run("cat /home/user/before").stdout == "kept"
            break
        except SandboxException:
            assert time.monotonic() < until
            time.sleep(0.2)


def test_git_works(box, place):
    box.git.init(place)
    box.commands.run("git config user.email a@b; git config user.name a; echo x > f; git add f; "
                     "git commit -qm one", cwd=place)
    assert box.commands.run("git log --format=%s", cwd=place).stdout == "one\n"
