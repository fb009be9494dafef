"""Programs that go on between the turns of an agent, at a terminal or without.

What they write is kept until somebody asks for it, up to a bound.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import deque
from dataclasses import dataclass, field

from .. import aio

__all__ = ["Terminal", "at_terminal"]

UNHEARD_BYTES_MAX = 1 << 20
"""How much of a program's output is kept until somebody asks for it."""

PIECE_BYTES = 64 << 10
"""Pieces of output are put together up to this size."""

STDIN_SECONDS_MAX = 10.0
"""How long a program may take to read what it is given."""

@dataclass
class Terminal:
    """A program that goes on between turns, and what it has written since."""

    tty: bool
    command: aio.Command | None = None
    chunks: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None
    used: float = field(default_factory=time.monotonic)
    waiting: asyncio.Task[None] | None = None

    def hear(self, text: str) -> None:
        """Takes a piece; of too much, the oldest is given up, which is said."""
        piece = text.encode()
        if self.chunks and len(self.chunks[-1]) + len(piece) <= PIECE_BYTES:
            piece = self.chunks.pop() + piece
        self.chunks.append(piece)
        lost = 0
        while sum(map(len, self.chunks)) > UNHEARD_BYTES_MAX:
            lost += len(self.chunks.popleft())
        if lost:
            self.chunks.appendleft(f"\n[{lost} bytes of output were not kept]\n".encode())
        self.heard.set()

    async def follow(self) -> None:
        assert self.command is not None
        try:
            done = await self.command.wait()
            self.exit_code = done.exit_code
        except OSError as error:
            self.hear(f"\n[the program was lost: {error}]\n")
            self.exit_code = 125
        self.over.set()
        self.heard.set()

    async def end(self) -> None:
        if self.command is not None and not self.over.is_set():
            await self.command.kill()
        if self.waiting is not None:
            await self.waiting

    async def type(self, chars: str) -> None:
        """Gives it something to read; one that reads nothing holds nobody up."""
        assert self.command is not None
        typing = asyncio.ensure_future(self.command.send_stdin(chars))
        done, _ = await asyncio.wait({typing}, timeout=STDIN_SECONDS_MAX)
        if not done:
            # It ends with the program.
            typing.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise TimeoutError(f"the program read nothing for {STDIN_SECONDS_MAX:g} seconds")
        if not isinstance(typing.exception(), OSError | None):
            typing.result()


def at_terminal(words: list[str]) -> list[str]:
    """The same at a terminal of its own."""
    sized = f"stty rows 24 cols 80; exec {shlex.join(words)}"
    return ["script", "-q", "-e", "-f", "-c", sized, "/dev/null"]
