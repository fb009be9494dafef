"""A back end of llm-sandbox: its sessions in sandboxes of fractal.

Importing this module registers the back end ``fractal``, so that
``SandboxSession(backend="fractal", …)`` and ``ArtifactSandboxSession`` work in
clones of this machine. Commands run under a time limit of the engine: one that
meets it is ended, and the session goes on.
"""

from __future__ import annotations

import inspect
import io
import math
import os
import pathlib
import posixpath
import re
import shlex
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llm_sandbox.backends import BackendCapabilities, register_backend
from llm_sandbox.const import SupportedLanguage
from llm_sandbox.core.config import SessionConfig
from llm_sandbox.core.session_base import BaseSession
from llm_sandbox.data import ConsoleOutput
from llm_sandbox.exceptions import (
    CommandEmptyError,
    CommandFailedError,
    ContainerError,
    NotOpenSessionError,
    SandboxError,
    SandboxTimeoutError,
    SecurityError,
)

from ..client import SandboxClient
from ..sandbox import Sandbox
from . import _archives, _topology

if TYPE_CHECKING:
    from .._commands import Command
    from ..sandbox import RunResult

__all__ = ["NAME", "FractalSession"]

NAME = "fractal"
OUTPUT_BYTES_MAX = 32 << 20
PLOTS = "/tmp/sandbox_plots"
"""Where llm-sandbox has plots put."""
PACKAGES = ".packages"
"""Where libraries go if Python's own place is not to be written, below the
directory that is worked in."""

Tells = Callable[[str], object]


class FractalSession(BaseSession):  # type: ignore[misc]
    """A session of llm-sandbox in a sandbox.

    What it does without: images, Dockerfiles and containers to commit. A sandbox is
    a clone of this machine, with its languages and packages. ``container_id`` is the
    name of a sandbox that exists, and stays. ``workdir`` is scratch space unless it
    is a directory of this machine. ``bounds`` are those of
    :meth:`fractal.Sandbox.create`, for ``directory``; there is no network unless it
    is asked for.
    """

    def __init__(
        self,
        image: str | None = None,
        dockerfile: str | None = None,
        lang: str = SupportedLanguage.PYTHON,
        keep_template: bool = False,
        commit_container: bool = False,
        verbose: bool = False,
        stream: bool = False,
        runtime_configs: Mapping[str, Any] | None = None,
        workdir: str | None = "/sandbox",
        security_policy: Any = None,
        default_timeout: float | None = 60.0,
        execution_timeout: float | None = None,
        session_timeout: float | None = None,
        container_id: str | None = None,
        skip_environment_setup: bool = False,
        encoding_errors: str = "strict",
        *,
        directory: str | os.PathLike[str] | None = None,
        client: SandboxClient | None = None,
        template: str | None = None,
        python: str | None = None,
        output_max: int = OUTPUT_BYTES_MAX,
        libraries: list[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        **bounds: Any,
    ) -> None:
        _refuse(image=image, dockerfile=dockerfile, commit_container=commit_container)
        if encoding_errors not in ("strict", "replace"):
            raise ValueError(
                f"encoding_errors={encoding_errors!r}: what is not UTF-8 is always replaced here; "
                "have the code write such output into a file and copy it"
            )
        bounds.update(_bounds(runtime_configs or {}))
        unknown = sorted(bounds.keys() - inspect.signature(Sandbox.create).parameters.keys())
        if unknown:
            raise TypeError(f"a session here is not told {', '.join(unknown)}: leave it out")
        config = SessionConfig(
            lang=SupportedLanguage(lang),
            verbose=verbose,
            workdir=_absolute(workdir or "/sandbox"),
            runtime_configs=dict(runtime_configs or {}),
            security_policy=security_policy,
            default_timeout=_positive("default_timeout", default_timeout),
            execution_timeout=_positive("execution_timeout", execution_timeout),
            session_timeout=_positive("session_timeout", session_timeout),
            container_id=container_id,
            skip_environment_setup=skip_environment_setup,
            encoding_errors=encoding_errors,
        )
        super().__init__(config=config, libraries=libraries)
        self.container: Sandbox | None = None
        self.stream = stream
        self.keep_template = keep_template
        self._client = client or SandboxClient()
        self._envs = _environment({**(bounds.pop("envs", None) or {}), **(env_vars or {})})
        self._asked = {"directory": directory, **bounds}
        self._template = template
        self._python = python
        self._output_max = output_max
        self._limits = threading.local()
        self._life = threading.RLock()

    # The session

    def open(self) -> None:
        """Makes the sandbox, or takes over the one that was named."""
        with self._life:
            if self.is_open:
                return
            try:
                self.container = self._sandbox()
            except (OSError, RuntimeError) as error:
                raise ContainerError(f"no sandbox could be had: {error}") from error
            super().open()
            try:
                self._prepare()
                self.environment_setup()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Ends what runs, and drops the sandbox if it was made here."""
        with self._life:
            super().close()
            box, self.container = self.container, None
        if box is not None and not self.using_existing_container:
            box.drop(force=True)

    @property
    def sandbox(self) -> Sandbox:
        """Where it works."""
        box: Sandbox | None = self.container
        if box is None or not self.is_open:
            raise NotOpenSessionError
        return box

    def _sandbox(self) -> Sandbox:
        if self.using_existing_container:
            return self._client.open(self.config.container_id)
        asked = dict(self._asked)
        workdir = self.config.workdir
        if self._template is None and self._client.url is None and not os.path.isdir(workdir):
            return _topology.with_scratch(workdir, client=self._client, **asked)
        return self._client.create(template=self._template, **asked)

    def _connect_to_existing_container(self, container_id: str) -> None:
        self.container = self._client.open(container_id)

    def _handle_timeout(self) -> None:
        """The engine has ended what took too long; the session goes on."""

    # What languages need

    def _prepare(self) -> None:
        """Finds out which Python there is, and where libraries go."""
        script = (
            'mkdir -p -- "$1" || exit; shift; '
            'for python do found=$(command -v "$python" 2>/dev/null) && break; done; '
            '[ -z "$found" ] && exit; printf "%s\\n" "$found"; "$found" -c "'
            "import os, sysconfig; print(os.access(sysconfig.get_path('purelib'), os.W_OK))"
            '"'
        )
        tried = [self._python] if self._python else [sys.executable or "python3", "python3"]
        words = ["sh", "-c", script, "sh", self.config.workdir, *tried]
        # Not in the directory that is yet to be made.
        done = self.sandbox.run(words, cwd="/")
        if done.exit_code != 0:
            raise ContainerError(f"{self.config.workdir} cannot be made: {done.stderr.strip()}")
        if not self.using_existing_container:
            # What lies there on this machine is none of this session's plots.
            self.sandbox.run(["rm", "-rf", "--", PLOTS], cwd="/")
        found, writable = (done.stdout.split("\n") + ["", ""])[:2]
        self._found = found or "python3"
        self._envs.setdefault("PYTHONUNBUFFERED", "1")
        self._envs.setdefault("PIP_RETRIES", "1")
        self._envs.update(PIP_BREAK_SYSTEM_PACKAGES="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        if writable != "True":
            place = posixpath.join(self.config.workdir, PACKAGES)
            self._envs.update(PIP_TARGET=place, PYTHONPATH=place)
        if self.language_handler.name == SupportedLanguage.PYTHON:
            words = [shlex.quote(self._found).replace("{", "{{").replace("}", "}}"), "{file}"]
            self.language_handler.config.execution_commands = [" ".join(words)]

    def environment_setup(self) -> None:
        """Installs libraries that were asked for; there is nothing else to do."""
        is_go = self.language_handler.name == SupportedLanguage.GO
        if is_go and not self.config.skip_environment_setup:
            self._succeed("[ -e go.mod ] || go mod init sandbox", self.config.workdir)
        if self._initial_libraries:
            self.install(self._initial_libraries)

    def install(self, libraries: list[str] | None = None) -> None:
        """Installs libraries in the sandbox; raises if one cannot be."""
        self._limits.installs = True
        try:
            super().install(libraries)
        finally:
            self._limits.installs = False

    def execute_commands(self, commands: Sequence[Any], *args: Any, **keywords: Any) -> Any:
        """Runs commands up to one that fails, which is an error of libraries alone."""
        output = super().execute_commands(commands, *args, **keywords)
        if output.exit_code and getattr(self._limits, "installs", False):
            said = output.stderr or output.stdout
            raise CommandFailedError(str(commands[0][0]), output.exit_code, said)
        return output

    @property
    def python_executable_path(self) -> str:
        """The sandbox's own Python, with all its packages."""
        return shlex.quote(self._found)

    @property
    def pip_executable_path(self) -> str:
        return f"{self.python_executable_path} -m pip"

    def _succeed(self, command: str, workdir: str | None) -> None:
        done = self.execute_command(command, workdir)
        if done.exit_code:
            raise CommandFailedError(command, done.exit_code, done.stderr or done.stdout)

    # Commands

    def run(
        self,
        code: str,
        libraries: list[str] | None = None,
        timeout: float | None = None,
        on_stdout: Tells | None = None,
        on_stderr: Tells | None = None,
    ) -> ConsoleOutput:
        """Runs code in the session's language; all that it takes has one time limit."""
        _positive("timeout", timeout)
        return super().run(code, libraries, timeout, on_stdout, on_stderr)

    def execute_command(
        self,
        command: str,
        workdir: str | None = None,
        on_stdout: Tells | None = None,
        on_stderr: Tells | None = None,
    ) -> ConsoleOutput:
        """Runs a shell command, with the session's time limit."""
        if not command:
            raise CommandEmptyError
        box = self.sandbox
        self._check_session_timeout()
        self._log(f"Executing command: {command}")
        heard = _Heard(on_stdout, on_stderr)
        with self._engine(command):
            running = box.commands.run(
                ["sh", "-c", command],
                background=True,
                stdin=b"",
                cwd=workdir or self.config.workdir,
                envs=self._envs,
                on_stdout=heard.stdout,
                on_stderr=heard.stderr,
                timeout=self._seconds_left(),
                output=self._output_max,
            )
            ended = heard.follow(running)
        done = ended()
        return self._judged(command, done, *heard.texts())

    @contextmanager
    def _engine(self, what: str) -> Iterator[None]:
        """Has what the engine refuses be an error of llm-sandbox."""
        try:
            yield
        except OSError as error:
            if self.is_open:
                raise ContainerError(f"{what}: {error}") from error
            raise NotOpenSessionError from error

    def _judged(self, command: str, done: RunResult, stdout: str, stderr: str) -> ConsoleOutput:
        if not self.is_open:
            raise NotOpenSessionError
        if done.outcome == "timeout":
            seconds = getattr(self._limits, "seconds", None) or self.config.get_execution_timeout()
            raise SandboxTimeoutError(f"it took more than {seconds:g} seconds: {command}", seconds)
        if done.outcome == "output":
            raise SandboxError(f"it wrote more than {self._output_max} bytes: {command}")
        if done.outcome not in ("exited", "signalled"):
            stderr += f"{done.error}\n"
        return ConsoleOutput(exit_code=done.exit_code, stdout=stdout, stderr=stderr)

    def _execute_with_timeout(
        self,
        func: Callable[..., Any],
        *args: Any,
        timeout: float | None = None,
        force_kill_on_timeout: bool = True,
        **keywords: Any,
    ) -> Any:
        """Has all commands of one request end by a common deadline."""
        if timeout is None:
            return func(*args, **keywords)
        before = getattr(self._limits, "until", None)
        until = time.monotonic() + timeout
        self._limits.seconds = timeout
        self._limits.until = until if before is None else min(before, until)
        try:
            return func(*args, **keywords)
        finally:
            self._limits.until, self._limits.seconds = before, None

    def _seconds_left(self) -> float | None:
        until: float | None = getattr(self._limits, "until", None)
        if until is None:
            seconds: float | None = self.config.get_execution_timeout()
            return seconds
        left = until - time.monotonic()
        if left <= 0:
            seconds = getattr(self._limits, "seconds", None)
            raise SandboxTimeoutError("there is no time left for another command", seconds)
        return max(left, 0.001)

    # Files

    def copy_to_runtime(self, src: str, dest: str) -> None:
        """Copies a file or a directory into the sandbox."""
        box = self.sandbox
        target = self._place(self._validate_container_path(dest))
        source = pathlib.Path(src)
        if not source.is_file() and not source.is_dir():
            raise FileNotFoundError(f"there is no file or directory {src} on this machine")
        with self._engine(f"{src} cannot be copied"):
            done = _archives.send(box, source, target)
        if done.exit_code != 0:
            raise ContainerError(f"{src} cannot be copied to {dest}: {_archives.why(done)}")

    def copy_from_runtime(self, src: str, dest: str) -> None:
        """Copies a file out of the sandbox, or a directory into ``dest``. Links
        are left out."""
        bits, _ = self.get_archive(src)
        with tarfile.open(fileobj=io.BytesIO(bits)) as archive:
            try:
                _archives.unpack(archive, pathlib.Path(dest))
            except ValueError as error:
                raise SecurityError(str(error)) from error

    def get_archive(self, path: str) -> tuple[bytes, dict[str, Any]]:
        """A tar archive of a file or a directory, and what stands there."""
        box = self.sandbox
        with self._engine(path):
            done, text = _archives.fetch(box, self._place(path))
        return _archives.read(path, done, text)

    def _place(self, path: str) -> str:
        """A path as programs in the session see it."""
        return posixpath.normpath(posixpath.join(self.config.workdir, path))

    # What containers have, and sandboxes do otherwise

    def _ensure_directory_exists(self, path: str) -> None:
        self.sandbox.files.make_dir(self._place(path))

    def _ensure_ownership(self, paths: list[str]) -> None:
        """All that is made in a sandbox belongs to who runs in it."""

    def _process_non_stream_output(self, output: Any) -> tuple[str, str]:
        raise NotImplementedError("output is heard while a command runs")

    def _process_stream_output(
        self, output: Any, on_stdout: Tells | None = None, on_stderr: Tells | None = None
    ) -> tuple[str, str]:
        raise NotImplementedError("output is heard while a command runs")


class _Heard:
    """What a command writes, told to callbacks; one that raises ends the command."""

    def __init__(self, on_stdout: Tells | None, on_stderr: Tells | None) -> None:
        self._texts: tuple[list[str], list[str]] = ([], [])
        self._raised = threading.Event()
        self._error: BaseException | None = None
        self.stdout = self._hears(self._texts[0], on_stdout)
        self.stderr = self._hears(self._texts[1], on_stderr)

    def _hears(self, heard: list[str], tell: Tells | None) -> Tells:
        def hear(text: str) -> None:
            heard.append(text)
            if tell is None or self._raised.is_set():
                return
            try:
                tell(text)
            except BaseException as error:
                self._error = error
                self._raised.set()

        return hear

    def follow(self, running: Command) -> Callable[[], RunResult]:
        """Waits for the end; what is returned tells it, or raises what a callback
        raised."""
        try:
            while running.is_running:
                if self._raised.is_set():
                    running.kill()
                try:
                    running.wait(0.1)
                except TimeoutError:
                    continue
            done = running.wait()
        except BaseException:
            running.kill()
            raise
        return lambda: self._told(done)

    def _told(self, done: RunResult) -> RunResult:
        if self._error is not None:
            raise self._error
        return done

    def texts(self) -> tuple[str, str]:
        stdout, stderr = ("".join(heard) for heard in self._texts)
        return stdout, stderr


def _refuse(**given: Any) -> None:
    named = [name for name, value in given.items() if value]
    if named:
        raise ValueError(
            f"a clone of this machine has no {', '.join(named)}: leave it out; what is installed "
            "here is there, and `template` names how it is set up"
        )


def _absolute(path: str) -> str:
    # llm-sandbox writes it into shell commands as it is.
    sound = re.fullmatch(r"/[A-Za-z0-9_./-]+", path) and ".." not in path.split("/")
    if not sound or posixpath.normpath(path) == "/":
        raise ValueError(
            f"workdir is an absolute path below /, of letters, digits and . _ -: it is {path!r}"
        )
    return posixpath.normpath(path)


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} cannot be a variable with the value {value!r}")
    return dict(given)


def _positive(name: str, seconds: float | None) -> float | None:
    if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{name} is above zero, or None: it is {seconds}")
    return seconds


def _bounds(runtime_configs: Mapping[str, Any]) -> dict[str, Any]:
    """What a container is given, in our words."""
    bounds: dict[str, Any] = {}
    for name, value in runtime_configs.items():
        if name == "mem_limit":
            bounds["memory"] = _bytes(value)
        elif name == "cpu_count":
            bounds["cpus"] = value
        elif name == "pids_limit":
            bounds["pids"] = value
        elif name == "network_mode" and value in ("none", "host"):
            bounds["network"] = value
        elif name == "environment":
            pairs = (
                value.items() if isinstance(value, Mapping) else (p.split("=", 1) for p in value)
            )
            bounds["envs"] = dict(pairs)
        else:
            raise ValueError(
                f"runtime_configs: {name}={value!r} is for containers; there are mem_limit, "
                "cpu_count, pids_limit, environment and network_mode ('none' or 'host')"
            )
    return bounds


def _bytes(size: int | str) -> int:
    if isinstance(size, int):
        return size
    number, unit = size.lower().rstrip("b"), 0
    if number[-1:] in "kmg" and number:
        number, unit = number[:-1], 10 * ("kmg".index(number[-1]) + 1)
    if not number.isdecimal():
        raise ValueError(f"{size!r} is no size: write a number with k, m or g, as in '512m'")
    return int(number) << unit


register_backend(
    NAME,
    FractalSession,
    capabilities=BackendCapabilities(
        platforms=("linux",), filesystem_isolation=True, network_isolation=True
    ),
)
