"""Shells that live on between requests."""

import asyncio
import threading
import time

import pytest
from conftest import PATIENCE, Shell, run
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    WriteFileRequest,
)


def create(runtime, name="default", **more):
    more.setdefault("startup_timeout", PATIENCE)
    return run(runtime.create_session(CreateBashSessionRequest(session=name, **more)))


def test_a_session_keeps_directory_variables_functions_and_aliases(shell):
    assert shell.output("cd /usr/share && x='a b' && export Y=2") == ""
    assert shell.output("greet() { echo \"hello $1\"; }; alias two='echo 2'") == ""
    assert shell.output("pwd; echo \"$x\"; sh -c 'echo $Y'") == "/usr/share\na b\n2\n"
    assert shell.output("greet you; two") == "hello you\n2\n"


def test_exit_codes_come_as_they_are(shell):
    for command, code in [("true", 0), ("false", 1), ("(exit 77)", 77), ("nosuchthing", 127),
                          ("sh -c 'kill -9 $$'", 137), ("false | true", 0), ("! true", 1)]:
        assert shell.run(command).exit_code == code, command
    assert "command not found" in shell.output("nosuchthing")


def test_check_says_what_becomes_of_an_exit_code(shell):
    with pytest.raises(NonZeroExitCodeError) as raised:
        shell.run("echo why; false", check="raise", error_msg="It went wrong")
    assert "It went wrong" in str(raised.value) and "why" in str(raised.value)
    assert shell.run("false", check="silent").exit_code == 1
    assert shell.run("false", check="ignore").exit_code is None


def test_output_is_what_was_written_to_the_byte(shell):
    for command, expect in [
        ("printf 'no end'", "no end"),
        ("printf '\\n\\n x \\n\\n'", "\n\n x \n\n"),
        ("printf 'a\\tb\\r\\nc\\r'", "a\tb\r\nc\r"),
        ("printf '\\033[1;31mred\\033[0m\\n'", "red\n"),
        ("printf '\\xff\\xfe ok'", "\\xff\\xfe ok"),
        ("echo 'grün €'", "grün €\n"),
        ("echo out; echo err >&2", "out\nerr\n"),
        ("true", ""),
    ]:
        assert shell.output(command) == expect, command


def test_characters_that_a_terminal_would_take_for_itself_arrive(shell):
    for text in ["a\tb", "!!", "$HOME", "`x`", "\\", "a'b", "\x03\x04\x1a\x15", "é😀", "#"]:
        quoted = "'" + text.replace("'", "'\\''") + "'"
        expect = "".join(f"{byte:02x}" for byte in text.encode())
        shown = shell.output(f"printf '%s' {quoted} | od -An -tx1 | tr -d ' \\n'")
        assert shown == expect, repr(text)


def test_commands_of_many_lines_and_here_documents(shell):
    assert shell.output("\n\n echo 1 \n\n\n echo 2 \\\n 3\n") == "1\n2 3\n"
    assert shell.output("for i in 1 2; do\n  echo $i\ndone") == "1\n2\n"
    document = "cat <<'A'\n$x\n\n\ttab\nA\ncat <<B\n$((1+1))\nB\necho end"
    assert shell.output(document) == "$x\n\n\ttab\n2\nend\n"
    assert shell.output("# nothing") == "" and shell.output("") == "" and shell.output("\n \n") == ""


def test_a_command_may_be_longer_than_any_line_of_a_terminal(shell):
    text = "0123456789" * 100_000
    assert shell.output(f"x='{text}'; echo ${{#x}}") == "1000000\n"


def test_a_syntax_error_is_told_and_nothing_is_run(shell):
    with pytest.raises(BashIncorrectSyntaxError) as raised:
        shell.run("echo ran > /dev/shm/ran; (a")
    assert "syntax error" in raised.value.extra_info["bash_stderr"]
    assert raised.value.extra_info["bash_stdout"] == ""
    assert shell.run("test -e /dev/shm/ran").exit_code == 1


def test_a_timeout_leaves_the_command_and_an_interrupt_ends_it(shell):
    with pytest.raises(CommandTimeoutError):
        shell.run("echo begun; sleep 1000", timeout=0.5)
    seen = shell.act(BashInterruptAction(timeout=PATIENCE))
    assert seen.exit_code == 0 and "begun" in seen.output
    assert shell.run("echo after").output == "after\n"


def test_after_a_timeout_the_next_command_waits_for_the_last_one(shell):
    with pytest.raises(CommandTimeoutError):
        shell.run("sleep 1.5; echo first", timeout=0.1)
    assert shell.output("echo second", timeout=PATIENCE).splitlines() == ["first", "second"]
    with pytest.raises(CommandTimeoutError):
        shell.run("sleep 1000", timeout=0.1)
    with pytest.raises(CommandTimeoutError):
        shell.run("echo never", timeout=0.3)
    shell.act(BashInterruptAction(timeout=PATIENCE))
    assert shell.output("echo third") == "third\n"


def test_what_does_not_heed_an_interrupt_is_killed(shell):
    with pytest.raises(CommandTimeoutError):
        shell.run("sh -c 'trap \"\" INT TSTP; while :; do sleep 0.1; done'", timeout=0.5)
    shell.act(BashInterruptAction(timeout=0.3))
    assert "after" in shell.output("echo after")
    assert shell.run("true").exit_code == 0


def test_an_interrupt_of_nothing_changes_nothing(shell):
    assert shell.act(BashInterruptAction()).output == ""
    assert shell.output("echo a") == "a\n"


def test_an_interrupt_ends_a_command_that_somebody_waits_for(shell):
    seen = []
    waiting = threading.Thread(target=lambda: seen.append(shell.run("sleep 1000; echo never")))
    waiting.start()
    while not seen and "sleep" not in run(shell.runtime.execute(
            Command(command="ps -e -o args | grep '[s]leep 1000' || true", shell=True))).stdout:
        time.sleep(0.1)
    shell.act(BashInterruptAction(timeout=PATIENCE))
    waiting.join(PATIENCE)
    assert seen[0].exit_code == 130 and "never" not in seen[0].output


def test_programs_that_read_for_themselves(shell):
    python = "/usr/bin/python3 -q"
    seen = shell.run(python, is_interactive_command=True, expect=[">>> "], timeout=PATIENCE)
    assert seen.expect_string == ">>> "
    seen = shell.run("print(6 * 7)", is_interactive_command=True, expect=[">>> "], timeout=PATIENCE)
    assert seen.output == "42"
    shell.run("quit()\n", is_interactive_quit=True, timeout=PATIENCE)
    assert shell.output("echo after") == "after\n"
    shell.run("cat", is_interactive_command=True, expect=["^"], timeout=PATIENCE)
    seen = shell.run("said", is_interactive_command=True, expect=["said\r\n"], timeout=PATIENCE)
    assert seen.expect_string == "said\r\n"
    shell.act(BashInterruptAction(timeout=PATIENCE))
    assert shell.output("echo after") == "after\n"


def test_what_is_expected_may_be_a_pattern(shell):
    seen = shell.run("echo port 8080 is open; sleep 1000", expect=["port ([0-9]+) is"],
                     check="ignore", timeout=PATIENCE)
    assert seen.expect_string == "port ([0-9]+) is" and seen.exit_code is None
    shell.act(BashInterruptAction(timeout=PATIENCE))
    with pytest.raises(NoExitCodeError):
        shell.run("echo here; sleep 1000", expect=["here"], check="raise", timeout=PATIENCE)
    shell.act(BashInterruptAction(timeout=PATIENCE))
    assert shell.run("echo here; (exit 3)", expect=["here"], timeout=PATIENCE).exit_code == 3
    with pytest.raises(ValueError):
        shell.run("true", expect=["(unclosed"])


def test_jobs_in_the_background_live_on(shell):
    shell.run("sleep 1000 & echo started")
    assert "Running" in shell.output("jobs")
    assert shell.run("kill %1; wait").exit_code == 0
    shell.run("nohup sh -c 'sleep 1; echo late > late' >/dev/null 2>&1 &")
    assert shell.output("until test -s late; do sleep 0.1; done; cat late").endswith("late\n")


def test_a_job_may_write_more_than_anybody_reads(shell):
    shell.run("head -c 5000000 /dev/zero | tr '\\0' x & wait")
    assert shell.output("echo a").endswith("a\n")


def test_much_output_arrives_and_too_much_is_said_to_be_cut(shell):
    lines = shell.output("seq 1 200000").splitlines()
    assert lines[0] == "1" and lines[-1] == "200000" and len(lines) == 200_000
    shown = shell.output("echo first; head -c 40000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert shown.startswith("first\n") and shown.endswith("\nlast\n")
    assert "bytes are left out here]" in shown and len(shown) < 30_000_000


def test_a_flood_can_be_stopped_and_holds_up_no_other_session(shell):
    create(shell.runtime, "other")
    with pytest.raises(CommandTimeoutError):
        shell.run("yes", timeout=2)
    seen = run(shell.runtime.run_in_session(BashAction(command="echo a", session="other")))
    assert seen.output == "a\n"
    assert len(shell.act(BashInterruptAction(timeout=PATIENCE)).output) < 30_000_000
    assert shell.output("echo after").endswith("after\n")


def test_sessions_are_apart(box):
    create(box, "a"), create(box, "b")
    for name in "ab":
        run(box.run_in_session(BashAction(command=f"x={name}; cd /usr; alias q=ls", session=name)))
    seen = [run(box.run_in_session(BashAction(command="echo $x", session=name))).output
            for name in "ab"]
    assert seen == ["a\n", "b\n"]


def test_sessions_work_side_by_side(box):
    names = [f"s{number}" for number in range(8)]

    async def all_of_them():
        for name in names:
            await box.create_session(
                CreateBashSessionRequest(session=name, startup_timeout=PATIENCE))
        return await asyncio.gather(*[
            box.run_in_session(BashAction(command=f"sleep 0.5; echo {name}", session=name))
            for name in names])

    assert [seen.output for seen in run(all_of_them())] == [f"{name}\n" for name in names]


def test_commands_of_one_session_come_one_after_the_other(shell):
    async def both():
        return await asyncio.gather(*[
            shell.runtime.run_in_session(
                BashAction(command=f"echo {number}; sleep 0.2; echo {number}"))
            for number in range(6)])

    assert [seen.output for seen in run(both())] == [f"{n}\n{n}\n" for n in range(6)]


def test_names_of_sessions(box):
    create(box)
    with pytest.raises(SessionExistsError):
        create(box)
    for action in (BashAction(command="true", session="other"), BashInterruptAction(session="other")):
        with pytest.raises(SessionDoesNotExistError):
            run(box.run_in_session(action))
    run(box.close_session(CloseBashSessionRequest()))
    with pytest.raises(SessionDoesNotExistError):
        run(box.close_session(CloseBashSessionRequest()))
    create(box)


def test_there_is_an_end_to_sessions(box):
    with pytest.raises(SwerexException, match="all there may be"):
        for number in range(100):
            create(box, f"s{number}")
    run(box.close())
    create(box)


def test_files_that_are_read_first(box):
    run(box.write_file(WriteFileRequest(
        path="first.sh", content="echo from the file\nX=5\nPS1='mine> '\nf() { echo $X; }\n")))
    made = create(box, startup_source=["first.sh"])
    assert made.output == "from the file\n"
    assert Shell(box).output("f") == "5\n"
    missing = create(box, "missing", startup_source=["no/such file"])
    assert "No such file" in missing.output


def test_a_start_that_takes_too_long_leaves_no_session(box):
    run(box.write_file(WriteFileRequest(path="slow.sh", content="sleep 1000")))
    with pytest.raises(Exception, match="took longer") as raised:
        create(box, startup_source=["slow.sh"], startup_timeout=0.5)
    assert type(raised.value).__name__ == "TIMEOUT"
    create(box)


def test_environments_that_change_the_prompt_show_nothing_of_it(shell):
    run(shell.runtime.write_file(WriteFileRequest(
        path="venv/activate", content='PS1="(venv) ${PS1}"; export PS1')))
    assert shell.output("source venv/activate") == ""
    assert shell.output("echo a") == "a\n"
    assert shell.output("PS1='$ '; echo b") == "b\n"


def test_a_shell_in_the_shell(shell):
    shell.run("x=outer; bash --norc", timeout=PATIENCE)
    assert shell.output("echo ${x-inner}", timeout=PATIENCE) == "inner\n"
    shell.run("exit 0", timeout=PATIENCE)
    assert shell.output("echo ${x-inner}", timeout=PATIENCE).endswith("outer\n")


def test_a_terminal_that_programs_left_askew_is_put_right(shell):
    shell.run("stty raw echo -onlcr")
    assert shell.output("echo a; echo b") == "a\nb\n"


def test_a_shell_that_ends_is_told_and_can_be_made_anew(shell):
    with pytest.raises(Exception) as raised:
        shell.run("exit 3")
    assert type(raised.value).__name__ == "EOF"
    with pytest.raises(Exception, match="create it"):
        shell.run("true")
    run(shell.runtime.close_session(CloseBashSessionRequest()))
    create(shell.runtime)
    assert shell.output("echo again") == "again\n"


def test_closing_a_session_ends_what_runs_in_it(shell):
    shell.run("sleep 1001 & sleep 1002 &")
    with pytest.raises(CommandTimeoutError):
        shell.run("sleep 1003", timeout=0.3)
    run(shell.runtime.close_session(CloseBashSessionRequest()))
    look = Command(command="ps -e -o args | grep -c '[s]leep 100[123]'", shell=True)
    until = time.time() + PATIENCE
    while run(shell.runtime.execute(look)).stdout != "0\n":
        assert time.time() < until, "they go on"
        time.sleep(0.1)


def test_nothing_of_ours_is_in_the_way(shell):
    assert shell.output("cat /proc/self/environ | tr '\\0' '\\n' | grep -ci secret") == "0\n"
    assert shell.output("ls /proc/self/fd | wc -l").strip() in ("4", "5")
    assert shell.output("history | wc -l").strip() == "0"
