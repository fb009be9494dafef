"""What can be mounted, and what comes in and goes out."""

from __future__ import annotations

import errno
import io
import json
import os
import pathlib
import subprocess
import tarfile
import textwrap
import threading
import time
import zipfile

import pytest

from conftest import program as python

from fractal import Archive, Context, GitCommit, HostDir, Item, Text, Vfs


def test_a_host_directory_is_read_and_not_written(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_text("host")
    (tmp_path / "out").symlink_to("/etc/passwd")
    vfs.mount("/src", HostDir(tmp_path))
    assert vfs.read_text("/src/a") == "host"
    with pytest.raises(FileNotFoundError):
        vfs.read("/src/out")
    vfs.write("/src/a", "mine")
    assert (tmp_path / "a").read_text() == "host"
    assert vfs.mounts() == [("/src", "host", str(tmp_path))]
    vfs.unmount("/src")
    assert not vfs.exists("/src/a")
    with pytest.raises(FileNotFoundError):
        HostDir(tmp_path / "none")


def test_live_or_as_it_was(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_text("1")
    time.sleep(0.05)  # the host's clock must move on: a frozen mount goes by it
    vfs.mount("/then", HostDir(tmp_path))
    vfs.mount("/now", HostDir(tmp_path, live=True))
    vfs.list("/then")
    time.sleep(0.05)
    (tmp_path / "a").write_text("two")
    assert vfs.read_text("/now/a") == "two"
    with pytest.raises(OSError) as caught:
        vfs.read("/then/a")
    assert caught.value.errno == errno.ESTALE
    with pytest.raises(OSError) as caught:
        vfs.write("/now/a", "")
    assert caught.value.errno == errno.EROFS


def test_work_is_written_back_when_asked(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    (tmp_path / "plan").write_text("draft")
    vfs.mount("/p", HostDir(tmp_path, write_back=True))
    vfs.write("/p/plan", "final")
    assert (tmp_path / "plan").read_text() == "draft"
    assert [c.path for c in vfs.write_back("/p")] == ["/plan"]
    assert (tmp_path / "plan").read_text() == "final"


def test_archives(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("d/x")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"hi"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("z/y", "there")
    vfs.mount("/tar", Archive(tmp_path / "a.tar.gz"))
    vfs.mount("/zip", Archive(packed.getvalue()))
    assert vfs.read("/tar/d/x") + vfs.read("/zip/z/y") == b"hithere"
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("../climbs", "")
    with pytest.raises(OSError):
        Archive(packed.getvalue())


def test_git_commits(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    git("init", "-q")
    for content in ("one", "two"):
        (tmp_path / "f").write_text(content)
        git("add", ".")
        git("commit", "-qm", content)
    vfs.mount("/old", GitCommit(tmp_path, "HEAD~1"))
    vfs.mount("/new", GitCommit(tmp_path))
    assert vfs.exec("diff old/f new/f").exit_code == 1
    assert vfs.read_text("/old/f") == "one"
    with pytest.raises(FileNotFoundError):
        GitCommit(tmp_path, "nothing")


class Users:
    """A directory that is made on demand."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    def list(self, context: Context) -> list[str | Item]:
        self.asked.append((context.wants, context.path, context.at))
        if context.at == "/":
            return ["ann.json", "more/", Item.file("sized", 3), Item.link("l", "ann.json")]
        return ["deep"]

    def read(self, context: Context) -> str:
        self.asked.append((context.wants, context.path, context.at))
        if context.at == "/sized":
            return "123"
        return json.dumps({"at": context.at, "who": context.who})


def test_an_object_makes_a_directory(vfs: Vfs) -> None:
    users = Users()
    vfs.set_who("agent-7")
    vfs.mount("/live", {"README": Text("data"), "plain": b"bytes", "users": users})
    assert vfs.list("/live") == ["README", "plain", "users"]
    assert vfs.read_text("/live/README") == "data" and vfs.read("/live/plain") == b"bytes"
    assert vfs.list("/live/users") == ["ann.json", "l", "more", "sized"]
    assert json.loads(vfs.read("/live/users/l")) == {"at": "/ann.json", "who": "agent-7"}
    assert vfs.read_text("/live/users/more/deep") == '{"at": "/more/deep", "who": "agent-7"}'
    assert vfs.stat("/live/users/sized").st_size == 3
    assert users.asked[0] == ("list", "/live/users", "/")
    # Frozen: asked once, then part of the view, and can be written over.
    many = len(users.asked)
    vfs.write("/live/users/ann.json", vfs.read("/live/users/ann.json") + b"!")
    assert len(users.asked) == many
    assert [c.path for c in vfs.changes()] == ["/live/users/ann.json"]


def test_a_callable_makes_a_file_or_all_of_a_mount(vfs: Vfs) -> None:
    counted = iter(range(100))

    def everything(context: Context) -> str | list[str]:
        if context.wants == "list":
            return ["a", "b"]
        return f"{context.at} of {context.path}"

    vfs.mount("/one", {"n": lambda context: str(next(counted))}, max_age=0)
    vfs.mount("/all", everything)
    first, second = int(vfs.read("/one/n")), int(vfs.read("/one/n"))
    assert second > first
    assert vfs.exec("cat /all/*").stdout == "/a of /all/a/b of /all/b"
    with pytest.raises(TypeError, match="int"):
        vfs.mount("/x", 5)  # type: ignore[arg-type]


def test_a_provider_may_read_the_view_and_call_scripts(vfs: Vfs) -> None:
    vfs.write("/names", "b\na\n")
    vfs.mount("/p", {"sorted": lambda context: context.view.exec("sort /names").stdout})
    assert vfs.read_text("/p/sorted") == "a\nb\n"


def test_a_provider_that_asks_for_itself_is_an_error(vfs: Vfs) -> None:
    vfs.mount("/p", {"self": lambda context: context.view.read(context.path)})
    with pytest.raises(OSError, match="asks for") as caught:
        vfs.read("/p/self")
    assert caught.value.errno == errno.EIO


def test_errors_of_a_provider_are_io_errors_with_its_words(vfs: Vfs) -> None:
    def broken(context: Context) -> str:
        raise LookupError("the database is away")

    vfs.mount("/p", {"f": broken, "g": lambda context: 5})  # type: ignore[dict-item]
    with pytest.raises(OSError, match="LookupError: the database is away") as caught:
        vfs.read("/p/f")
    assert caught.value.errno == errno.EIO and caught.value.filename == "/p/f"
    with pytest.raises(OSError, match="TypeError"):
        vfs.read("/p/g")
    assert "the database is away" in vfs.exec("cat /p/f").stderr


def test_nobody_waits_longer_than_agreed(vfs: Vfs) -> None:
    held = threading.Event()
    vfs.mount("/p", {"slow": lambda context: str(held.wait(30))}, timeout=0.1)
    with pytest.raises(TimeoutError):
        vfs.read("/p/slow")
    held.set()


def test_providers_answer_many_threads(vfs: Vfs) -> None:
    vfs.mount("/p", {f"{n}": lambda context: context.at * 3 for n in range(20)}, max_age=0)
    wrong: list[object] = []

    def look() -> None:
        try:
            for _ in range(10):
                for name in vfs.list("/p"):
                    vfs.read(f"/p/{name}")
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_names_that_climb_are_errors(vfs: Vfs) -> None:
    vfs.mount("/p", lambda context: ["../x"] if context.wants == "list" else "")
    with pytest.raises(OSError):
        vfs.list("/p")


def test_names_that_are_not_listed_are_found(vfs: Vfs) -> None:
    class Square:
        def list(self, context: Context) -> list[str]:
            return []

        def find(self, context: Context) -> str | None:
            return context.at[1:] if context.at[1:].isdigit() else None

        def read(self, context: Context) -> str:
            return str(int(context.at[1:]) ** 2)

    vfs.mount("/square", Square(), max_age=1)
    assert vfs.read_text("/square/12") == "144"
    assert not vfs.exists("/square/x")


def test_python_ends_while_a_provider_works() -> None:
    program = textwrap.dedent(
        """
        import threading, time
        from fractal import Vfs
        vfs = Vfs()
        begun = threading.Event()
        vfs.mount("/p", {"f": lambda context: (begun.set(), time.sleep(60), "")[2]})
        threading.Thread(target=vfs.read, args=("/p/f",), daemon=True).start()
        begun.wait()
        """
    )
    done = subprocess.run(python(program), capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")


def test_trees_come_in_and_go_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in/d").mkdir(parents=True)
    (tmp_path / "in/d/f").write_text("content")
    os.symlink("d/f", tmp_path / "in/l")
    vfs = Vfs.from_dir(tmp_path / "in")
    assert vfs.changes() == [] and vfs.read_text("/l") == "content"
    vfs.export_dir(tmp_path / "out")
    assert (tmp_path / "out/l").read_text() == "content"
    with pytest.raises(FileExistsError):
        vfs.export_dir(tmp_path / "out")
    vfs.export_tar(tmp_path / "t.tar")
    vfs.export_zip(tmp_path / "t.zip", "/d")
    assert Vfs.from_archive(tmp_path / "t.tar").readlink("/l") == "d/f"
    assert Vfs.from_archive((tmp_path / "t.zip").read_bytes()).read("/f") == b"content"
    told = vfs.export_json()
    assert Vfs.from_json(told).read("/d/f") == b"content"
    other = Vfs()
    assert other.import_json(told, "/a") > 0 and other.import_dir(tmp_path / "in", "/b") > 0
    assert other.import_archive(tmp_path / "t.tar", "/c") > 0
    assert other.exec("cat */l").stdout == "content" * 3
    with pytest.raises(OSError):
        vfs.export_tar(tmp_path / "none/t.tar")
    with pytest.raises(OSError):
        Vfs.from_json("{")


def test_a_view_shows_another(vfs: Vfs) -> None:
    other = Vfs()
    other.write("/a", "1")
    vfs.mount("/o", other)
    other.write("/a", "2")
    assert vfs.read("/o/a") == b"1"
