"""``fractal://`` passes the tests that fsspec has for filesystems."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from fractal import Sandbox, Vfs
from fractal.fsspec_impl import FractalFileSystem, share


@pytest.fixture(scope="module")
def box(home: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox.create(tmp_path_factory.mktemp("project"), world="virtual") as box:
        yield box


class InMemory(AbstractFixtures):  # type: ignore[misc]  # it has no types
    """A view of this process."""

    @pytest.fixture
    def fs(self) -> Iterator[Any]:
        share("test-view", Vfs())
        yield fsspec.filesystem("fractal")
        share("test-view", None)

    @pytest.fixture
    def fs_path(self) -> str:
        return "test-view/some/where"


class InSandbox(AbstractFixtures):  # type: ignore[misc]
    """A sandbox of the machine."""

    @pytest.fixture
    def fs(self, box: Sandbox) -> Any:
        return fsspec.filesystem("fractal")

    @pytest.fixture
    def fs_path(self, box: Sandbox) -> str:
        return f"{box.name}/some/where"


class TestCopyInMemory(AbstractCopyTests, InMemory): ...


class TestGetFromMemory(AbstractGetTests, InMemory): ...


class TestPutIntoMemory(AbstractPutTests, InMemory): ...


class TestOpenInMemory(AbstractOpenTests, InMemory): ...


class TestPipeInMemory(AbstractPipeTests, InMemory): ...


class TestCopyInSandbox(AbstractCopyTests, InSandbox): ...


class TestGetFromSandbox(AbstractGetTests, InSandbox): ...


class TestPutIntoSandbox(AbstractPutTests, InSandbox): ...


class TestOpenInSandbox(AbstractOpenTests, InSandbox): ...


class TestPipeInSandbox(AbstractPipeTests, InSandbox): ...


def test_the_protocol_is_known_by_its_entry_point() -> None:
    assert fsspec.get_filesystem_class("fractal") is FractalFileSystem
    vfs = Vfs()
    share("view", vfs)
    with fsspec.open("fractal://view/d/a.txt", "w") as file:
        file.write("hello")
    assert vfs.read_text("/d/a.txt") == "hello"
    with fsspec.open("fractal://view/d/a.txt", "r") as file:
        assert file.read() == "hello"
    share("view", None)
    with pytest.raises(ValueError):
        share("a/b", vfs)


def test_a_sandbox_is_read_and_written(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    with Sandbox.clone(tmp_path) as box:
        fs = fsspec.filesystem("fractal")
        root = f"fractal://{box.name}{tmp_path}"
        assert fs.cat(f"{root}/data.csv") == b"a,b\n1,2\n"
        with fs.open(f"{root}/data.csv", "ab") as file:
            file.write(b"3,4\n")
        with pytest.raises(RuntimeError), fs.open(f"{root}/never", "wb") as file:
            file.write(b"half of it")
            raise RuntimeError("on purpose")
        assert fs.ls(root, detail=False) == [f"{box.name}{tmp_path}/data.csv"]
        fs.mv(f"{root}/data.csv", f"{root}/moved.csv")
        assert box.run("cat moved.csv").stdout == "a,b\n1,2\n3,4\n"
        assert (tmp_path / "data.csv").exists()
        assert fs.tail(f"{root}/moved.csv", 4) == b"3,4\n"
        assert fs.glob(f"{root}/*.csv") == [f"{box.name}{tmp_path}/moved.csv"]
        assert fs.modified(f"{root}/moved.csv").year >= 2020
        with pytest.raises(FileNotFoundError):
            fs.cat(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"fractal://{box.name}/")
