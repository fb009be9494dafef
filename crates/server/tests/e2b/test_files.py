"""Files and directories: contents, kinds, owners, metadata, links, watches."""

import gzip
import io
import json
import os
import time
import urllib.error
import urllib.request

import pytest
from e2b import FileNotFoundException, FileType, InvalidArgumentException
from e2b.exceptions import AuthenticationException
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType


def test_text_goes_in_and_out(box, place):
    told = box.files.write(f"{place}/a.txt", "hello ä€")
    assert (told.name, told.path, told.type) == ("a.txt", f"{place}/a.txt", FileType.FILE)
    assert box.files.read(f"{place}/a.txt") == "hello ä€"


@pytest.mark.parametrize("octets", [False, True])
@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_001])
def test_bytes_go_in_and_out(box, place, size, octets):
    data = os.urandom(size)
    box.files.write(f"{place}/b", data, use_octet_stream=octets)
    assert bytes(box.files.read(f"{place}/b", format="bytes")) == data


def test_fifty_megabytes(box, place):
    data = os.urandom(50 << 20)
    box.files.write(f"{place}/big", io.BytesIO(data), request_timeout=300)
    assert box.files.get_info(f"{place}/big").size == len(data)
    with box.files.read(f"{place}/big", format="stream", request_timeout=300) as stream:
        assert b"".join(stream) == data


def test_compressed_both_ways(box, place):
    text = "again and again " * 10_000
    box.files.write(f"{place}/c", text, gzip=True)
    assert box.files.read(f"{place}/c") == text
    assert box.files.read(f"{place}/c", gzip=True) == text


def test_content_that_is_no_gzip_is_refused(box, place, server):
    request = urllib.request.Request(
        f"{server.url}/files?path={place}/bad", data=b"plain", method="POST",
        headers={"Content-Encoding": "gzip", "Content-Type": "application/octet-stream",
                 **box.connection_config.sandbox_headers})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 400


def compose(box, server, **asked):
    request = urllib.request.Request(
        f"{server.url}/files/compose", data=json.dumps(asked).encode(), method="POST",
        headers={"Content-Type": "application/json", **box.connection_config.sandbox_headers})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_one_file_is_made_of_several(box, place, server):
    parts = [os.urandom(size) for size in (3_000_000, 0, 17)]
    names = [f"{place}/part{number}" for number in range(3)]
    for name, part in zip(names, parts):
        box.files.write(name, part)
    told = compose(box, server, destination=f"{place}/new/whole", source_paths=names)
    assert (told["name"], told["path"], told["type"]) == ("whole", f"{place}/new/whole", "file")
    assert bytes(box.files.read(f"{place}/new/whole", format="bytes")) == b"".join(parts)
    assert box.files.get_info(f"{place}/new/whole").owner == "user"
    assert not any(box.files.exists(name) for name in names)
    # Onto itself, with its mode.
    box.files.write(f"{place}/more", "more")
    box.commands.run(f"chmod 600 {place}/new/whole")
    compose(box, server, destination=f"{place}/new/whole",
            source_paths=[f"{place}/new/whole", f"{place}/more"])
    assert bytes(box.files.read(f"{place}/new/whole", format="bytes")) == b"".join(parts) + b"more"
    assert box.files.get_info(f"{place}/new/whole").permissions == "-rw-------"
    assert [entry.name for entry in box.files.list(f"{place}/new")] == ["whole"]


@pytest.mark.parametrize("sources, code", [([], 400), (["part", "none"], 404), (["part", "."], 400)])
def test_what_cannot_be_composed_changes_nothing(box, place, server, sources, code):
    box.files.write(f"{place}/part", "part")
    box.files.write(f"{place}/whole", "old")
    with pytest.raises(urllib.error.HTTPError) as refused:
        compose(box, server, destination=f"{place}/whole",
                source_paths=[f"{place}/{source}" for source in sources])
    assert refused.value.code == code
    assert box.files.read(f"{place}/whole") == "old" and box.files.read(f"{place}/part") == "part"
    assert sorted(entry.name for entry in box.files.list(place)) == ["part", "whole"]


def test_writing_again_replaces_and_keeps_the_mode(box, place):
    box.files.write(f"{place}/a", "long content")
    box.commands.run(f"chmod 600 {place}/a")
    box.files.write(f"{place}/a", "x")
    assert box.files.read(f"{place}/a") == "x"
    assert box.files.get_info(f"{place}/a").permissions == "-rw-------"


def test_directories_on_the_way_are_made(box, place):
    box.files.write(f"{place}/x/y/z.txt", "deep")
    assert box.commands.run(f"stat -c %U {place}/x/y {place}/x/y/z.txt").stdout == "user\nuser\n"


def test_several_files_at_once(box, place):
    told = box.files.write_files([
        {"path": f"{place}/one", "data": "1"},
        {"path": f"{place}/sub/two", "data": b"22"},
        {"path": f"{place}/three", "data": io.StringIO("333")},
    ])
    assert [entry.name for entry in told] == ["one", "two", "three"]
    assert box.files.read(f"{place}/sub/two") == "22"


def test_paths_are_meant_from_home(box):
    box.files.write("relative.txt", "at home")
    assert box.files.read("/home/user/relative.txt") == "at home"
    assert box.files.read("~/relative.txt") == "at home"
    box.files.remove("relative.txt")


def test_users_write_as_themselves(box):
    box.files.write("/tmp/of-root", "x", user="root")
    box.files.write("/tmp/of-user", "x", user="user")
    assert box.files.get_info("/tmp/of-root").owner == "root"
    assert box.files.get_info("/tmp/of-user").owner == "user"
    with pytest.raises(AuthenticationException):
        box.files.write("/tmp/x", "x", user="nobody-like-that")


@pytest.mark.parametrize("path", ["/no/such/file", "/home/user/no-such-file", "/etc/hostname/x"])
def test_what_is_missing_is_not_found(box, path):
    with pytest.raises(FileNotFoundException):
        box.files.read(path)
    assert box.files.exists(path) is False


def test_a_directory_is_no_file(box, place):
    with pytest.raises(InvalidArgumentException):
        box.files.read(place)
    with pytest.raises(InvalidArgumentException):
        box.files.write(place, "x")


def test_a_fifo_is_not_waited_for(box, place):
    box.commands.run(f"mkfifo {place}/fifo")
    with pytest.raises(InvalidArgumentException):
        box.files.read(f"{place}/fifo")


def test_files_of_the_kernel_are_read(box):
    assert "MemTotal" in box.files.read("/proc/meminfo")


def test_metadata_stays_beside_a_file(box, place):
    told = box.files.write(f"{place}/m", "x", metadata={"author": "me", "kind": "test"})
    assert told.metadata == {"author": "me", "kind": "test"}
    assert box.files.get_info(f"{place}/m").metadata == {"author": "me", "kind": "test"}
    box.files.write(f"{place}/m", "y", metadata={"kind": "other"})
    assert box.files.get_info(f"{place}/m").metadata == {"kind": "other"}


def test_everything_about_an_entry(box, place):
    box.files.write(f"{place}/a", "12345")
    info = box.files.get_info(f"{place}/a")
    assert (info.name, info.type, info.size, info.owner) == ("a", FileType.FILE, 5, "user")
    assert (info.mode, info.permissions) == (0o644, "-rw-r--r--")
    assert abs(info.modified_time.timestamp() - time.time()) < 600
    assert box.files.get_info(place).type == FileType.DIR


def test_links_are_told_with_their_target(box, place):
    box.files.write(f"{place}/a", "x")
    box.commands.run(f"ln -s a {place}/link; ln -s nowhere {place}/broken")
    info = box.files.get_info(f"{place}/link")
    assert (info.type, info.symlink_target) == (FileType.SYMLINK, f"{place}/a")
    names = {entry.name: entry.type for entry in box.files.list(place)}
    assert names["link"] == names["broken"] == FileType.SYMLINK


def test_listing_is_sorted_and_as_deep_as_asked(box, place):
    box.files.write_files([{"path": f"{place}/{name}", "data": ""}
                           for name in ("b", "a", "d/e/f", "d/c")])
    names = lambda depth: [entry.path.removeprefix(place) for entry in box.files.list(place, depth)]
    assert names(1) == ["/a", "/b", "/d"]
    assert names(2) == ["/a", "/b", "/d", "/d/c", "/d/e"]
    assert names(5) == ["/a", "/b", "/d", "/d/c", "/d/e", "/d/e/f"]


def test_what_cannot_be_listed_says_so(box, place):
    with pytest.raises(FileNotFoundException):
        box.files.list(f"{place}/nothing")
    box.files.write(f"{place}/file", "")
    with pytest.raises(InvalidArgumentException):
        box.files.list(f"{place}/file")
    with pytest.raises(InvalidArgumentException):
        box.files.list(place, depth=0)


def test_directories_are_made_once(box, place):
    assert box.files.make_dir(f"{place}/a/b/c") is True
    assert box.files.make_dir(f"{place}/a/b/c") is False
    box.files.write(f"{place}/file", "")
    with pytest.raises(InvalidArgumentException):
        box.files.make_dir(f"{place}/file")


def test_moving(box, place):
    box.files.write(f"{place}/a", "x")
    info = box.files.rename(f"{place}/a", f"{place}/new/b")
    assert (info.name, info.path) == ("b", f"{place}/new/b")
    assert not box.files.exists(f"{place}/a")
    with pytest.raises(FileNotFoundException):
        box.files.rename(f"{place}/a", f"{place}/c")


def test_removing(box, place):
    box.files.write(f"{place}/d/e", "x")
    box.files.remove(f"{place}/d")
    assert not box.files.exists(f"{place}/d")
    box.files.remove(f"{place}/d")


@pytest.mark.parametrize("name", ["a b", "ä€😀", "a#b?c&d=e%20", "-rf", "quote'\""])
def test_names_of_all_kinds(box, place, name):
    box.files.write(f"{place}/{name}", name)
    assert box.files.read(f"{place}/{name}") == name
    assert name in [entry.name for entry in box.files.list(place)]


def events_of(handle, wanted, seconds=15):
    seen, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        seen += handle.get_new_events()
        if wanted <= {(event.name, event.type) for event in seen}:
            return seen
        time.sleep(0.1)
    raise AssertionError(seen)


def test_a_watch_tells_what_happens(box, place):
    handle = box.files.watch_dir(place)
    box.files.write(f"{place}/a", "x")
    box.commands.run(f"chmod 600 {place}/a; mv {place}/a {place}/b; rm {place}/b")
    kind = FilesystemEventType
    events_of(handle, {("a", kind.CREATE), ("a", kind.WRITE), ("a", kind.CHMOD),
                       ("a", kind.RENAME), ("b", kind.CREATE), ("b", kind.REMOVE)})
    handle.stop()


def test_a_watch_sees_below_only_when_asked(box, place):
    box.files.make_dir(f"{place}/sub")
    flat = box.files.watch_dir(place)
    deep = box.files.watch_dir(place, recursive=True)
    box.files.write(f"{place}/sub/x", "1")
    box.files.write(f"{place}/new/dir/y", "2")
    events_of(deep, {("sub/x", FilesystemEventType.CREATE),
                     ("new/dir/y", FilesystemEventType.CREATE)})
    assert all("/" not in event.name for event in flat.get_new_events())
    flat.stop()
    deep.stop()


def test_a_watch_of_nothing_is_refused(box, place):
    with pytest.raises(FileNotFoundException):
        box.files.watch_dir(f"{place}/nothing")
    box.files.write(f"{place}/file", "")
    with pytest.raises(InvalidArgumentException):
        box.files.watch_dir(f"{place}/file")


def get(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def test_signed_links_read_and_write(box, place):
    box.files.write(f"{place}/a", "signed")
    assert get(box.download_url(f"{place}/a")) == b"signed"
    assert get(box.download_url(f"{place}/a", use_signature_expiration=60)) == b"signed"
    border = "xyz"
    body = (f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="up"\r\n\r\n'
            f"sent\r\n--{border}--\r\n").encode()
    request = urllib.request.Request(box.upload_url(f"{place}/up"), data=body, method="POST",
                                     headers={"Content-Type": f"multipart/form-data; boundary={border}"})
    get(request)
    assert box.files.read(f"{place}/up") == "sent"


@pytest.mark.parametrize("change", [("v1_", "v1_x"), ("%2Fa&", "%2Fb&"), ("signature=", "x=")])
def test_a_signature_is_for_one_path(box, place, change):
    box.files.write(f"{place}/a", "a")
    box.files.write(f"{place}/b", "b")
    url = box.download_url(f"{place}/a", user="user") + "&"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url.replace(*change))
    assert refused.value.code in (401, 404)


def test_a_signature_ends(box, place):
    box.files.write(f"{place}/a", "a")
    url = box.download_url(f"{place}/a", use_signature_expiration=-5)
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url)
    assert refused.value.code == 401


def test_compressed_answers_are_sound(box, place, server):
    box.files.write(f"{place}/a", "x" * 1000)
    request = urllib.request.Request(f"{server.url}/files?path={place}/a", headers={
        "Accept-Encoding": "gzip", **box.connection_config.sandbox_headers})
    assert gzip.decompress(get(request)) == b"x" * 1000
