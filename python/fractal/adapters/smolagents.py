"""Code of smolagents in sandboxes: an executor for ``CodeAgent``.

``CodeAgent(…, executor=FractalExecutor(…))`` runs what the model writes in a real
CPython in a clone of this machine. The code of tools goes there, too. What
cannot go there (agents that are managed, tools that hold something) is called
in this process. Values cross as smolagents' own serializer writes them, and
never as pickles.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from smolagents import serialization
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.serialization import SafeSerializer, SerializationError
from smolagents.tools import Tool, get_tools_definition_code
from smolagents.utils import AgentError

from . import _topology
from ._python import OUTPUT_CHARS_MAX, Interpreter, InterpreterDied, Piece

if TYPE_CHECKING:
    from ..client import SandboxClient
    from ..sandbox import Sandbox

__all__ = ["FractalExecutor"]

TEMPLATE = "clone"
INSTALL_SECONDS_MAX = 900.0

_VALUES = """
def told(value):
    try:
        return SafeSerializer.dumps(value)
    except Exception:
        return None


def caller(name, here):
    def call(*args, **kwargs):
        return SafeSerializer.loads(here(name, SafeSerializer.dumps([list(args), kwargs])))
    call.__name__ = name
    return call


def missing(packages):
    import importlib.metadata
    import importlib.util
    def is_there(name):
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False
    def is_known(name):
        try:
            return bool(importlib.metadata.version(name))
        except Exception:
            return False
    return [name for name in packages if not is_there(name) and not is_known(name)]


def install(packages):
    import importlib
    import os
    import subprocess
    import sys
    import sysconfig
    import tempfile
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--retries", "1"]
    if not os.access(sysconfig.get_path("purelib"), os.W_OK):
        place = tempfile.mkdtemp(prefix="packages-")
        sys.path.insert(1, place)
        words += ["--target", place]
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    done = subprocess.run([*words, *packages], capture_output=True, text=True,
                          errors="replace", env={**os.environ, **quiet})
    importlib.invalidate_caches()
    return [done.returncode, (done.stdout + done.stderr)[-4000:]]
"""
"""What is added to the serializer inside."""


class FractalExecutor(RemotePythonExecutor):  # type: ignore[misc]
    """An executor of smolagents.

    It makes a sandbox for work in ``directory``, in which ``additional_imports``
    are installed unless they are there, and drops it with :meth:`cleanup`, which
    the agent's own calls. A ``sandbox`` that is given stays. ``volume_name`` is for
    a volume that is kept at `/data`. ``bounds`` are those of
    :meth:`fractal.Sandbox.create`; there is no network unless it is asked for.

    ``here`` names tools to call in this process, which may need its network or
    secrets. Code that takes longer than ``timeout`` seconds is interrupted.
    """

    def __init__(
        self,
        additional_imports: Iterable[str] = (),
        logger: AgentLogger | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        sandbox: Sandbox | None = None,
        volume_name: str | None = None,
        template: str | None = None,
        client: SandboxClient | None = None,
        here: Iterable[str] = (),
        timeout: float | None = 600.0,
        output_max: int = OUTPUT_CHARS_MAX,
        python: str | Sequence[str] | None = None,
        **bounds: Any,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.OFF))
        asked: dict[str, Any] = {"directory": directory, "client": client, "template": template}
        asked.update(volume_name=volume_name, **bounds)
        named = [name for name, value in asked.items() if value is not None]
        if sandbox is not None and named:
            raise ValueError(f"a sandbox that is there is used as it is: leave out {named}")
        if template is None and volume_name is None:
            asked["template"] = TEMPLATE
        self._here = set(here)
        self._called_here: dict[str, Callable[..., Any]] = {}
        self._tools: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._is_new = True
        self.state: dict[str, Any] = {"_print_outputs": ""}
        """What the last code printed, as agents look for it."""
        self._owns = sandbox is None
        self.sandbox: Sandbox | None = sandbox or _topology.create(**asked)
        self._python = Interpreter(
            self.sandbox,
            tools={"_fractal_here": self._call_here},
            timeout=timeout,
            output_max=output_max,
            python=python,
        )
        try:
            self.installed_packages = self.install_packages(self.additional_imports)
        except BaseException:
            self.cleanup()
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs a piece of code; raises ``AgentError`` if that fails."""
        self._renew()
        piece = self._run(code)
        self.state["_print_outputs"] = logs = _printed(piece)
        if piece.error is None:
            return CodeOutput(output=self._value(piece), logs=logs, is_final_answer=False)
        if piece.error.name == self.FINAL_ANSWER_EXCEPTION:
            return self._final_answer(piece.error.message, logs)
        if piece.error.kind == "timeout":
            raise AgentError(_with_logs(piece.error.message, logs), self.logger)
        raise AgentError(_with_logs(piece.error.traceback.rstrip(), logs), self.logger)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Sends the code of tools; those without are called in this process."""
        self._renew()
        self._tools.update(tools)
        sent: dict[str, Any] = {}
        called: dict[str, Any] = {}
        for name, tool in tools.items():
            (sent if self._can_be_sent(name, tool) else called)[name] = tool
        self._called_here.update(called)
        self._bind_called(called)
        super().send_tools(sent)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Sets variables, unless there are none."""
        self._renew()
        self._variables.update(variables)
        super().send_variables(variables)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs in the sandbox what cannot be imported there."""
        self._renew()
        missing = self._inside("missing", list(additional_imports))
        if missing:
            status, said = self._inside("install", missing, timeout=INSTALL_SECONDS_MAX)
            if status != 0:
                raise AgentError(
                    f"{' '.join(missing)} cannot be installed in the sandbox: {said.strip()}\n"
                    "Install it on this machine, or give the executor a network "
                    "(network='host', or a list of hosts).",
                    self.logger,
                )
        return list(additional_imports)

    def cleanup(self) -> None:
        """Ends the process, and drops the sandbox if it was made here."""
        self._python.close()
        box, self.sandbox = self.sandbox, None
        if box is not None and self._owns:
            box.drop(force=True)

    def delete(self) -> None:
        """The same as :meth:`cleanup`."""
        self.cleanup()

    def __enter__(self) -> FractalExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def _run(self, code: str, names: Mapping[str, Any] | None = None, **how: Any) -> Piece:
        try:
            return self._python.run(code, names, **how)
        except InterpreterDied as error:
            self._is_new = True
            self.state["_print_outputs"] = logs = (error.stdout + error.stderr).rstrip("\n")
            raise AgentError(_with_logs(str(error), logs), self.logger) from error

    def _renew(self) -> None:
        """Gives a new process what the last one had been given."""
        if not self._is_new:
            return
        source = f"{inspect.getsource(serialization)}\n{_VALUES}"
        self._run(
            "import sys, types\nmodule = types.ModuleType('_fractal_values')\n"
            "exec(compile(source, '<fractal>', 'exec'), module.__dict__)\n"
            "sys.modules['_fractal_values'] = module\ndel source, module, sys, types",
            {"source": source},
        )
        self._is_new = False
        if self._variables:
            self.send_variables(self._variables)
        if self._tools:
            self.send_tools(self._tools)

    def _inside(self, function: str, *args: Any, **how: Any) -> Any:
        """What one of the functions that were added inside returns."""
        call = f"import _fractal_values\n_fractal_values.{function}(*json_args)"
        piece = self._run(call, {"json_args": list(args)}, **how)
        if piece.error is not None:
            raise AgentError(piece.error.traceback, self.logger)
        return piece.value

    def _value(self, piece: Piece) -> Any:
        """The last expression's value, or its ``repr`` if it cannot be sent."""
        if piece.text is None or isinstance(piece.value, (str, int, float)):
            return piece.value
        told = self._run("__import__('_fractal_values').told(_)").value
        try:
            return piece.text if told is None else SafeSerializer.loads(told)
        except Exception:
            return piece.text

    def _final_answer(self, message: str, logs: str) -> CodeOutput:
        try:
            answer = self._deserialize_final_answer(message)
        except (SerializationError, ValueError, TypeError, KeyError) as error:
            said = f"the final answer does not read, or is too large: {error}"
            raise AgentError(_with_logs(said, logs), self.logger) from error
        return CodeOutput(output=answer, logs=logs, is_final_answer=True)

    def _patch_final_answer_with_exception(self, final_answer_tool: Any) -> None:
        # A second run comes with the same tool: patched twice it calls itself.
        if not hasattr(final_answer_tool, "_forward"):
            super()._patch_final_answer_with_exception(final_answer_tool)

    def _can_be_sent(self, name: str, tool: Any) -> bool:
        if name in self._here or not isinstance(tool, Tool):
            return False
        if name == "final_answer":
            return True
        try:
            tool.to_dict()
            get_tools_definition_code({name: tool})
        except Exception as error:
            self.logger.log(f"The tool {name} is called in this process: {error}")
            return False
        return True

    def _bind_called(self, called: Mapping[str, Any]) -> None:
        if called:
            self._run(
                "for name in names:\n"
                "    globals()[name] = __import__('_fractal_values').caller(name, _fractal_here)\n"
                "del name, names",
                {"names": list(called)},
            )

    def _call_here(self, name: str, given: str) -> str:
        """Calls a tool in this process for code in the sandbox."""
        tool = self._called_here[name]
        args, kwargs = SafeSerializer.loads(given)
        return str(SafeSerializer.dumps(tool(*args, **kwargs)))


def _printed(piece: Piece) -> str:
    text = piece.stdout + piece.stderr
    if piece.left_out:
        text += f"\n… and {piece.left_out:,} characters more, for which there was no room\n"
    return text


def _with_logs(said: str, logs: str) -> str:
    return f"{logs.rstrip()}\n{said}" if logs else said
