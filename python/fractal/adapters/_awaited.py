"""Requests of :mod:`fractal.adapters._inside`, awaited with asyncio or trio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from ._inside import END_S_MAX, Call

T = TypeVar("T")

AT_ONCE_MAX = 64
"""How much is waited for in one sandbox at once; more waits for its turn."""


class Threads:
    """Where requests are waited for, so that the loop goes on."""

    def __init__(self) -> None:
        self._turns = anyio.CapacityLimiter(AT_ONCE_MAX)

    async def wait(self, work: Callable[[Call], T], call: Call | None = None) -> T:
        """Does something that takes this call; cancelling the task ends it."""
        asked = call or Call()
        begun = False

        def do() -> T:
            nonlocal begun
            begun = True
            return work(asked)

        try:
            return await anyio.to_thread.run_sync(do, abandon_on_cancel=True, limiter=self._turns)
        except anyio.get_cancelled_exc_class():
            if begun:
                with anyio.CancelScope(shield=True):
                    asked.cancel()
                    await anyio.to_thread.run_sync(asked.over.wait, END_S_MAX)
            raise
