"""Runs pieces of code that share their names, one after the other.

A line on standard input is a request: {"code", "env"}. What happens goes out as
lines of JSON, the last of each request is {"type": "end"}. What programs started
by the code write comes along, since descriptors 1 and 2 lead back here.
"""

import ast
import asyncio
import base64
import builtins
import codecs
import fcntl
import inspect
import json
import os
import re
import struct
import sys
import termios
import threading
import time
import traceback
import types

_wire = os.fdopen(os.dup(1), "wb", buffering=0)
_requests = os.fdopen(os.dup(0), "rb")
_lock = threading.Lock()


def _tell(kind, **fields):
    line = json.dumps({"type": kind, **fields}, default=str) + "\n"
    with _lock:
        _wire.write(line.encode("utf-8", "replace"))


def _said(kind, text):
    if text:
        _tell(kind, text=text, timestamp=time.time_ns())


class _Stream:
    """Standard output or errors of the code."""

    encoding, errors, closed, newlines = "utf-8", "replace", False, None

    def __init__(self, kind, descriptor):
        self.name, self._kind, self._descriptor = f"<{kind}>", kind, descriptor
        self.buffer = os.fdopen(os.dup(descriptor), "wb", buffering=0)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        _said(self._kind, text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        pass

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    def seekable(self):
        return False

    def fileno(self):
        return self._descriptor


def _follow(source, kind):
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := os.read(source, 65536):
        _said(kind, decoder.decode(chunk))


def _lead_back(descriptor, kind):
    source, target = os.pipe()
    os.dup2(target, descriptor)
    os.close(target)
    threading.Thread(target=_follow, args=(source, kind), daemon=True).start()
    return source


def _drain(sources, seconds=1.0):
    """Lets what other programs wrote come out before the end is told."""
    until = time.monotonic() + seconds
    waiting = lambda fd: struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    while any(map(waiting, sources)) and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(0.002)


_FORMS = {
    "html": "_repr_html_", "markdown": "_repr_markdown_", "svg": "_repr_svg_", "png": "_repr_png_",
    "jpeg": "_repr_jpeg_", "pdf": "_repr_pdf_", "latex": "_repr_latex_", "json": "_repr_json_",
    "javascript": "_repr_javascript_",
}


def _forms(value):
    found = {}
    for form, method in _FORMS.items():
        make = getattr(type(value), method, None)
        try:
            made = make(value) if make else None
        except Exception:
            continue
        if isinstance(made, tuple):
            made = made[0]
        if made is not None:
            found[form] = base64.b64encode(made).decode() if isinstance(made, bytes) else made
    return found


def _show(value, is_main):
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}: repr failed: {error}>"
    _tell("result", is_main_result=is_main, text=text, **_forms(value))


def display(*values, **_):
    """Shows values as results."""
    for value in values:
        _show(value, False)


def _figures():
    plots = sys.modules.get("matplotlib.pyplot")
    if plots is None:
        return
    import io
    for number in plots.get_fignums():
        image = io.BytesIO()
        figure = plots.figure(number)
        figure.savefig(image, format="png", bbox_inches="tight")
        _tell("result", is_main_result=False, text=repr(figure),
              png=base64.b64encode(image.getvalue()).decode())
    plots.close("all")


def _shell(command):
    import subprocess
    subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, check=False)


def _plain(code):
    """`!command` and `%pip` as notebooks have them, in Python's own words."""
    def line(match):
        space, mark, rest = match.groups()
        if mark == "%pip":
            rest = f"{sys.executable} -m pip{rest}"
        return f"{space}__shell__({rest.strip()!r})"
    return re.sub(r"^([ \t]*)(!|%pip)(.*)$", line, code, flags=re.MULTILINE)


def _compiled(code, number):
    name = f"<cell {number}>"
    try:
        tree = ast.parse(code, name)
    except SyntaxError:
        if not re.search(r"^[ \t]*(!|%pip)", code, re.MULTILINE):
            raise
        code = _plain(code)
        tree = ast.parse(code, name)
    import linecache
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    body = compile(tree, name, "exec", flags=flags, dont_inherit=True)
    return body, last and compile(last, name, "eval", flags=flags, dont_inherit=True)


def _carry_out(code, names, loop):
    value = eval(code, names)
    if code.co_flags & inspect.CO_COROUTINE:
        value = loop.run_until_complete(value)
    return value


def _failed(error):
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next
    told = "".join(traceback.format_exception(type(error), error, trace))
    _tell("error", name=type(error).__name__, value=str(error), traceback=told)


def _main():
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    sources = [_lead_back(1, "stdout"), _lead_back(2, "stderr")]
    sys.stdout, sys.stderr = _Stream("stdout", 1), _Stream("stderr", 2)
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    names = main.__dict__
    names.update(__builtins__=builtins, __shell__=_shell, display=display)
    sys.path.insert(0, "")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    number = 0
    while True:
        try:
            line = _requests.readline()
        except KeyboardInterrupt:
            continue
        if not line:
            return
        number += 1
        try:
            request = json.loads(line)
            before = dict(os.environ)
            os.environ.update(request.get("env") or {})
            try:
                body, last = _compiled(request["code"], number)
                _carry_out(body, names, loop)
                if last is not None and (value := _carry_out(last, names, loop)) is not None:
                    names["_"] = value
                    _show(value, True)
            finally:
                os.environ.clear()
                os.environ.update(before)
            _figures()
        except SystemExit as error:
            if error.code not in (None, 0):
                _failed(error)
        except BaseException as error:
            _failed(error)
        try:
            _drain(sources)
        except KeyboardInterrupt:
            pass
        _tell("number_of_executions", execution_count=number)
        _tell("end")


_main()
