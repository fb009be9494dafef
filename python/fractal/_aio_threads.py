"""Work that may take time, on threads beside the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

THREADS_MAX = 128
"""How much is waited for at once. The loop's own threads are a handful, and
programs run for long."""

T = TypeVar("T")
_threads: ThreadPoolExecutor | None = None


def _forget_parents() -> None:
    global _threads
    _threads = None


os.register_at_fork(after_in_child=_forget_parents)


async def on_thread(work: Callable[..., T], *args: Any, **how: Any) -> T:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(THREADS_MAX, "fractal-aio")
    context = contextvars.copy_context()
    call = functools.partial(context.run, work, *args, **how)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)


async def stoppable(
    stop: Callable[[], object], work: Callable[..., T], *args: Any, **how: Any
) -> T:
    """Does something on a thread, and has it stop when the task is cancelled."""
    done = asyncio.ensure_future(on_thread(work, *args, **how))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # It may not have begun when it is told first.
        while not done.done():
            await on_thread(stop)
            await asyncio.wait([done], timeout=0.05)
        raise
