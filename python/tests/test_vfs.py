"""Views: reading, writing, forks, changes, rules."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
import threading

import pytest

from fractal import Change, Vfs, load_snapshots


def test_what_is_written_is_read(vfs: Vfs) -> None:
    vfs.write("/a.txt", "grün")
    assert vfs.read("/a.txt") == "grün".encode()
    assert vfs.read_text("/a.txt") == "grün"
    assert vfs.read_range("/a.txt", 1, 3) == b"r\xc3"
    vfs.append("/a.txt", b"!")
    vfs.write_at("/a.txt", 0, bytearray(b"G"))
    vfs.write("/far", memoryview(b""))
    vfs.truncate("/far", 1 << 40)
    assert vfs.read_text("/a.txt") == "Grün!"
    assert vfs.stat("/far").st_size == 1 << 40
    assert vfs.stat("/far").held == 0


def test_any_kind_of_path_will_do(vfs: Vfs) -> None:
    vfs.mkdir(pathlib.PurePosixPath("/d"))
    vfs.write(b"/d/\xff", b"1")
    (name,) = vfs.list("/d")
    assert name == "\udcff"
    assert vfs.read(f"/d/{name}") == b"1"
    assert vfs.scandir("/d")[0].path == "/d/\udcff"
    assert vfs.read(vfs.scandir("/d")[0]) == b"1"
    with pytest.raises(ValueError, match="null"):
        vfs.read("/a\0b")
    with pytest.raises(AttributeError):
        vfs.read(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "error", "number"),
    [
        (lambda v: v.read("/none"), FileNotFoundError, errno.ENOENT),
        (lambda v: v.mkdir("/d"), FileExistsError, errno.EEXIST),
        (lambda v: v.read("/d"), IsADirectoryError, errno.EISDIR),
        (lambda v: v.list("/f"), NotADirectoryError, errno.ENOTDIR),
        (lambda v: v.rmdir("/d"), OSError, errno.ENOTEMPTY),
        (lambda v: v.append("/log/a", "x") or v.write("/log/a", "y"), PermissionError, errno.EACCES),
        (lambda v: v.write("/ro/x", ""), OSError, errno.EROFS),
        (lambda v: v.read("/loop"), OSError, errno.ELOOP),
        (lambda v: v.write_if("/f", "x", 1), OSError, errno.ESTALE),
        (lambda v: v.getxattr("/f", "user.none"), OSError, errno.ENODATA),
        (lambda v: v.write("/big", b"x" * 5000), OSError, errno.ENOSPC),
    ],
)
def test_errors_are_those_of_python(work, error, number) -> None:  # type: ignore[no-untyped-def]
    vfs = Vfs(bytes_max=4096)
    vfs.write("/d/e", "", parents=True)
    vfs.write("/f", "")
    for rule in ("read_only", "append_only"):
        vfs.mkdir("/ro" if rule == "read_only" else "/log")
        vfs.set_access("/ro" if rule == "read_only" else "/log", rule)
    vfs.symlink("/loop", "/loop")
    with pytest.raises(error) as caught:
        work(vfs)
    assert caught.value.errno == number
    assert caught.value.filename.startswith("/")
    assert caught.value.strerror


def test_stat_speaks_as_os_stat_does(vfs: Vfs) -> None:
    vfs.write("/a", "12345")
    vfs.link("/a", "/b")
    vfs.symlink("a", "/l")
    vfs.chmod("/a", 0o4750)
    vfs.chown("/a", 7, 8)
    vfs.utime("/a", mtime_ns=1_500_000_000_123_456_789)
    told = vfs.stat("/l")
    assert stat.filemode(told.st_mode) == "-rwsr-x---"
    assert (told.st_nlink, told.st_size, told.st_uid, told.st_gid) == (2, 5, 7, 8)
    assert told.st_mtime_ns == 1_500_000_000_123_456_789
    assert told.st_ino == vfs.stat("/b").st_ino
    assert vfs.lstat("/l").is_symlink() and vfs.readlink("/l") == "a"
    assert vfs.resolve("/l") == "/a"
    assert stat.S_ISDIR(vfs.stat("/").st_mode)


def test_attributes(vfs: Vfs) -> None:
    vfs.write("/a", "")
    vfs.setxattr("/a", "user.x", b"\0\1")
    assert vfs.listxattr("/a") == ["user.x"]
    assert vfs.getxattr("/a", "user.x") == b"\0\1"
    vfs.removexattr("/a", "user.x")
    assert vfs.listxattr("/a") == []


def test_directories(vfs: Vfs) -> None:
    vfs.mkdir("/a/b/c", parents=True)
    vfs.mkdir("/a/b/c", parents=True, exist_ok=True)
    with pytest.raises(FileExistsError):
        vfs.mkdir("/a/b/c", parents=True)
    vfs.write("/a/f", "")
    with pytest.raises(NotADirectoryError):
        vfs.mkdir("/a/f", exist_ok=True)
    vfs.rename("/a/b", "/b")
    vfs.copy("/a/f", "/b/g")
    assert vfs.list("/b") == ["c", "g"]
    vfs.remove_all("/a")
    assert not vfs.exists("/a") and vfs.is_dir("/b") and vfs.is_file("/b/g")


def test_walk_goes_where_it_is_led(vfs: Vfs) -> None:
    for path in ("/a/x/1", "/a/y/2", "/b/3", "/4"):
        vfs.write(path, "", parents=True)
    seen = []
    for top, dirs, files in vfs.walk():
        seen.append((top, list(dirs), files))
        if "x" in dirs:
            dirs.remove("x")
    assert seen == [
        ("/", ["a", "b"], ["4"]),
        ("/a", ["x", "y"], []),
        ("/a/y", [], ["2"]),
        ("/b", [], ["3"]),
    ]


@pytest.mark.parametrize(
    ("pattern", "expect"),
    [
        ("/*", ["/a", "/top.py"]),
        ("/**/*.py", ["/a/b/deep.py", "/a/one.py", "/top.py"]),
        ("/a/[a-n]*", ["/a/b"]),
        ("/a/b/d??p.py", ["/a/b/deep.py"]),
        ("/a/.*", ["/a/.hidden"]),
        ("/a/b/deep.py", ["/a/b/deep.py"]),
        ("/none/*", []),
    ],
)
def test_glob(vfs: Vfs, pattern: str, expect: list[str]) -> None:
    for path in ("/top.py", "/a/one.py", "/a/.hidden", "/a/b/deep.py"):
        vfs.write(path, "", parents=True)
    assert vfs.glob(pattern) == expect


def test_a_fork_is_apart_and_tells_its_changes(vfs: Vfs) -> None:
    vfs.write("/keep", "1")
    vfs.write("/gone", "1")
    vfs.rebase()
    fork = vfs.fork()
    fork.write("/keep", "2")
    fork.remove("/gone")
    fork.write("/d/new", "33", parents=True)
    told = [(c.path, c.kind, c.entry, c.size) for c in fork.changes()]
    assert told == [
        ("/d", "added", "directory", 0),
        ("/d/new", "added", "file", 2),
        ("/gone", "deleted", "file", 0),
        ("/keep", "modified", "file", 1),
    ]
    assert vfs.changes() == [] and vfs.read_text("/keep") == "1"
    assert fork.changes(fork) == []
    assert fork.changes(vfs) == fork.changes()
    assert len(set(fork.changes())) == 4
    assert repr(fork.changes()[-1]) == "Change('/keep', 'modified')"
    assert fork.changes()[-1] == Change("/keep", "modified", size=1)
    with pytest.raises(ValueError, match="renamed"):
        Change("/a", "renamed")  # type: ignore[arg-type]


def test_snapshots(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    vfs.write("/a", "1")
    one = vfs.snapshot()
    vfs.write("/a", "2")
    two = vfs.snapshot()
    assert [c.path for c in vfs.changes(one)] == ["/a"]
    assert vfs.at(one).read("/a") == b"1"
    vfs.restore(one)
    assert vfs.read("/a") == b"1"
    vfs.save(tmp_path / "trees", {"one": one, "two": two})
    assert sorted(load_snapshots(tmp_path / "trees")) == ["one", "two"]
    assert Vfs.load(tmp_path / "trees", "two").read("/a") == b"2"
    with pytest.raises(KeyError):
        Vfs.load(tmp_path / "trees")
    vfs.save(tmp_path / "now")
    assert Vfs.load(tmp_path / "now").read("/a") == b"1"


def test_only_who_knows_the_version_writes(vfs: Vfs) -> None:
    first = vfs.write_if("/a", "1", 0)
    data, version = vfs.read_version("/a")
    assert (data, version) == (b"1", first) and vfs.stat("/a").version == first
    vfs.write("/a", "somebody else")
    with pytest.raises(OSError) as caught:
        vfs.write_if("/a", "2", version)
    assert caught.value.errno == errno.ESTALE
    assert vfs.read_text("/a") == "somebody else"


def test_rules(vfs: Vfs) -> None:
    vfs.write("/secret/key", "k", parents=True)
    vfs.set_access("/secret", "hidden")
    assert vfs.list() == [] and not vfs.exists("/secret/key")
    vfs.set_access("/secret", None)
    assert vfs.read_text("/secret/key") == "k"
    with pytest.raises(ValueError, match="read_only"):
        vfs.set_access("/secret", "nothing")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="climbs"):
        vfs.set_access("/a/../b", "hidden")


def test_limits() -> None:
    vfs = Vfs(entries_max=3)
    vfs.write("/a", "xyz")
    assert vfs.usage == (3, 1)
    vfs.set_limits(entries_max=1)
    with pytest.raises(OSError) as caught:
        vfs.write("/b", "")
    assert caught.value.errno == errno.ENOSPC
    assert vfs.limits[1] == 1


def test_open_gives_files_as_io_does(vfs: Vfs, tmp_path: pathlib.Path) -> None:
    """The same calls on a real file give the same answers."""

    def play(open_at):  # type: ignore[no-untyped-def]
        told = []
        with open_at("w") as f:
            told += [f.write("eins\r\nzwei\n"), f.tell()]
        with open_at("r") as f:
            told += [f.readline(), list(f)]
        with open_at("r", newline="") as f:
            told.append(f.read())
        with open_at("a+b") as f:
            told += [f.write(b"drei"), f.seek(2), f.read(3)]
        with open_at("r+b") as f:
            f.seek(-2, os.SEEK_END)
            told += [f.write(b"XY"), f.tell(), f.seek(0), f.read(), f.truncate(4)]
        with open_at("rb", buffering=0) as f:
            told += [f.read(2), f.read(), f.read(), f.readable(), f.writable(), f.seekable()]
        for bad in ("x", "q", "rw", "bt"):
            with pytest.raises((ValueError, FileExistsError)) as caught:
                open_at(bad)
            told.append(type(caught.value))
        with pytest.raises(OSError) as wrong:
            open_at("rb").write(b"")
        told.append(type(wrong.value).__name__)
        return told

    ours = play(lambda mode, **how: vfs.open("/f", mode, **how))
    real = play(lambda mode, **how: open(tmp_path / "f", mode, **({"encoding": "utf-8"} if "b" not in mode else {}), **how))
    assert ours == real
    with pytest.raises(IsADirectoryError):
        vfs.open("/")
    with pytest.raises(FileNotFoundError):
        vfs.open("/none")


def test_many_threads_write_at_once(vfs: Vfs) -> None:
    vfs.mkdir("/t")

    def work(number: int) -> None:
        for step in range(200):
            vfs.write(f"/t/{number}-{step}", str(step))
            vfs.append("/log", b"x")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(vfs.list("/t")) == 800 and vfs.stat("/log").st_size == 800
