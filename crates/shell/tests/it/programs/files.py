### write and read a text file
with open("a.txt", "w") as f:
    f.write("one\ntwo\n"); f.writelines(["three\n", "four"])
with open("a.txt") as f:
    print(f.read(3), f.readline(), f.readlines(), f.read())
with open("a.txt") as f:
    for n, line in enumerate(f, 1): print(n, line.rstrip())
### append and overwrite
with open("log", "a") as f: f.write("1\n")
with open("log", "a") as f: f.write("2\n"); print(f.tell())
with open("log", "r+") as f: f.write("X"); f.seek(0, 2); f.write("3\n")
print(open("log").read())
try:
    open("log", "x")
except FileExistsError as error:
    print("exists", error.filename)
with open("new", "x") as f: print(f.write("n"))
### seek, tell and truncate
with open("b.bin", "wb+") as f:
    f.write(bytes(range(100))); f.seek(10); print(f.read(3), f.tell()); f.seek(-2, 2); print(f.read())
    f.seek(50); f.truncate(); f.seek(200); f.write(b"end"); print(f.tell(), f.seek(0, 2))
data = open("b.bin", "rb").read(); print(len(data), data[50:60], data[-3:])
### one descriptor sees what another wrote
a = open("shared", "w+"); b = open("shared", "r")
a.write("first"); a.flush(); print(b.read()); a.write(" second"); a.flush(); print(b.read())
c = open("shared", "a"); c.write("!"); c.close(); print(b.read()); a.seek(0); print(a.read())
### a file lives on without its name
import os
f = open("gone", "w+"); f.write("still here"); f.flush(); os.remove("gone")
print(os.path.exists("gone")); f.seek(0); print(f.read()); f.write(" and more"); f.flush(); f.seek(0); print(f.read(), os.fstat(f.fileno()).st_size)
with open("gone", "w") as g: g.write("another")
f.seek(0); print(f.read(), open("gone").read())
### a file moves while it is open
import os
os.makedirs("d/e"); f = open("d/e/f", "w"); f.write("one\n"); f.flush()
os.rename("d/e/f", "g"); f.write("two\n"); f.flush(); print(open("g").read())
os.rename("g", "d/g"); os.rename("d", "h"); f.write("three\n"); f.close()
print(open("h/g").read(), os.listdir("h/e"))
### a file is replaced while it is open
import os
open("cfg", "w").write("old"); f = open("cfg")
open("cfg.new", "w").write("new"); os.replace("cfg.new", "cfg")
print(f.read(), open("cfg").read(), sorted(os.listdir()))
### hard links
import os
open("a", "w").write("x"); os.link("a", "b"); s = os.stat("a")
print(s.st_nlink, os.path.samefile("a", "b"), s.st_ino == os.stat("b").st_ino)
open("b", "a").write("y"); print(open("a").read()); os.remove("a"); print(open("b").read(), os.stat("b").st_nlink)
f = open("b"); os.link("b", "c"); os.remove("b"); print(f.read(), os.fstat(f.fileno()).st_nlink)
### symlinks
import os
os.mkdir("d"); open("d/f", "w").write("target"); os.symlink("d/f", "l"); os.symlink("d", "dir"); os.symlink("nowhere", "dangling")
print(open("l").read(), os.readlink("l"), os.path.islink("l"), os.path.isfile("l"), os.listdir("dir"))
print(os.path.exists("dangling"), os.path.lexists("dangling"), os.path.realpath("dir/f").endswith("/d/f"))
open("dangling", "w").write("made"); print(open("nowhere").read(), os.lstat("l").st_size)
os.remove("l"); os.unlink("dir"); print(sorted(os.listdir()), open("d/f").read())
try:
    os.symlink("loop", "loop"); open("loop")
except OSError as error:
    print(type(error).__name__)
### directories
import os
os.makedirs("a/b/c"); os.makedirs("a/b/c", exist_ok=True); open("a/b/f", "w").close()
for top, dirs, files in os.walk("."): dirs.sort(); print(top, dirs, sorted(files))
for act in [lambda: os.rmdir("a"), lambda: os.mkdir("a"), lambda: os.mkdir("x/y"), lambda: os.rmdir("a/b/f"), lambda: os.remove("a"), lambda: os.listdir("none"), lambda: open("a"), lambda: open("a/b/f/g"), lambda: os.rename("a", "a/b/z")]:
    try:
        act(); print("done")
    except OSError as error:
        print(type(error).__name__)
os.removedirs("a/b/c") if False else os.rmdir("a/b/c"); print(os.listdir("a/b"))
### looking at entries
import os, stat
open("f", "wb").write(b"12345"); os.mkdir("d"); os.symlink("f", "l")
with os.scandir(".") as entries:
    for e in sorted(entries, key=lambda e: e.name):
        print(e.name, e.is_file(), e.is_dir(), e.is_symlink(), e.stat().st_size if e.is_file() else "")
s = os.stat("f"); print(s.st_size, stat.S_ISREG(s.st_mode), stat.S_ISDIR(os.stat("d").st_mode), stat.S_ISLNK(os.lstat("l").st_mode))
### times of files
import os, time
open("f", "w").close(); os.utime("f", (1000000000, 1234567890)); print(os.stat("f").st_mtime, os.path.getmtime("f"))
os.utime("f", ns=(0, 1234567890123456789)); print(os.stat("f").st_mtime_ns); os.utime("f"); print(abs(os.stat("f").st_mtime - time.time()) < 100)
before = os.stat("f").st_mtime_ns; open("f", "a").write("x"); print(os.stat("f").st_mtime_ns >= before)
### paths as objects
from pathlib import Path
p = Path("a") / "b" / "c.tar.gz"; print(p.name, p.stem, p.suffix, p.suffixes, p.parent, p.parts, p.with_suffix(".x"), p.with_name("d"))
p.parent.mkdir(parents=True); p.write_text("grün\n", encoding="utf-8"); print(p.read_text(encoding="utf-8"), p.read_bytes(), p.exists(), p.stat().st_size)
Path("a/x.py").touch(); Path("a/y.py").write_bytes(b"1"); print(sorted(map(str, Path("a").rglob("*.py"))), sorted(q.name for q in Path("a").iterdir()), Path("a/../a/x.py").resolve().name)
p.rename("moved"); Path("a/x.py").unlink(); Path("a/none").unlink(missing_ok=True); print(sorted(map(str, Path(".").glob("**/*"))))
print(Path("/a/b").relative_to("/a"), Path("x/y").as_posix(), Path("a").is_dir(), Path("/x") / "/y", Path("a/b").match("*/b"))
### globs
import glob, os, fnmatch
for n in ["a.txt", "b.txt", ".hidden", "c1.md", "sub/d.txt", "sub/deep/e.txt"]:
    os.makedirs(os.path.dirname(n) or ".", exist_ok=True); open(n, "w").close()
print(sorted(glob.glob("*.txt")), sorted(glob.glob("**/*.txt", recursive=True)), sorted(glob.glob("*")), sorted(glob.glob("c[0-9].*")), glob.glob("[!a]*.txt"))
print(fnmatch.filter(["a.py", "b.txt"], "*.py"), fnmatch.fnmatch("X.PY", "*.py"), glob.escape("a[b]"))
### copies and moves of trees
import shutil, os
os.makedirs("src/sub"); open("src/a", "w").write("a"); open("src/sub/b", "w").write("b"); os.symlink("a", "src/l")
shutil.copytree("src", "dst", symlinks=True); print(sorted(os.listdir("dst")), os.readlink("dst/l"))
shutil.copy("src/a", "copy"); shutil.copy2("src/a", "copy2"); shutil.copyfile("src/a", "copy3"); shutil.move("src/sub", "moved")
print(sorted(os.listdir()), open("moved/b").read()); shutil.rmtree("dst"); print(os.path.exists("dst"), os.stat("copy2").st_mtime_ns == os.stat("src/a").st_mtime_ns)
shutil.copytree("src", "dst", ignore=shutil.ignore_patterns("l")); shutil.copytree("moved", "dst", dirs_exist_ok=True); print(sorted(os.listdir("dst")))
try:
    shutil.copyfile("copy", "copy")
except shutil.SameFileError:
    print("same")
### temporary files
import tempfile, os
with tempfile.TemporaryDirectory() as d:
    print(os.path.isdir(d)); p = os.path.join(d, "x"); open(p, "w").write("1"); print(os.listdir(d))
print(os.path.exists(d))
with tempfile.NamedTemporaryFile("w+", suffix=".txt", delete=False) as f: f.write("t"); name = f.name
print(open(name).read(), name.endswith(".txt")); os.remove(name)
with tempfile.TemporaryFile() as f: f.write(b"abc"); f.seek(0); print(f.read())
with tempfile.SpooledTemporaryFile(max_size=10) as f: f.write(b"x" * 20); f.seek(0); print(len(f.read()))
fd, name = tempfile.mkstemp(dir="."); os.write(fd, b"raw"); os.close(fd); print(open(name).read()); os.remove(name)
### low level descriptors
import os
fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644); print(os.write(fd, b"0123456789")); os.lseek(fd, 2, os.SEEK_SET); print(os.read(fd, 3))
print(os.pread(fd, 2, 8), os.pwrite(fd, b"XX", 0), os.lseek(fd, 0, os.SEEK_CUR)); os.ftruncate(fd, 5); os.fsync(fd); print(os.fstat(fd).st_size); os.close(fd)
try:
    os.write(fd, b"x")
except OSError as error:
    print(type(error).__name__)
fd = os.open("f", os.O_WRONLY | os.O_APPEND); os.write(fd, b"end"); os.close(fd); print(open("f", "rb").read())
fd = os.open("f", os.O_RDONLY)
try:
    os.write(fd, b"x")
except OSError:
    print("read only")
with os.fdopen(fd) as f: print(f.read())
### descriptors of directories
import os
os.makedirs("d/e"); fd = os.open("d", os.O_RDONLY); print(sorted(os.listdir(fd)) if os.listdir in os.supports_fd else ["e"])
f = os.open("x", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd); os.write(f, b"in d"); os.close(f); print(open("d/x").read(), os.stat("x", dir_fd=fd).st_size); os.close(fd)
### directory of work
import os
start = os.getcwd(); os.makedirs("a/b"); os.chdir("a/b"); open("here", "w").write("h"); print(os.getcwd()[len(start):]); os.chdir(".."); print(os.listdir("b"), os.path.abspath("x")[len(start):], os.path.relpath("b/here"))
os.chdir(start); print(open("a/b/here").read())
try:
    os.chdir("none")
except FileNotFoundError:
    print("none")
### ways of paths
import os.path as p
print(p.join("a", "b", "/c", "d"), p.normpath("a//b/../c/."), p.split("/a/b"), p.splitext("x.tar.gz"), p.basename("/a/"), p.dirname("/a/b"), p.commonpath(["/a/b", "/a/c"]), p.isabs("/x"), p.expanduser("~/x"))
### names with unusual characters
import os
names = ["with space", "grün", "emoji-😀", "new\nline", "quote'\"", "-dash", "a" * 200]
for n in names: open(n, "w").write(n)
print(sorted(os.listdir()) == sorted(names), all(open(n).read() == n for n in names))
for n in ["x" * 300, "nul\0"]:
    try:
        open(n, "w")
    except (OSError, ValueError) as error:
        print(type(error).__name__)
### a name without characters
try:
    open("", "w")
except OSError as error:
    print(type(error).__name__)
### permission bits
import os, stat
fd = os.open("f", os.O_CREAT | os.O_WRONLY, 0o600); os.close(fd); os.chmod("f", 0o640); print(oct(stat.S_IMODE(os.stat("f").st_mode)))
### names that are no text
import os
name = b"bad\xff\xfename"; open(name, "wb").write(b"content"); print(os.listdir(b".") == [name], [os.fsencode(n) for n in os.listdir(".")] == [name])
os.rename(name, b"other\x80"); print(open(os.listdir(".")[0], "rb").read()); os.mkdir(b"dir\xe9"); open(b"dir\xe9/f", "w").close(); print([f for _, _, f in os.walk(b".")])
### many files
import os
os.mkdir("many")
for i in range(1500): open(f"many/{i:04}", "w").write(str(i))
names = sorted(os.listdir("many")); print(len(names), len(set(names)), sum(int(open("many/" + n).read()) for n in names))
for n in names[::2]: os.remove("many/" + n)
print(len(os.listdir("many")))
### many open files
fs = [open(f"f{i}", "w+") for i in range(100)]
for i, f in enumerate(fs): f.write(str(i))
for f in fs: f.seek(0)
print(sum(int(f.read()) for f in fs)); [f.close() for f in fs]
### a large file in pieces
import hashlib
block = bytes(range(256)) * 256
with open("big", "wb") as f:
    for i in range(48): f.write(block)
h, n = hashlib.md5(), 0
with open("big", "rb") as f:
    while piece := f.read(100_003): h.update(piece); n += len(piece)
print(n, h.hexdigest()); f = open("big", "r+b"); f.seek(1_000_000); f.write(b"patched"); f.close()
f = open("big", "rb"); f.seek(999_998); print(f.read(11)); import os; print(os.path.getsize("big")); os.remove("big")
### a sparse file
import os
with open("sparse", "wb") as f: f.seek(50_000_000); f.write(b"end")
print(os.path.getsize("sparse")); f = open("sparse", "rb"); print(f.read(5), f.seek(-5, 2), f.read()); os.truncate("sparse", 3); print(open("sparse", "rb").read())
### files left open are written
f = open("left", "w"); f.write("not closed")
g = open("left2", "wb", buffering=1 << 20); g.write(b"x" * 1000)
### replacing a file safely
import os, json, tempfile
def save(path, data):
    fd, tmp = tempfile.mkstemp(dir=os.path.dirname(path) or ".")
    with os.fdopen(fd, "w") as f: json.dump(data, f); f.flush(); os.fsync(f.fileno())
    os.replace(tmp, path)
save("state.json", {"v": 1}); save("state.json", {"v": 2}); print(json.load(open("state.json")), os.listdir()); os.remove("state.json")
### lines of a file by index
import linecache, fileinput, filecmp
open("l", "w").write("a\nb\nc\n"); open("m", "w").write("a\nb\nc\n"); print(linecache.getline("l", 2), filecmp.cmp("l", "m", shallow=False))
with fileinput.input(["l", "m"]) as lines: print([(fileinput.filename(), fileinput.filelineno(), x.strip()) for x in lines][-1])
with fileinput.input("l", inplace=True) as lines:
    for x in lines: print(x.upper(), end="")
print(open("l").read())
### newlines and encodings of files
open("w", "w", newline="\r\n").write("a\nb\n"); print(open("w", "rb").read(), open("w").read(), open("w", newline="").readlines())
open("u16", "w", encoding="utf-16-le").write("€"); print(open("u16", "rb").read()); open("bad", "wb").write(b"ok\xff")
try:
    open("bad", encoding="utf-8").read()
except UnicodeDecodeError as error:
    print(error.start)
print(open("bad", errors="replace").read(), open("bad", encoding="latin-1").read(), open("w", "rb").readlines())
### the devices there are
import os
open("/dev/null", "w").write("gone"); print(open("/dev/null").read() == "", len(open("/dev/zero", "rb").read(10)), len(open("/dev/urandom", "rb").read(16)), os.path.exists(os.devnull), len(os.urandom(5)))
### importing modules of one's own
import os, sys
os.makedirs("pkg/sub"); open("pkg/__init__.py", "w").write("from .a import f\nV = 1\n"); open("pkg/a.py", "w").write("def f(): return 'f of ' + __name__\n"); open("pkg/sub/__init__.py", "w").write("from .. import V\n")
sys.dont_write_bytecode = True; sys.path.insert(0, os.getcwd()); import pkg, pkg.sub, importlib
print(pkg.f(), pkg.sub.V, os.path.basename(pkg.a.__file__))
open("mod.py", "w").write("x = 1\n"); import mod; print(mod.x)
try:
    import missing_module
except ModuleNotFoundError as error:
    print(error.name)
