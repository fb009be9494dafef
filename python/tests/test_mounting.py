"""A view as a directory of the host."""

from __future__ import annotations

import os
import pathlib
import subprocess
import textwrap

import pytest

from conftest import program as python

from fractal import Vfs


def can_mount() -> bool:
    import shutil

    as_root = os.geteuid() == 0
    return os.access("/dev/fuse", os.W_OK) and (as_root or shutil.which("fusermount3") is not None)


needs_fuse = pytest.mark.skipif(not can_mount(), reason="no FUSE here")


@needs_fuse
def test_programs_work_in_a_mounted_view(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    vfs.write("/a", "from the view\n")
    vfs.mount("/p", {"made": lambda context: f"for {context.path}\n"})
    with vfs.mount_at(tmp_path) as mounted:
        assert mounted.dir == str(tmp_path)
        out = subprocess.run(["cat", tmp_path / "a", tmp_path / "p/made"], capture_output=True)
        assert out.stdout == b"from the view\nfor /p/made\n"
        # This very process may look as well: whoever serves it needs no lock of ours.
        assert (tmp_path / "p/made").read_text() == "for /p/made\n"
        (tmp_path / "b").write_text("from a program\n")
        vfs.write("/c", "later")
        mounted.sync()
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "p"]
    assert vfs.read_text("/b") == "from a program\n"
    assert os.listdir(tmp_path) == []
    mounted.unmount()


@needs_fuse
def test_a_mount_ends_with_its_process(tmp_path: pathlib.Path) -> None:
    program = textwrap.dedent(
        f"""
        from fractal import Vfs
        mounted = Vfs().mount_at({str(tmp_path)!r})
        """
    )
    subprocess.run(python(program), check=True, timeout=30)
    assert os.listdir(tmp_path) == []


def test_a_place_that_is_not_there_is_said_to_be(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    with pytest.raises((OSError, ValueError), match="none"):
        vfs.mount_at(tmp_path / "none")
