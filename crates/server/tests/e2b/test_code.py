"""The code interpreter: results, state, errors, contexts."""

import os
import time

import pytest

from e2b.exceptions import SandboxException, TimeoutException
from e2b_code_interpreter import Sandbox


@pytest.fixture(scope="module")
def lab(variables):
    with Sandbox.create(timeout=600) as sandbox:
        yield sandbox


def test_the_last_value_is_the_result(lab):
    done = lab.run_code("a = 20\na * 2 + 2")
    assert done.text == "42" and done.results[0].is_main_result and done.error is None


def test_the_python_is_the_one_of_whoever_started_the_server(lab):
    """With an environment active there, code has its packages."""
    assert lab.run_code("import os\nos.environ['PATH']").text == repr(os.environ["PATH"])


def test_names_stay(lab):
    lab.run_code("import math\nradius = 2\ndef area(r): return math.pi * r * r")
    assert lab.run_code("round(area(radius), 3)").text == "12.566"


@pytest.mark.parametrize("code", ["x = 1", "None", "1;", "", "# only a comment", "if True:\n  2"])
def test_no_value_is_no_result(lab, code):
    done = lab.run_code(code)
    assert done.results == [] and done.error is None


def test_output_comes_as_it_is_written(lab):
    seen = []
    done = lab.run_code("import sys, time\nprint('one'); time.sleep(0.5); print('two', file=sys.stderr)",
                        on_stdout=lambda out: seen.append(("out", out.line)),
                        on_stderr=lambda out: seen.append(("err", out.line)))
    assert "".join(done.logs.stdout) == "one\n" and "".join(done.logs.stderr) == "two\n"
    assert seen[0][0] == "out" and seen[-1][0] == "err"


def test_programs_are_heard_too(lab):
    done = lab.run_code("import os\nos.system('echo from a program')\n!echo from a line")
    assert "".join(done.logs.stdout) == "from a program\nfrom a line\n"


def test_an_exception_is_told_and_leaves_the_names(lab):
    lab.run_code("kept = 5")
    done = lab.run_code("def f():\n    return 1 / 0\nf()")
    assert (done.error.name, done.error.value) == ("ZeroDivisionError", "division by zero")
    assert "return 1 / 0" in done.error.traceback and "_carry_out" not in done.error.traceback
    assert lab.run_code("kept").text == "5"


@pytest.mark.parametrize("code,name", [("1 +", "SyntaxError"), ("no_such", "NameError"),
                                       ("exit(3)", "SystemExit"), ("raise KeyboardInterrupt", "KeyboardInterrupt")])
def test_errors_have_their_names(lab, code, name):
    assert lab.run_code(code).error.name == name
    assert lab.run_code("1 + 1").text == "2"


def test_values_have_forms(lab):
    done = lab.run_code("class A:\n  def _repr_html_(self): return '<b>x</b>'\n  def _repr_png_(self): return b'png'\n"
                        "display(A())\nA()")
    assert [one.html for one in done.results] == ["<b>x</b>"] * 2
    assert done.results[1].is_main_result and not done.results[0].is_main_result
    assert done.results[0].png == "cG5n"


def test_waiting_works_at_the_top(lab):
    assert lab.run_code("import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.sleep(0, 7)").text == "7"


def test_variables_are_for_one_piece(lab):
    read = "import os\nos.environ.get('MARK')"
    assert lab.run_code(read, envs={"MARK": "here"}).text == "'here'"
    assert lab.run_code(read).text is None


def test_contexts_share_nothing(lab):
    one, two = lab.create_code_context(cwd="/tmp"), lab.create_code_context()
    lab.run_code("x = 1", context=one)
    assert lab.run_code("x", context=two).error.name == "NameError"
    assert lab.run_code("import os; os.getcwd()", context=one).text == "'/tmp'"
    assert {one.id, two.id} <= {context.id for context in lab.list_code_contexts()}
    lab.restart_code_context(one)
    assert lab.run_code("x", context=one).error.name == "NameError"
    lab.remove_code_context(two)
    with pytest.raises(SandboxException):
        lab.run_code("1", context=two)


def test_code_that_nobody_waits_for_is_interrupted(lab):
    with pytest.raises(TimeoutException):
        lab.run_code("import time\nstill = 'here'\ntime.sleep(600)", timeout=1)
    start = time.monotonic()
    assert lab.run_code("still").text == "'here'"
    assert time.monotonic() - start < 90


def test_a_process_that_dies_is_told(lab):
    assert lab.run_code("import os\nos._exit(1)").error.name == "ContextLost"
    assert lab.run_code("1 + 1").text == "2"


def test_another_language_is_refused(lab):
    with pytest.raises(SandboxException):
        lab.run_code("1", language="r")


def test_files_and_code_see_each_other(lab):
    lab.files.write("data.csv", "a,b\n1,2\n")
    assert lab.run_code("open('data.csv').read().count(',')").text == "2"
