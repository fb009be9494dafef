"""The same for asyncio."""

from __future__ import annotations

import asyncio
import pathlib
import time

import pytest

from fractal import aio


def test_calls_are_awaited() -> None:
    async def play() -> None:
        vfs = aio.Vfs()
        await vfs.write("/d/a", "1", parents=True)
        fork = vfs.fork()
        await fork.append("/d/a", "2")
        assert await fork.read_text("/d/a") == "12" and await vfs.read("/d/a") == b"1"
        assert [change.path for change in await fork.changes()] == ["/d/a"]
        assert await fork.changes(fork) == []
        assert [step async for step in vfs.walk()] == [("/", ["d"], []), ("/d", [], ["a"])]
        assert (await vfs.exec("cat /d/*", env={})).stdout == "1"
        assert (await vfs.python("import sys; print(sys.argv[1])", "it's")).stdout == "it's\n"
        assert await vfs.list("/d") == ["a"] and await vfs.glob("/*/a") == ["/d/a"]
        with pytest.raises(FileNotFoundError):
            await vfs.stat("/none")

    asyncio.run(play())


def test_the_loop_goes_on_meanwhile() -> None:
    async def play() -> None:
        vfs = aio.Vfs()
        ticks = 0
        script = asyncio.create_task(vfs.exec("while :; do :; done", timeout=0.5))
        while not script.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert (await script).exit_code == 124 and ticks > 3

    asyncio.run(play())


def test_cancelling_a_task_stops_its_script() -> None:
    async def play() -> None:
        vfs = aio.Vfs()
        await vfs.mount("/p", {"slow": lambda context: "x"})
        start = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(vfs.exec("while :; do :; done", timeout=300), 0.2)
        assert time.monotonic() - start < 100

    asyncio.run(play())


def test_sandboxes(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def play() -> None:
        async with await aio.Sandbox.clone(tmp_path) as box:
            await box.run("echo 1 > n")
            good = await box.snapshot("good")
            async with await box.fork() as one, await box.fork() as two:
                runs = [one.run("echo a >> n; cat n"), two.run("echo b >> n; cat n")]
                done = await asyncio.gather(*runs)
                assert [result.stdout for result in done] == ["1\na\n", "1\nb\n"]
            await box.run("rm n")
            await box.rollback(good)
            assert [change.kind for change in await box.changes()] == ["added"]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.run("sleep 300"), 1)
            assert (await box.promote()).verdict == "applied"
            await box.undo()

    asyncio.run(play())
    assert list(tmp_path.iterdir()) == []
