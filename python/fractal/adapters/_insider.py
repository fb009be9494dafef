"""The program of :mod:`fractal.adapters._inside` that works inside a sandbox.

It is sent there as text, stands alone, and needs Python 3.9. What to do comes as
JSON lines on standard input, what became of it goes out as JSON lines; bytes are
base64. All processes are its children, so that they see and outlive each other
as on a machine, and it ends with its input.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import pwd
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple

PIECE = 48 << 10
DRAIN_S = 0.25
"""How long output is waited for that others still write when a program is over."""
JOBS_MAX = 256
LISTED_AT_ONCE = 200
PR_SET_DUMPABLE = 4

Request = Dict[str, Any]
Say = Callable[..., None]


class Lines:
    """Says what became of requests, one line each."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def say(self, number: int, **told: Any) -> None:
        self.forward(json.dumps({"id": number, **told}).encode() + b"\n")

    def forward(self, line: bytes) -> None:
        try:
            with self._lock:
                self._out.write(line)
                self._out.flush()
        except OSError:
            os._exit(1)  # nobody listens any more


class Refused(Exception):
    """Why something was not begun, in the words of the protocol."""

    def __init__(self, **why: Any) -> None:
        super().__init__(str(why))
        self.why = why


def refusal(error: BaseException) -> Request:
    if isinstance(error, Refused):
        return error.why
    if isinstance(error, OSError) and error.errno is not None:
        return {"errno": error.errno, "message": error.strerror, "path": _name(error.filename)}
    return {"errno": errno.EINVAL, "message": f"{type(error).__name__}: {error}", "path": None}


def _name(path: Any) -> Optional[str]:
    return os.fsdecode(path) if isinstance(path, (str, bytes)) else None


def environment() -> Dict[bytes, bytes]:
    """What this program was given, before Python set its own locale."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair)
        return {name: value for name, _, value in pairs}


class User:
    """Who a request works as; nobody in particular is who runs this program."""

    def __init__(self, wanted: Optional[str]) -> None:
        self.other: Dict[str, Any] = {}
        self.env: Dict[bytes, bytes] = {}
        if wanted is None:
            return
        entry = self._find(wanted)
        if entry is not None:
            self.env = {
                b"HOME": os.fsencode(entry.pw_dir),
                b"USER": os.fsencode(entry.pw_name),
                b"LOGNAME": os.fsencode(entry.pw_name),
            }
        uid = entry.pw_uid if entry is not None else int(wanted)
        if uid == os.geteuid():
            return
        if os.geteuid() != 0:
            ours = f"{os.geteuid()}"
            raise Refused(user="one", message=f"only user {ours} is there, and not {wanted!r}")
        gid = entry.pw_gid if entry is not None else uid
        name = entry.pw_name if entry is not None else None
        groups = os.getgrouplist(name, gid) if name is not None else [gid]
        self.other = {"user": uid, "group": gid, "extra_groups": groups}

    @staticmethod
    def _find(wanted: str) -> Optional[pwd.struct_passwd]:
        try:
            return pwd.getpwuid(int(wanted)) if wanted.isdecimal() else pwd.getpwnam(wanted)
        except KeyError:
            if wanted.isdecimal():
                return None
        if wanted == "root":
            return pwd.struct_passwd(("root", "", 0, 0, "", "/root", "/bin/sh"))
        raise Refused(user="unknown", message=f"there is no user {wanted!r} in the sandbox")


class Job:
    """One program that was asked for, while it runs."""

    def __init__(self, number: int, lines: Lines) -> None:
        self.number = number
        self._lines = lines
        self._is_wanted = True
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._lock = threading.Lock()

    def kill(self) -> None:
        with self._lock:
            self._is_wanted = False
            if self._child is not None and self._child.returncode is None:
                kill_tree(self._child.pid)

    def run(self, request: Request, stdin: Optional[BinaryIO], base: Dict[bytes, bytes]) -> None:
        try:
            child = self._start(request, stdin, base)
        except PermissionError as error:
            self._lines.say(self.number, error=refusal(found_nowhere(error, request) or error))
            return
        except BaseException as error:
            self._lines.say(self.number, error=refusal(error))
            return
        finally:
            if stdin is not None:
                stdin.close()
        timed_out = self._follow(child, request.get("timeout"))
        status = child.returncode
        self._lines.say(
            self.number, exit=128 - status if status < 0 else status, timed_out=timed_out
        )

    def _start(
        self, request: Request, stdin: Optional[BinaryIO], base: Dict[bytes, bytes]
    ) -> subprocess.Popen[bytes]:
        user = User(request.get("user"))
        asked = {os.fsencode(k): os.fsencode(v) for k, v in (request.get("env") or {}).items()}
        with self._lock:
            if not self._is_wanted:
                raise Refused(errno=errno.ECANCELED, message="it was not wanted", path=None)
            self._child = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=request.get("cwd"),
                env={**base, **user.env, **asked},
                start_new_session=True,
                **user.other,
            )
        return self._child

    def _follow(self, child: subprocess.Popen[bytes], timeout: Optional[float]) -> bool:
        """Passes its output on until it is over; whether it took too long."""
        deadline = None if timeout is None else time.monotonic() + timeout
        timed_out = False
        over_at: Optional[float] = None
        with selectors.DefaultSelector() as selector:
            for pipe, name in ((child.stdout, "out"), (child.stderr, "err")):
                assert pipe is not None
                selector.register(pipe, selectors.EVENT_READ, name)
            ended = _watch_end(child.pid)
            if ended is not None:
                selector.register(ended, selectors.EVENT_READ, None)
            while True:
                ready = selector.select(_patience(deadline, over_at, ended is not None))
                heard = [self._pass_on(selector, key) for key, _ in ready if key.data]
                if over_at is None and child.poll() is not None:
                    over_at = time.monotonic()
                    if ended is not None:
                        selector.unregister(ended)
                        os.close(ended)
                        ended = None
                elif over_at is not None and not any(heard):
                    if time.monotonic() - over_at >= DRAIN_S or not selector.get_map():
                        break
                if deadline is not None and over_at is None and time.monotonic() >= deadline:
                    timed_out, deadline = True, None
                    kill_tree(child.pid)
            _drop_later([key.fileobj for key in selector.get_map().values()])
        return timed_out

    def _pass_on(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
        data = os.read(key.fd, PIECE)
        if data:
            self._lines.say(self.number, **{key.data: base64.b64encode(data).decode()})
            return True
        selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]
        return False


def found_nowhere(error: OSError, request: Request) -> Optional[OSError]:
    """Linux says that a program may not be run where it could not look for it
    in some place; a shell says that there is none."""
    program = request["argv"][0]
    path = (request.get("env") or {}).get("PATH")
    if "/" in program or error.filename != program or shutil.which(program, os.F_OK, path):
        return None
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _watch_end(pid: int) -> Optional[int]:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _patience(deadline: Optional[float], over_at: Optional[float], is_told: bool) -> float:
    """How long to wait for something to happen."""
    if over_at is not None:
        return 0.05
    longest = 3600.0 if is_told else 0.02
    return longest if deadline is None else max(0.0, min(longest, deadline - time.monotonic()))


_left = threading.BoundedSemaphore(JOBS_MAX)


def _drop_later(pipes: List[Any]) -> None:
    """Lets processes that were left behind go on writing, to nobody."""

    def drop() -> None:
        for pipe in pipes:
            while pipe.read(PIECE):
                pass
            pipe.close()
        _left.release()

    if not pipes:
        return
    if _left.acquire(blocking=False):
        threading.Thread(target=drop, daemon=True).start()
    else:
        for pipe in pipes:
            pipe.close()


def kill_tree(root: int) -> None:
    """Ends a process, all that descend from it, and its session."""
    for _ in range(10):
        doomed = _family(root)
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if doomed <= {root}:
            return
        time.sleep(0.01)


def _family(root: int) -> set[int]:
    found: Dict[int, Tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            found[int(name)] = (int(parent), int(session))
    family = {root}
    while True:
        more = {
            pid
            for pid, (parent, session) in found.items()
            if pid not in family and (parent in family or session == root)
        }
        if not more:
            return family
        family |= more


def read(request: Request, number: int, say: Say) -> None:
    """The content of a regular file."""
    path, limit = request["path"], request.get("limit")
    # One that nobody writes to would be waited for.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", 0) as file:
        told = os.fstat(file.fileno())
        if stat.S_ISDIR(told.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(told.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        total, told_size = 0, told.st_size
        while limit is None or max(total, told_size) <= limit:
            data = file.read(PIECE)
            if not data:
                return say(number, done={})
            told_size, total = 0, total + len(data)
            say(number, out=base64.b64encode(data).decode())
    raise Refused(errno=errno.EFBIG, message=f"it has more than {limit} bytes", path=path)


def write(request: Request, number: int, say: Say, content: BinaryIO) -> None:
    """Makes a file, or replaces what it holds."""
    path = request["path"]
    parents(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_TRUNC
    with open(os.open(path, flags, 0o666), "wb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        shutil.copyfileobj(content, file, 1 << 20)
    say(number, done={})


def parents(path: str) -> None:
    above = os.path.dirname(path)
    try:
        if above:
            os.makedirs(above, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None


def entry(path: str, name: str) -> Request:
    """What stands at a path, where links lead."""
    try:
        told = os.stat(path)
    except OSError:
        told = os.lstat(path)
    return {
        "name": name,
        "path": path,
        "mode": told.st_mode,
        "size": told.st_size,
        "modified": told.st_mtime,
    }


def info(request: Request, number: int, say: Say) -> None:
    path = request["path"]
    os.stat(path)
    say(number, done=entry(path, os.path.basename(path.rstrip("/"))))


def exists(request: Request, number: int, say: Say) -> None:
    say(number, done={"exists": os.path.exists(request["path"])})


def names(request: Request, number: int, say: Say) -> None:
    """What a directory holds, by name, a few lines at a time."""
    path = request["path"]
    found = sorted(os.listdir(path))
    for at in range(0, len(found), LISTED_AT_ONCE):
        some = []
        for name in found[at : at + LISTED_AT_ONCE]:
            try:
                some.append(entry(os.path.join(path, name), name))
            except FileNotFoundError:
                pass  # gone meanwhile
        say(number, some=some)
    say(number, done={})


def make(request: Request, number: int, say: Say) -> None:
    os.makedirs(request["path"], exist_ok=True)
    say(number, done={})


def remove(request: Request, number: int, say: Say) -> None:
    path = request["path"]
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    say(number, done={})


def resolve(request: Request, number: int, say: Say) -> None:
    say(number, done={"path": os.path.realpath(request["path"])})


FILES: Dict[str, Callable[[Request, int, Say], None]] = {
    "read": read,
    "info": info,
    "exists": exists,
    "list": names,
    "make": make,
    "remove": remove,
    "resolve": resolve,
}


def on_files(
    request: Request, number: int, say: Say, content: Optional[BinaryIO]
) -> None:
    """One thing that is done to files, by whoever this process is."""
    try:
        if request["do"] == "write":
            assert content is not None
            write(request, number, say, content)
        else:
            FILES[request["do"]](request, number, say)
    except BaseException as error:
        say(number, error=refusal(error))


class Desk:
    """Takes requests and has each done in a thread of its own."""

    def __init__(self, source: str, env: Dict[bytes, bytes], out: BinaryIO) -> None:
        self._source = source
        self._lines = Lines(out)
        self._env = env
        self._jobs: Dict[int, Job] = {}
        self._inputs: Dict[int, BinaryIO] = {}
        self._lock = threading.Lock()

    def serve(self, asked: BinaryIO) -> None:
        self._lines.say(0, hello={"cwd": os.getcwd(), "uid": os.geteuid()})
        for line in asked:
            request = json.loads(line)
            try:
                self._take(request)
            except BaseException as error:
                self._lines.say(request["id"], error=refusal(error))

    def _take(self, request: Request) -> None:
        number, verb = request["id"], request["do"]
        if verb == "ping":
            self._lines.say(number, pong=True)
        elif verb == "kill":
            with self._lock:
                job = self._jobs.get(number)
            if job is not None:
                threading.Thread(target=job.kill, daemon=True).start()
        elif verb == "input":
            self._spool(number).write(base64.b64decode(request["data"]))
        else:
            self._begin(request, number)

    def _spool(self, number: int) -> BinaryIO:
        """Input is kept in a file until all of it is there: nobody has to wait
        for a program that does not read."""
        spool = self._inputs.get(number)
        if spool is None:
            spool = self._inputs[number] = tempfile.TemporaryFile()
        return spool

    def _begin(self, request: Request, number: int) -> None:
        content = self._inputs.pop(number, None)
        if content is None and request.get("reads"):
            content = tempfile.TemporaryFile()
        if content is not None:
            content.seek(0)
        with self._lock:
            if len(self._jobs) >= JOBS_MAX:
                raise Refused(errno=errno.EAGAIN, message="too much runs at once", path=None)
            job = self._jobs[number] = Job(number, self._lines)
        threading.Thread(target=self._work, args=(job, request, content), daemon=True).start()

    def _work(self, job: Job, request: Request, content: Optional[BinaryIO]) -> None:
        try:
            if request["do"] == "run":
                job.run(request, content, self._env)
            elif User(request.get("user")).other:
                self._as_other(request, job.number, content)
            else:
                on_files(request, job.number, self._lines.say, content)
        except BaseException as error:
            self._lines.say(job.number, error=refusal(error))
        finally:
            if content is not None:
                content.close()
            with self._lock:
                self._jobs.pop(job.number, None)

    def _as_other(self, request: Request, number: int, content: Optional[BinaryIO]) -> None:
        """A process that becomes that user does it: the kernel then says what
        they may. It becomes so after its start, since Python may lie where they
        cannot look."""
        user = User(request["user"])
        asked = json.dumps({**request, "as": user.other})
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", self._source, asked],
            stdin=subprocess.DEVNULL if content is None else content,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._env, **user.env},
        )
        assert child.stdout is not None and child.stderr is not None
        with child.stdout, child.stderr:
            for line in child.stdout:
                self._lines.forward(line)
            why = child.stderr.read().decode(errors="replace").strip()[-500:]
        if child.wait() != 0:
            raise Refused(errno=errno.EIO, message=f"it could not be done: {why}", path=None)


def become(other: Dict[str, Any]) -> None:
    """For good, with all that it was before given up."""
    os.setgroups(other["extra_groups"])
    os.setresgid(other["group"], other["group"], other["group"])
    os.setresuid(other["user"], other["user"], other["user"])


def main() -> None:
    if len(sys.argv) > 1:
        request = json.loads(sys.argv[1])
        become(request["as"])
        on_files(request, request["id"], Lines(sys.stdout.buffer).say, sys.stdin.buffer)
        return
    env = environment()
    # Programs of other users do not look into this one, nor at what it writes.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # A handler, since what is ignored is ignored by all programs begun here.
    signal.signal(signal.SIGINT, lambda *_: None)
    # Nothing that prints by accident is to be taken for an answer.
    out = open(os.dup(1), "wb")
    os.dup2(2, 1)
    Desk(globals()["SOURCE"], env, out).serve(sys.stdin.buffer)
    os._exit(0)


if __name__ == "__main__":
    main()
