"""The same for asyncio."""

from __future__ import annotations

import asyncio
import pathlib
import threading
import time

import pytest

from fractal import aio
from fractal.sandbox import World


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


def test_what_was_learned_is_awaited(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def play() -> None:
        async with aio.SandboxClient() as client:
            noted = await client.note("gulls steal lunch", directory=tmp_path, kind="pattern")
            found = await client.find("gulls", tmp_path)
            assert [hit.key for hit in found] == [noted.id]
            learned = await client.learned(directory=tmp_path)
            assert noted.id in [one.key for one in learned.learned]

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


def test_files_and_commands(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def play() -> None:
        async with await aio.Sandbox.create(tmp_path, envs={"WHO": "ann"}) as box:
            await box.files.write("d/a", "one\n")
            await box.files.write_files([{"path": "b", "data": b"\0\xff"}])
            assert await box.files.read("b", "bytes") == b"\0\xff"
            assert [entry.name for entry in await box.files.list()] == ["b", "d"]
            assert (await box.files.rename("d/a", "d/c")).name == "c"
            assert await box.files.exists("d/c") and not await box.files.exists("d/a")
            assert (await box.files.get_info("d/c")).size == 4
            assert await box.files.make_dir("e") and not await box.files.make_dir("e")
            await box.files.remove("d")
            with pytest.raises(FileNotFoundError):
                await box.files.read("d/c")

            done = await box.commands.run("cat; echo $WHO; echo no >&2; exit 3", stdin="in\n")
            assert (done.stdout, done.stderr, done.exit_code) == ("in\nann\n", "no\n", 3)
            assert (await box.run(["sleep", "300"], timeout=0.2)).outcome == "timeout"
            assert await box.is_running()
        assert not await box.is_running()

    asyncio.run(play())


def test_output_is_told_in_the_event_loop(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def play() -> None:
        here = threading.get_ident()
        heard: list[str] = []

        async def on_stdout(text: str) -> None:
            await asyncio.sleep(0.01)
            assert threading.get_ident() == here
            heard.append(text)

        def fails(text: str) -> None:
            raise LookupError(text)

        async with await aio.Sandbox.create(tmp_path) as box:
            script = "for i in 1 2 3; do echo $i; sleep 0.05; done"
            done = await box.commands.run(script, on_stdout=on_stdout)
            assert "".join(heard) == done.stdout == "1\n2\n3\n"
            with pytest.raises(LookupError):
                await box.commands.run("echo 1", on_stdout=fails)

    asyncio.run(play())


def test_a_command_is_left_to_itself(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def play() -> None:
        async with await aio.Sandbox.create(tmp_path) as box:
            cat = await box.commands.run("cat; echo over", background=True)
            await cat.send_stdin("one\n")
            while cat.stdout != "one\n":
                await asyncio.sleep(0.01)
            assert cat.is_running and len(await box.commands.list()) == 1
            with pytest.raises(TimeoutError):
                await cat.wait(0.1)
            await cat.close_stdin()
            assert (await cat.wait()).stdout == "one\nover\n"
            sleeper = await box.commands.run("sleep 300", background=True)
            assert await sleeper.kill()
            assert (await sleeper.wait()).outcome == "signalled" and not await sleeper.kill()
            assert await box.commands.list() == []

    asyncio.run(play())


@pytest.mark.parametrize("world", ["native", "virtual"])
def test_cancelling_a_task_ends_its_program(
    home: pathlib.Path, tmp_path: pathlib.Path, world: World
) -> None:
    async def play() -> None:
        async with await aio.Sandbox.create(tmp_path, world=world) as box:
            loop = "while true; do sleep 0.1; done"
            runs = [asyncio.create_task(box.run(loop)) for _ in range(3 if world == "native" else 1)]
            while (await box.info())["state"] != "running":
                await asyncio.sleep(0.01)
            for run in runs:
                run.cancel()
            ends = await asyncio.gather(*runs, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            assert (await box.info())["state"] != "running"

    asyncio.run(play())


def test_many_programs_at_once_and_clients(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async def play() -> None:
        async with aio.SandboxClient(home=home) as client:
            async with await client.create(tmp_path, "shared") as box:
                waits = [box.run(f"sleep 0.3; echo {n}") for n in range(20)]
                done = await asyncio.gather(*waits)
                assert [result.stdout for result in done] == [f"{n}\n" for n in range(20)]
                assert "shared" in [known["name"] for known in await client.list()]
                same = await client.open("shared", tmp_path)
                assert same.id == box.sandbox_id == "shared"
            tried = await client.attempts(
                {"good": "echo 1 > n", "bad": "false"}, tmp_path, checks={"there": "test -s n"}
            )
            assert tried.winner is not None and tried.winner.name == "good"

    asyncio.run(play())
