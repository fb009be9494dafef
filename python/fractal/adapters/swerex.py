"""A deployment of SWE-ReX: its runtime works in a clone of this machine.

The client needs a server; this starts one for itself alone, on the loopback, with
a key that opens one sandbox, and both end with the deployment. Where a server
runs already, SWE-ReX's own ``RemoteDeployment`` is enough: see the guide.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import secrets
import shutil
import sysconfig
from collections.abc import Iterable
from typing import Any

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import DeploymentNotStartedError, DeploymentStartupError
from swerex.runtime.abstract import IsAliveResponse
from swerex.runtime.remote import RemoteRuntime
from swerex.utils.log import get_logger

from .. import Sandbox

__all__ = ["FractalDeployment"]

KEY_TTL = "30d"
"""When a key ends whose deployment did not stop."""
START_SECONDS_MAX = 60.0
END_SECONDS_MAX = 30.0
LINE_BYTES_MAX = 1 << 20

# Whoever holds the other end of its standard input is gone: so is the server, also
# when that one was killed.
WATCHED = '"$@" </dev/null & server=$!; read -r _; kill $server; wait $server'


class FractalDeployment(AbstractDeployment):
    """A sandbox of the project in ``directory``, dropped by :meth:`stop`.

    An existing ``sandbox`` is worked in as it is, and kept; so is a new one with
    ``keep``. Sizes are bytes. ``program`` is the command ``fractal``, by default the
    one that came with the package.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] = ".",
        *,
        sandbox: Sandbox | None = None,
        keep: bool = False,
        template: str | None = None,
        network: str | Iterable[str] | None = None,
        memory: int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        disk: int | None = None,
        program: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        logger: logging.Logger | None = None,
    ) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._directory = pathlib.Path(directory).resolve()
        self._keep = keep or sandbox is not None
        self._bounds: dict[str, Any] = {
            "template": template, "network": network, "memory": memory, "cpus": cpus,
            "pids": pids, "disk": disk,
        }
        self._program = os.fspath(program) if program is not None else _program()
        self._timeout = timeout
        self._hooks = CombinedDeploymentHook()
        self._sandbox = sandbox
        self._server: asyncio.subprocess.Process | None = None
        self._key: str | None = None
        self._runtime: RemoteRuntime | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    @property
    def sandbox(self) -> Sandbox:
        """Where the work happens: to look at, fork, compare and promote."""
        if self._sandbox is None:
            raise DeploymentNotStartedError
        return self._sandbox

    @property
    def runtime(self) -> RemoteRuntime:
        """What works in the sandbox."""
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Whether the sandbox can be worked in."""
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Makes the sandbox, if there is none yet, and lets the client in."""
        if self._runtime is not None:
            return
        try:
            self._hooks.on_custom_step("Making a sandbox")
            if self._sandbox is None:
                name = f"swerex-{secrets.token_hex(5)}"
                self._sandbox = await asyncio.to_thread(
                    Sandbox.create, self._directory, name, **self._bounds)
            key = await self._make_key(self._sandbox.name)
            url = await self._serve()
            self._runtime = RemoteRuntime(
                host=f"{url}/swerex/{self._sandbox.name}", auth_token=key,
                timeout=self._timeout, logger=self.logger)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends what runs; the sandbox goes, unless it is to be kept."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            try:
                await asyncio.wait_for(runtime.close(), END_SECONDS_MAX)
            except Exception as error:  # Whatever it is: the server's end ends it as well.
                self.logger.warning("The runtime was not closed: %s", error)
        server, self._server = self._server, None
        if server is not None:
            await _end(server)
        key, self._key = self._key, None
        if key is not None:
            await self._fractal("key", "revoke", key)
        if not self._keep and self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await asyncio.to_thread(sandbox.drop)

    async def _make_key(self, sandbox: str) -> str:
        """A key for this sandbox alone; its secret."""
        shown = json.loads(await self._fractal("--json", "show", sandbox))
        made = json.loads(await self._fractal(
            "--json", "key", "create", "--role", "operator", "--tenant", "owner",
            "--scope", shown["id"], "--ttl", KEY_TTL,
            "--name", f"swerex-{secrets.token_hex(5)}"))
        self._key = made["id"]
        secret: str = made["secret"]
        return secret

    async def _serve(self) -> str:
        """Starts a server; its address."""
        self._server = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", WATCHED, "sh", self._program, "--json", "serve", "--no-socket",
            "--listen", "127.0.0.1:0", "--drain", "1s", "--log", "warn", cwd=self._directory,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES_MAX)
        assert self._server.stdout is not None
        line = await asyncio.wait_for(self._server.stdout.readline(), START_SECONDS_MAX)
        if not line:
            raise DeploymentStartupError(
                f"`{self._program} serve` did not start; standard error tells why")
        address: str = json.loads(line)["listen"][0]
        return address

    async def _fractal(self, *words: str) -> str:
        """What a command says."""
        command = await asyncio.create_subprocess_exec(
            self._program, *words, cwd=self._directory, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        try:
            out, err = await asyncio.wait_for(command.communicate(), START_SECONDS_MAX)
        except BaseException:
            if command.returncode is None:
                command.kill()
                await command.wait()
            raise
        if command.returncode != 0:
            why = err.decode(errors="replace").strip()
            raise DeploymentStartupError(f"`fractal {' '.join(words[:3])}` failed: {why}")
        return out.decode()


async def _end(server: asyncio.subprocess.Process) -> None:
    if server.returncode is not None:
        return
    assert server.stdin is not None
    server.stdin.close()
    try:
        await asyncio.wait_for(server.wait(), END_SECONDS_MAX)
    except asyncio.TimeoutError:
        server.kill()
        await server.wait()


def _program() -> str:
    """The command that came with the package, or the one that is found."""
    beside = pathlib.Path(sysconfig.get_path("scripts")) / "fractal"
    found = str(beside) if beside.is_file() else shutil.which("fractal")
    if found is None:
        raise DeploymentStartupError(
            "there is no command `fractal`: name it with `program`, or put it on PATH")
    return found
