"""The OpenAI Agents SDK in sandboxes of this machine.

:class:`FractalSandboxClient` is a sandbox client as the SDK has them: a
``SandboxAgent`` that is run with it works in a clone of a project, and what it
did can be looked at, forked and promoted like the work of any other sandbox.
It needs ``openai-agents``.
"""

from __future__ import annotations

import asyncio
import copy
import io
import re
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Literal, cast

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    MountConfigError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.materialization import MaterializationResult
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)
from agents.sandbox.session.runtime_helpers import (
    RESOLVE_WORKSPACE_PATH_HELPER,
    RuntimeHelperScript,
)
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile
from agents.sandbox.workspace_paths import sandbox_path_str

from .. import aio
from .._aio_threads import on_thread, stoppable
from .._errors import code_of
from ..client import SandboxClient
from ._terminal import Terminal, at_terminal

__all__ = [
    "FractalSandboxClient",
    "FractalSandboxClientOptions",
    "FractalSandboxSession",
    "FractalSandboxSessionState",
    "sandbox_of",
]

# The lowest number above all that are given to people; and what makes each.
_ACCOUNTS = """
next() { cut -d: -f3 /etc/passwd /etc/group | sort -n | awk '$1 >= 1000 && $1 < 60000 { n = $1 }
    END { print n ? n + 1 : 1000 }'; }
"""
_GROUP = 'grep -q "^$1:" /etc/group || echo "$1:x:$(next):" >> /etc/group'
_USER = """
grep -q "^$1:" /etc/passwd && exit
id=$(next)
grep -q "^$1:" /etc/group || echo "$1:x:$id:" >> /etc/group
group=$(grep "^$1:" /etc/group | cut -d: -f3)
echo "$1:x:$id:$group::/nonexistent:/usr/sbin/nologin" >> /etc/passwd
"""
_MEMBER = """
changed=$(awk -F: -v OFS=: -v g="$1" -v u="$2" '
    $1 == g && ("," $4 ",") !~ ("," u ",") { $4 = $4 == "" ? u : $4 "," u } { print }' /etc/group)
printf '%s\\n' "$changed" > /etc/group
"""

_DEFAULT_ROOT = cast(str, Manifest.model_fields["root"].default)


class FractalSandboxClientOptions(BaseSandboxClientOptions):
    """What a new sandbox is like; the names are those of
    :meth:`fractal.Sandbox.create`."""

    type: Literal["fractal"] = "fractal"
    directory: str | None = None
    """The project to work in: the current directory by default, or a server's own."""
    name: str | None = None
    template: str | None = None
    base: Literal["live", "frozen"] = "live"
    network: str | tuple[str, ...] | None = None
    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk: int | None = None
    ttl: float | None = None
    envs: dict[str, str] | None = None
    exposed_ports: tuple[int, ...] = ()
    """Ports that are reached from outside: with ``network="host"``."""
    keep_on_exit: bool = False
    """Whether the sandbox stays when its session is closed, to be promoted, or
    resumed as it is."""

    def bounds(self) -> dict[str, Any]:
        names = ("template", "base", "network", "memory", "cpus", "pids", "disk", "ttl")
        return {name: getattr(self, name) for name in names}


class FractalSandboxSessionState(SandboxSessionState):
    """What is remembered of a session: which sandbox, and how to make another."""

    type: Literal["fractal"] = "fractal"
    sandbox: str
    options: FractalSandboxClientOptions


class FractalSandboxSession(BaseSandboxSession):
    """A session in a sandbox; ``box`` is the sandbox itself."""

    state: FractalSandboxSessionState

    def __init__(self, state: FractalSandboxSessionState, box: aio.Sandbox) -> None:
        self.state = state
        self.box = box
        self._terminals: dict[int, Terminal] = {}

    # What the SDK asks of every back end.

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        made = await self._run(["mkdir", "-p", "--", root.as_posix()], cwd="/")
        if not made.ok():
            reason = made.stderr.decode(errors="replace").strip()
            raise WorkspaceStartError(path=root, context={"reason": reason})
        self.state.workspace_root_ready = True

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    async def running(self) -> bool:
        return self.state.workspace_root_ready and await self.box.is_running()

    async def _shutdown_backend(self) -> None:
        if self.state.options.keep_on_exit:
            await self.box.stop()
        else:
            await self.box.drop(force=True)

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        if self.state.options.network == "host":
            return ExposedPortEndpoint(host="127.0.0.1", port=port)
        raise ExposedPortUnavailableError(
            port=port,
            exposed_ports=self.state.exposed_ports,
            reason="backend_unavailable",
            context={"backend": "fractal", "detail": 'only with network="host"'},
        )

    # Accounts.

    async def _apply_manifest(
        self, *, only_ephemeral: bool = False, provision_accounts: bool = True
    ) -> MaterializationResult:
        if provision_accounts and not only_ephemeral:
            await self.provision_manifest_accounts()
        return await super()._apply_manifest(
            only_ephemeral=only_ephemeral, provision_accounts=False
        )

    async def provision_manifest_accounts(self) -> None:
        """Not by `useradd`: it wants the file of passwords, which no sandbox shows."""
        manifest = self.state.manifest
        for group in manifest.groups:
            await self._account(_GROUP, group.name)
        members = [(group.name, user.name) for group in manifest.groups for user in group.users]
        for name in sorted({user.name for user in manifest.users} | {user for _, user in members}):
            await self._account(_USER, name)
        for group_name, user_name in members:
            await self._account(_MEMBER, group_name, user_name)

    async def _account(self, script: str, *names: str) -> None:
        for name in names:
            if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", name):
                raise WorkspaceStartError(
                    path=self._workspace_root_path(),
                    context={"reason": f"{name!r} is no name for an account"},
                )
        made = await self._run(["sh", "-c", _ACCOUNTS + script, "sh", *names], cwd="/")
        if not made.ok():
            reason = made.stderr.decode(errors="replace").strip()
            raise WorkspaceStartError(
                path=self._workspace_root_path(),
                context={"reason": f"{names[-1]}: accounts need a sandbox of root: {reason}"},
            )

    # Commands.

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        words = super()._prepare_exec_command(*command, shell=shell, user=None)
        name = user.name if isinstance(user, User) else user
        # Not by `sudo`, which few machines let do it without a password.
        return ["runuser", "-u", name, "--", *words] if name else words

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        return await self._run([str(word) for word in command], timeout=timeout)

    async def _run(
        self, words: list[str], *, timeout: float | None = None, cwd: str | None = None
    ) -> ExecResult:
        try:
            command = await self._begin(words, timeout=timeout, cwd=cwd, stdin=b"")
            done = await stoppable(command.sync.kill, command.sync.wait)
        except (OSError, ValueError, RuntimeError) as error:
            raise _lost(words, error) from error
        if done.outcome == "timeout":
            raise ExecTimeoutError(
                command=words,
                timeout_s=timeout,
                context={"stdout": command.stdout, "stderr": command.stderr},
            )
        stderr = command.stderr_bytes
        if command.truncated:
            stderr += b"\n[there was more output than is kept]\n"
        return ExecResult(stdout=command.stdout_bytes, stderr=stderr, exit_code=done.exit_code)

    async def _begin(
        self,
        words: list[str],
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        hear: Callable[[str], object] | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> aio.Command:
        """Begins a program; who is cancelled meanwhile leaves none behind."""
        named = await self.state.manifest.environment.resolve()
        if cwd is None and self.state.workspace_root_ready:
            cwd = self.state.manifest.root
        begin = asyncio.ensure_future(
            self.box.commands.run(
                words,
                background=True,
                envs={**(self.state.options.envs or {}), **named, **(envs or {})},
                cwd=cwd,
                timeout=None if timeout is None else max(timeout, 0.001),
                stdin=stdin,
                on_stdout=hear,
                on_stderr=hear,
            )
        )
        try:
            return await asyncio.shield(begin)
        except asyncio.CancelledError:
            await (await begin).kill()
            raise

    # Programs that go on between turns.

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        await self._make_room()
        terminal = Terminal(tty)
        try:
            terminal.command = await self._begin(
                at_terminal(words) if tty else words,
                timeout=timeout,
                stdin=None if tty else b"",
                hear=terminal.hear,
                envs={"SHELL": "/bin/sh", "TERM": "xterm"} if tty else None,
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise _lost(words, error) from error
        terminal.waiting = asyncio.create_task(terminal.follow())
        number = allocate_pty_process_id(set(self._terminals))
        self._terminals[number] = terminal
        wanted_ms = 10_000 if yield_time_s is None else int(yield_time_s * 1000)
        return await self._update(number, clamp_pty_yield_time_ms(wanted_ms), max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        terminal = self._resolve_pty_session_entry(
            pty_processes=self._terminals, session_id=session_id
        )
        terminal.used = time.monotonic()
        if chars:
            if not terminal.tty:
                # The SDK knows this sentence.
                raise RuntimeError("stdin is not available for this process")
            await terminal.type(chars)
        wanted_ms = 250 if yield_time_s is None else int(yield_time_s * 1000)
        wait_ms = resolve_pty_write_yield_time_ms(
            yield_time_ms=wanted_ms, input_empty=chars == ""
        )
        return await self._update(session_id, wait_ms, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        terminals, self._terminals = list(self._terminals.values()), {}
        await asyncio.gather(*(terminal.end() for terminal in terminals))

    async def _update(
        self, number: int, wait_ms: int, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        terminal = self._terminals[number]
        output, tokens, is_over = await collect_pty_output(
            output_chunks=terminal.chunks,
            output_lock=terminal.lock,
            output_notify=terminal.heard,
            is_done=terminal.over.is_set,
            yield_time_ms=wait_ms,
            max_output_tokens=max_output_tokens,
        )
        if is_over:
            self._terminals.pop(number, None)
        return PtyExecUpdate(
            process_id=None if is_over else number,
            output=output,
            exit_code=terminal.exit_code if is_over else None,
            original_token_count=tokens,
        )

    async def _make_room(self) -> None:
        if len(self._terminals) < PTY_PROCESSES_MAX:
            return
        known = [(number, one.used, one.over.is_set()) for number, one in self._terminals.items()]
        number = process_id_to_prune_from_meta(known)
        if number is not None:
            await self._terminals.pop(number).end()

    # Files.

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        at = sandbox_path_str(await self._validate_path_access(path))
        try:
            return io.BytesIO(await self.box.files.read(at, "bytes"))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except (OSError, ValueError) as error:
            raise WorkspaceArchiveReadError(
                path=path, context={"detail": str(error)}, cause=error
            ) from error

    async def write(
        self, path: Path, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        at = await self._validate_path_access(path, for_write=True)
        with await on_thread(_spooled, data, path) as content:
            await self._put(at, content)

    async def _put(self, at: Path, content: IO[bytes]) -> None:
        try:
            await self.box.files.write(sandbox_path_str(at), content)
        except (OSError, ValueError) as error:
            raise WorkspaceArchiveWriteError(
                path=at, context={"detail": str(error)}, cause=error
            ) from error

    # The workspace as a whole.

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        archive = self._archive_path()
        skipped = sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        excluded = [f"--exclude=./{path}" for path in skipped]
        pack = ["tar", "--anchored", "--no-wildcards", *excluded]
        try:
            packed = await self._run([*pack, "-C", root.as_posix(), "-cf", archive, "."], cwd="/")
            if not packed.ok():
                reason = packed.stderr.decode(errors="replace").strip()
                raise WorkspaceArchiveReadError(path=root, context={"reason": reason})
            return await on_thread(self._fetched, archive)
        except (OSError, ValueError) as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error
        finally:
            await self._run(["rm", "-f", "--", archive], cwd="/")

    def _fetched(self, archive: str) -> io.IOBase:
        with self.box.files.sync.open(archive) as source:
            return cast(io.IOBase, _spooled(cast(io.IOBase, source), Path(archive)))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        archive = self._archive_path()
        try:
            with await on_thread(_checked, data, root) as content:
                await self._put(Path(archive), content)
            script = 'mkdir -p -- "$1" && exec tar -C "$1" -xf "$2"'
            words = ["sh", "-c", script, "sh", root.as_posix(), archive]
            unpacked = await self._run(words, cwd="/")
            if not unpacked.ok():
                reason = unpacked.stderr.decode(errors="replace").strip()
                raise WorkspaceArchiveWriteError(path=root, context={"reason": reason})
        finally:
            await self._run(["rm", "-f", "--", archive], cwd="/")

    def _archive_path(self) -> str:
        return f"/tmp/fractal-workspace-{uuid.uuid4().hex}.tar"


class FractalSandboxClient(BaseSandboxClient[FractalSandboxClientOptions | None]):
    """Makes sessions in sandboxes: in this process, or through the server that
    a :class:`fractal.SandboxClient` is given for."""

    backend_id = "fractal"
    supports_default_options = True

    def __init__(
        self,
        client: SandboxClient | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._client = client
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: FractalSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """A session whose workspace is the project, unless the manifest names
        another root."""
        options = options or FractalSandboxClientOptions()
        manifest = manifest or Manifest()
        self._validate_manifest_for_create(manifest)
        _refuse_mounts(manifest)
        box = await self._make(options)
        if manifest.root == _DEFAULT_ROOT:
            manifest = manifest.model_copy(update={"root": box.sync.directory}, deep=True)
        session_id = uuid.uuid4()
        state = FractalSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=options.exposed_ports,
            sandbox=box.name,
            options=options,
        )
        return self._session(state, box)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The same sandbox when it is still there, and otherwise a new one with
        the workspace of the snapshot."""
        if not isinstance(state, FractalSandboxSessionState):
            raise TypeError(f"no session of fractal: {type(state).__name__}")
        state.assert_path_grants_rebound()
        _refuse_mounts(state.manifest)
        box = await self._find(state)
        is_there = box is not None
        if box is None:
            box = await self._make(state.options)
            state.sandbox = box.name
            state.workspace_root_ready = False
        session = self._session(state, box)
        session._inner._set_start_state_preserved(is_there)
        return session

    async def fork(self, session: SandboxSession) -> SandboxSession:
        """A session of its own in a fork: it sees what the other sees now."""
        inner = _inner(session)
        box = await inner.box.fork()
        session_id = uuid.uuid4()
        changed = {
            "session_id": session_id,
            "sandbox": box.name,
            "snapshot": resolve_snapshot(None, str(session_id)),
            "manifest": copy.deepcopy(inner.state.manifest),
        }
        forked = self._session(inner.state.model_copy(update=changed), box)
        forked._inner._set_start_state_preserved(True)
        return forked

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = _inner(session)
        if not inner.state.options.keep_on_exit:
            await inner.box.drop(force=True)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, FractalSandboxSessionState)

    def _session(self, state: FractalSandboxSessionState, box: aio.Sandbox) -> SandboxSession:
        inner = FractalSandboxSession(state, box)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def _make(self, options: FractalSandboxClientOptions) -> aio.Sandbox:
        return await aio.Sandbox.create(
            options.directory, options.name, client=self._aio(), **options.bounds()
        )

    async def _find(self, state: FractalSandboxSessionState) -> aio.Sandbox | None:
        try:
            directory = state.options.directory
            return await aio.Sandbox.open(state.sandbox, directory, client=self._aio())
        except OSError as error:
            if code_of(error) != "not_found":
                raise
            return None

    def _aio(self) -> aio.SandboxClient | None:
        return None if self._client is None else aio.SandboxClient.of(self._client)


def sandbox_of(session: BaseSandboxSession) -> aio.Sandbox:
    """The sandbox that a session works in: to diff, compare and promote."""
    return _inner(session).box


def _inner(session: BaseSandboxSession) -> FractalSandboxSession:
    inner = session._inner if isinstance(session, SandboxSession) else session
    if not isinstance(inner, FractalSandboxSession):
        raise TypeError(f"no session of fractal: {type(inner).__name__}")
    return inner


def _refuse_mounts(manifest: Manifest) -> None:
    for _, path in manifest.mount_targets():
        raise MountConfigError(
            message="fractal mounts no remote storage: copy the files, or mount it on the machine",
            context={"path": path.as_posix()},
        )


def _lost(words: list[str], error: Exception) -> ExecTransportError:
    return ExecTransportError(
        command=words,
        message=f"the command could not be run: {error}",
        context={"backend": "fractal", "code": code_of(error) or type(error).__name__},
        cause=error,
        retryable=code_of(error) == "busy",
    )


def _spooled(data: io.IOBase, path: Path) -> IO[bytes]:
    """All that can be read, in a file without a name."""
    content = tempfile.TemporaryFile()
    try:
        while piece := data.read(1 << 20):
            if isinstance(piece, str):
                piece = piece.encode()
            if not isinstance(piece, bytes | bytearray):
                raise WorkspaceWriteTypeError(path=path, actual_type=type(piece).__name__)
            content.write(piece)
        content.flush()
        content.seek(0)
    except BaseException:
        content.close()
        raise
    return content


def _checked(data: io.IOBase, root: Path) -> IO[bytes]:
    """An archive that stays where it is unpacked."""
    content = _spooled(data, root)
    try:
        with tarfile.open(fileobj=content, mode="r:*") as tar:
            validate_tarfile(tar, allow_external_symlink_targets=False)
    except (UnsafeTarMemberError, tarfile.TarError, OSError) as error:
        content.close()
        context = {"reason": "unsafe_or_invalid_tar", "detail": str(error)}
        raise WorkspaceArchiveWriteError(path=root, context=context, cause=error) from error
    content.seek(0)
    return content
