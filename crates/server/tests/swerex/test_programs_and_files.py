"""Programs by themselves, and files."""

import os
import signal
import time

import pytest
from conftest import PATIENCE, run
from swerex.exceptions import CommandTimeoutError, NonZeroExitCodeError
from swerex.runtime.abstract import Command, ReadFileRequest, UploadRequest, WriteFileRequest


def execute(runtime, command, **more):
    more.setdefault("shell", isinstance(command, str))
    return run(runtime.execute(Command(command=command, **more)))


def read(runtime, path, **more):
    return run(runtime.read_file(ReadFileRequest(path=str(path), **more))).content


def write(runtime, path, content):
    run(runtime.write_file(WriteFileRequest(path=str(path), content=content)))


def test_a_program_gives_both_its_outputs_and_its_exit_code(box):
    done = execute(box, "echo out; echo err >&2; exit 4")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 4)
    done = execute(box, ["printf", "%s|", "a b", "$HOME", ""])
    assert done.stdout == "a b|$HOME||"
    done = execute(box, "echo out; echo err >&2; echo more", merge_output_streams=True)
    assert (done.stdout, done.stderr) == ("out\nerr\nmore\n", "")
    assert execute(box, "true", shell=False).exit_code == 0
    assert execute(box, "kill -15 $$").exit_code == -signal.SIGTERM


def test_environment_and_directory_of_a_program(box):
    done = execute(box, ["/usr/bin/env"], env={"A": "1", "B": "zwei ü"})
    assert sorted(done.stdout.splitlines()) == ["A=1", "B=zwei ü"]
    assert execute(box, "pwd", cwd="/usr").stdout == "/usr\n"
    assert execute(box, "echo $HOME").stdout.strip()
    with pytest.raises(FileNotFoundError):
        execute(box, "pwd", cwd="/no/such/place")
    with pytest.raises(ValueError):
        execute(box, "true", env={"A=B": "1"})


def test_what_cannot_be_started_is_an_error_of_python(box):
    with pytest.raises(FileNotFoundError, match="nosuchprogram"):
        execute(box, ["nosuchprogram"])
    with pytest.raises(PermissionError):
        execute(box, ["/etc/passwd"])
    with pytest.raises(ValueError):
        execute(box, [])


def test_check_raises_with_what_was_written(box):
    with pytest.raises(NonZeroExitCodeError) as raised:
        execute(box, "echo told; echo why >&2; exit 9", check=True, error_msg="No luck")
    for word in ("No luck", "9", "told", "why"):
        assert word in str(raised.value)


def test_a_time_limit_ends_a_program_and_what_it_started(box):
    with pytest.raises(CommandTimeoutError):
        execute(box, "sleep 2001 & sleep 2002", timeout=0.5)
    assert execute(box, "ps -e -o args | grep -c '[s]leep 200[12]'").stdout == "0\n"


def test_a_program_that_leaves_others_behind_is_not_waited_for(box):
    started = time.time()
    assert execute(box, "sleep 1000 & echo started").stdout == "started\n"
    assert time.time() - started < PATIENCE


def test_bytes_that_are_no_text_and_much_output(box):
    assert execute(box, "printf 'a\\377b'").stdout == "a\\xffb"
    done = execute(box, "seq 1 300000")
    assert done.stdout.endswith("\n300000\n") and len(done.stdout) == 1_988_895
    done = execute(box, "head -c 50000000 /dev/zero | tr '\\0' x; echo last")
    assert "bytes are left out here]" in done.stdout and done.stdout.endswith("last\n")


def test_input_is_at_its_end(box):
    assert execute(box, "cat; echo $?").stdout == "0\n"


def test_a_file_comes_back_as_it_was_written(box):
    for content in ("", "text\n", "grün 😀\n", "a\tb\0c", "x" * 3_000_000):
        write(box, "a/b/file", content)
        assert read(box, "a/b/file") == content
    assert execute(box, "cat a/b/file | wc -c").stdout == "3000000\n"


def test_ends_of_lines_are_read_as_python_reads_them(box):
    execute(box, "printf 'a\\r\\nb\\rc\\n' > lines")
    assert read(box, "lines") == "a\nb\nc\n"


def test_encodings_and_what_does_not_decode(box):
    execute(box, "printf 'gr\\374n' > latin; printf '\\377\\376a\\000' > wide")
    assert read(box, "latin", encoding="latin-1") == "grün"
    assert read(box, "latin", encoding="cp1252") == "grün"
    assert read(box, "latin", errors="replace") == "gr\ufffdn"
    assert read(box, "latin", errors="ignore") == "grn"
    assert read(box, "latin", errors="backslashreplace") == "gr\\xfcn"
    assert read(box, "wide", encoding="utf-16") == "a"
    with pytest.raises(Exception, match="0xfc"):
        read(box, "latin")
    for more in ({"encoding": "no-such"}, {"errors": "no-such"}):
        with pytest.raises(LookupError):
            read(box, "latin", **more)


def test_files_that_are_not_there_or_none(box):
    with pytest.raises(FileNotFoundError):
        read(box, "nowhere")
    with pytest.raises(IsADirectoryError):
        read(box, "/usr")
    with pytest.raises(IsADirectoryError):
        write(box, "/usr", "x")
    with pytest.raises(OSError, match="longer than"):
        read(box, "/dev/zero")
    execute(box, "mkfifo pipe")
    assert read(box, "pipe") == ""
    with pytest.raises(OSError):
        write(box, "pipe", "x")
    write(box, "file", "x")
    with pytest.raises(NotADirectoryError):
        read(box, "file/below")


def test_uploads_of_files(box, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 20_000)
    for target in ("new/place/target", "new/place/target"):
        run(box.upload(UploadRequest(source_path=str(source), target_path=target)))
    summed = execute(box, "sha256sum < new/place/target").stdout
    assert summed == os.popen(f"sha256sum < {source}").read()
    run(box.upload(UploadRequest(source_path=str(source), target_path="new")))
    assert execute(box, "wc -c < new/source").stdout == "5120000\n"


def test_uploads_of_directories(box, tmp_path):
    source = tmp_path / "tree"
    (source / "below" / "empty").mkdir(parents=True)
    (source / "below" / "file").write_text("content")
    (source / "grün 😀").write_text("name")
    script = source / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    for target in ("there", "there"):
        run(box.upload(UploadRequest(source_path=str(source), target_path=target)))
    assert read(box, "there/below/file") == "content"
    assert read(box, "there/grün 😀") == "name"
    assert execute(box, "there/script").stdout == "ran\n"
    assert execute(box, "test -d there/below/empty").exit_code == 0
    (tmp_path / "nothing").mkdir()
    run(box.upload(UploadRequest(source_path=str(tmp_path / "nothing"), target_path="nothing")))
    assert execute(box, "ls nothing").exit_code == 0


def test_what_is_uploaded_leaves_nothing_else(server, box, tmp_path):
    (tmp_path / "file").write_text("x")
    run(box.upload(UploadRequest(source_path=str(tmp_path), target_path="tree")))
    execute(box, "true")
    run(box.close())
    changed = server.fractal("diff", box.sandbox)
    assert "tree/file" in changed and "tmp" not in changed.replace(str(server.project), "")
