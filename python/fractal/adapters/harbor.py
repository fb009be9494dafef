"""Harbor's tasks in sandboxes of this machine.

``--environment fractal.adapters.harbor:FractalEnvironment`` has Harbor run its
trials in clones of this machine: what a task's Dockerfile says is carried out
in the clone, which is what it stands on whatever its `FROM` names. It needs
``harbor``, and sandboxes of root.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import posixpath
import re
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import IO, Any

from harbor.constants import CACHE_DIR
from harbor.environments.base import BaseEnvironment, ExecResult, transfer_tar_filter
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode

from .. import aio
from .._aio_threads import on_thread
from ..client import SandboxClient
from ._dockerfile import Copy, Image, Run, read
from ._keeper import Keeper, Tells

__all__ = ["FractalEnvironment"]

TTL_SECONDS = 7 * 24 * 3600.0
"""A sandbox that nobody stopped, because Harbor was killed, ends after this."""


class FractalEnvironment(BaseEnvironment):  # type: ignore[misc]  # it has no types
    """A trial's environment: a clone that is made by ``start`` and dropped by
    ``stop``; ``box`` is the sandbox itself."""

    def __init__(
        self,
        *args: Any,
        client: SandboxClient | None = None,
        hide: Iterable[str] = (),
        ttl: float = TTL_SECONDS,
        **how: Any,
    ) -> None:
        """``hide`` names what of this machine a trial shall not see, beside the
        task itself, the trial's results and Harbor's cache, which it never sees."""
        self._image = Image()
        self._client = client
        self._hide = tuple(hide)
        self._ttl = ttl
        self._anchor: str | None = None
        self._box: aio.Sandbox | None = None
        self._keeper: Keeper | None = None
        super().__init__(*args, **how)

    @staticmethod
    def type() -> str:
        return "fractal"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            dynamic_network_policy=True,
        )

    def _validate_definition(self) -> None:
        for name in ("docker-compose.yaml", "docker-compose.yml"):
            if (self.environment_dir / name).exists():
                raise ValueError(f"{name}: a trial has one sandbox here, not several services")
        dockerfile = self.environment_dir / "Dockerfile"
        if dockerfile.exists():
            self._image = read(dockerfile.read_text())
        elif not self.task_env_config.docker_image:
            raise FileNotFoundError(f"{dockerfile}: it says how to make the environment")

    @property
    def box(self) -> aio.Sandbox:
        """The sandbox: to diff, fork and compare."""
        if self._box is None:
            raise RuntimeError("the environment has no sandbox: call `start()` first")
        return self._box

    # Its life.

    async def start(self, force_build: bool) -> None:
        # Nothing is kept of a build, so each one is made by force.
        await self.stop(delete=True)
        self._anchor = await on_thread(tempfile.mkdtemp, "", "fractal-harbor-")
        try:
            self._box = await self._made()
            await self._conceal()
            async with asyncio.timeout(self.task_env_config.build_timeout_sec):
                for step in self._image.steps:
                    await self._carry_out(step)
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        await self._end_commands()
        box, self._box = self._box, None
        anchor, self._anchor = self._anchor, None
        if box is not None:
            if delete:
                await box.drop(force=True)
            else:
                await box.stop()
                self.logger.info("kept: `fractal show %s`", box.name)
        if anchor is not None and (delete or box is None):
            shutil.rmtree(anchor, ignore_errors=True)

    async def _made(self) -> aio.Sandbox:
        memory_mb = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        storage_mb = self._effective_storage_mb
        client = None if self._client is None else aio.SandboxClient.of(self._client)
        return await aio.Sandbox.create(
            self._anchor if self._client is None else None,
            _name(self.session_id),
            client=client,
            network=_widest([self._network_policy, *self._phase_network_policies]),
            memory=None if memory_mb is None else memory_mb << 20,
            cpus=self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT),
            disk=None if storage_mb is None else storage_mb << 20,
            ttl=self._ttl,
        )

    async def _conceal(self) -> None:
        """A clone shows the machine, so also the answers: they are removed in it."""
        if os.path.realpath(self.box.sync.directory) == "/":
            raise RuntimeError("a server that works in / has nothing to hide tasks behind")
        trial = self.trial_paths.trial_dir
        places = [self.environment_dir.parent, trial, CACHE_DIR, *map(Path, self._hide)]
        await self._succeed(["rm", "-rf", "--", *(str(place.absolute()) for place in places)])

    # The Dockerfile.

    async def _carry_out(self, step: Run | Copy) -> None:
        if isinstance(step, Copy):
            await self._bring(step)
            return
        words = _as_user(list(step.words), step.user)
        await self._succeed(words, cwd=step.cwd, env={**self._startup_env(), **step.env})

    async def _bring(self, step: Copy) -> None:
        for pattern in step.sources:
            found = sorted(self.environment_dir.glob(pattern.strip("/"))) or [
                self.environment_dir / pattern.strip("/")
            ]
            for source in found if pattern.strip("/") not in ("", ".") else [self.environment_dir]:
                await self._bring_one(step, source, is_into=step.is_into or len(found) > 1)

    async def _bring_one(self, step: Copy, source: Path, *, is_into: bool) -> None:
        to = step.to
        if source.is_dir():
            await self.upload_dir(source, to)
        elif source.exists():
            to = posixpath.join(to, source.name) if is_into or await self.is_dir(to) else to
            await self.upload_file(source, to)
        else:
            raise FileNotFoundError(f"{source}: the Dockerfile copies it")
        for program, what in (("chmod", step.mode), ("chown", step.owner)):
            if what is not None:
                await self._succeed([program, "-R", "--", what, to])

    async def _succeed(
        self, words: list[str], *, cwd: str = "/", env: dict[str, str] | None = None
    ) -> None:
        done = await self.box.run(words, cwd=cwd, env=env, network=_network(self._network_policy))
        if done.error is not None:
            last = "\n".join((done.stderr or done.stdout).splitlines()[-20:])
            raise RuntimeError(f"{' '.join(words)[:200]!r} ended with {done.error}:\n{last}")

    # Commands.

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        who = self._resolve_user(user)
        tell = self._output_callback()
        try:
            done = await self._commands().run(
                _as_user(["bash", "-c", command], self._image.user if who is None else who),
                cwd=cwd or self.task_env_config.workdir or self._image.workdir,
                env={**self._image.env, **(self._merge_env(env) or {})},
                timeout=timeout_sec or None,
                tell=None if tell is None else _teller(tell),
            )
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        stderr = done.stderr.decode(errors="replace")
        if done.is_truncated:
            stderr += "\n[there was more output than is kept]\n"
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"), stderr=stderr, return_code=done.exit_code
        )

    def _commands(self) -> Keeper:
        if self._keeper is None:
            self._keeper = Keeper(self.box, network=_network(self._network_policy))
        return self._keeper

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """What runs has the network that it began with, so it is ended."""
        await self._end_commands()

    async def _end_commands(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.close()

    # Files.

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        with Path(source_path).open("rb") as content:
            mode = os.fstat(content.fileno()).st_mode & 0o777
            await self.box.files.write(target_path, content, mode=mode)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        with tempfile.TemporaryFile() as archive:
            await on_thread(_pack, archive, Path(source_dir))
            async with self._archive() as inside:
                await self.box.files.write(inside, archive)
                script = 'mkdir -p -- "$1" && exec tar --no-same-owner -C "$1" -xf "$2"'
                await self._succeed(["sh", "-c", script, "sh", target_dir, inside])

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await on_thread(self._fetch, source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        async with self._archive() as inside:
            await self._succeed(["tar", "-C", source_dir, "-cf", inside, "."])
            with tempfile.TemporaryDirectory() as apart:
                archive = Path(apart) / "archive.tar"
                await self.download_file(inside, archive)
                await on_thread(_unpack, archive, Path(target_dir))

    def _fetch(self, source: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.box.files.sync.open(source) as content, target.open("wb") as copy:
                shutil.copyfileobj(content, copy)
        except (OSError, ValueError):
            # What only programs in the sandbox can read.
            target.write_bytes(self.box.files.sync.read(source, "bytes"))

    @contextlib.asynccontextmanager
    async def _archive(self) -> Any:
        """A path inside for an archive on its way."""
        path = f"/tmp/fractal-harbor-{uuid.uuid4().hex}.tar"
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                await self.box.run(["rm", "-f", "--", path])


def _name(session_id: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", session_id.lower()).strip("-")[:40]
    return f"harbor-{plain}-{uuid.uuid4().hex[:8]}"


def _network(policy: NetworkPolicy) -> str | list[str]:
    """`none`, or the hosts that are reached, through a proxy."""
    if policy.network_mode == NetworkMode.NO_NETWORK:
        return "none"
    if policy.network_mode == NetworkMode.PUBLIC:
        return ["*"]
    return list(policy.allowed_hosts)


def _widest(policies: list[NetworkPolicy]) -> str | list[str]:
    """What a sandbox needs so that each of these can hold in it in its turn."""
    rules = [_network(policy) for policy in policies]
    if all(rule == "none" for rule in rules):
        return "none"
    hosts = {host for rule in rules if isinstance(rule, list) for host in rule}
    return ["*"] if "*" in hosts else sorted(hosts)


def _as_user(words: list[str], user: str | int | None) -> list[str]:
    if user is None or str(user) in ("root", "0"):
        return words
    if str(user).isdigit():
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *words]
    return ["runuser", "-u", str(user), "--", *words]


def _teller(tell: Callable[[str, Any], Awaitable[None]]) -> Tells:
    """Tells pieces of bytes as text, whole characters at a time."""
    decoders = {
        name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")
    }

    async def say(piece: bytes, stream: str) -> None:
        if text := decoders[stream].decode(piece):
            await tell(text, stream)

    return say


def _pack(archive: IO[bytes], source: Path) -> None:
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source, arcname=".")
    archive.flush()
    archive.seek(0)


def _unpack(archive: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter=transfer_tar_filter)
