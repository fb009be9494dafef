### sqlite in memory
import sqlite3
db = sqlite3.connect(":memory:")
db.executescript("create table t(id integer primary key, name text, score real); create index i on t(name);")
db.executemany("insert into t(name, score) values(?, ?)", [("ann", 1.5), ("bob", 2.5), ("cid", None)])
print(db.execute("select name, score from t where score > ? order by name desc", (1,)).fetchall(), db.execute("select count(*), avg(score) from t").fetchone())
db.row_factory = sqlite3.Row; print([dict(r) for r in db.execute("select * from t limit 1")])
try:
    db.execute("insert into t(id) values(1)")
except sqlite3.IntegrityError as error:
    print(error)
### sqlite in a file
import sqlite3, os
db = sqlite3.connect("x.db")
with db: db.execute("create table kv(k text primary key, v blob)"); db.executemany("insert into kv values(?, ?)", ((f"k{i}", b"v" * i) for i in range(500)))
try:
    with db: db.execute("insert into kv values('new', 'x')"); raise RuntimeError
except RuntimeError: pass
print(db.execute("select count(*), sum(length(v)) from kv").fetchone()); db.execute("delete from kv where length(v) > 100"); db.commit(); db.execute("vacuum"); db.close()
other = sqlite3.connect("x.db"); print(other.execute("select count(*) from kv").fetchone(), other.execute("pragma integrity_check").fetchone(), os.path.exists("x.db-journal")); other.close(); os.remove("x.db")
### sqlite functions and windows
import sqlite3
db = sqlite3.connect(":memory:"); db.create_function("twice", 1, lambda x: x * 2)
class Longest:
    def __init__(self): self.best = ""
    def step(self, v): self.best = max(self.best, v, key=len)
    def finalize(self): return self.best
db.create_aggregate("longest", 1, Longest); db.execute("create table w(g, x)"); db.executemany("insert into w values(?, ?)", [(1, "a"), (1, "ccc"), (2, "bb")])
print(db.execute("select twice(21), longest(x) from w").fetchall(), db.execute("select g, x, row_number() over (partition by g order by x desc) from w").fetchall())
print(db.execute("with recursive c(n) as (select 1 union all select n + 1 from c where n < 5) select group_concat(n) from c").fetchone(), db.execute("select json_extract('{\"a\":[1,2]}', '$.a[1]')").fetchone())
print("\n".join(db.iterdump()))
### zip archives
import zipfile, io, os
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("dir/a.txt", "hello " * 100); z.writestr(zipfile.ZipInfo("b.bin", (2020, 1, 1, 0, 0, 0)), bytes(10))
with zipfile.ZipFile("a.zip") as z:
    print(z.namelist(), z.getinfo("dir/a.txt").file_size, z.read("dir/a.txt")[:11], z.testzip()); z.extractall("out")
    with z.open("dir/a.txt") as f: print(f.read(5), f.readline()[:6])
print(open("out/dir/a.txt").read()[:5], zipfile.is_zipfile("a.zip"), os.path.getsize("out/b.bin"))
with zipfile.ZipFile("a.zip", "a") as z: z.write("out/b.bin", "added")
print(sorted(zipfile.ZipFile("a.zip").namelist())); os.remove("a.zip")
### zips that climb stay inside
import zipfile, os
with zipfile.ZipFile("evil.zip", "w") as z:
    z.writestr("../../outside", "x"); z.writestr("/abs", "y"); z.writestr("ok", "z")
os.makedirs("in/here"); zipfile.ZipFile("evil.zip").extractall("in/here")
print(sorted(os.path.relpath(os.path.join(t, f), "in") for t, _, fs in os.walk("in") for f in fs)); os.remove("evil.zip")
### tar archives
import tarfile, io, os
os.mkdir("d"); open("d/f", "w").write("content"); os.symlink("f", "d/l")
for mode in ["w", "w:gz"]:
    with tarfile.open("t.tar", mode) as t:
        t.add("d"); info = tarfile.TarInfo("made"); info.size = 4; t.addfile(info, io.BytesIO(b"data"))
    with tarfile.open("t.tar") as t:
        print(sorted(t.getnames()), t.extractfile("made").read(), t.getmember("d/l").linkname, t.getmember("d").isdir()); t.extractall("out")
    print(open("out/d/f").read(), os.readlink("out/d/l"), open("out/d/l").read())
os.remove("t.tar"); [os.remove(f"out/{n}") for n in ["made", "d/f", "d/l"]]; os.rmdir("out/d"); os.rmdir("out")
### gzip and zlib
import gzip, zlib, os
with gzip.open("f.gz", "wt") as f: f.write("line\n" * 1000)
with gzip.open("f.gz", "rt") as f: print(sum(1 for _ in f))
data = b"abc" * 1000; packed = zlib.compress(data, 9); print(len(packed) < 100, zlib.decompress(packed) == data, zlib.crc32(data), zlib.adler32(data))
d = zlib.decompressobj(); print(len(d.decompress(packed, 100)), len(d.unconsumed_tail) > 0, gzip.decompress(gzip.compress(b"x", mtime=0)))
try:
    zlib.decompress(b"junk")
except zlib.error:
    print("junk")
os.remove("f.gz")
### csv files joined
import csv
open("people.csv", "w").write("id,name\n1,Ann\n2,Bob\n3,Cid\n"); open("orders.csv", "w").write("person,total\n1,10.5\n3,2\n1,4.25\n")
names = {r["id"]: r["name"] for r in csv.DictReader(open("people.csv", newline=""))}; sums = {}
for r in csv.DictReader(open("orders.csv", newline="")): sums[names[r["person"]]] = sums.get(names[r["person"]], 0) + float(r["total"])
with open("out.csv", "w", newline="") as f:
    w = csv.DictWriter(f, ["name", "total"]); w.writeheader(); w.writerows({"name": n, "total": t} for n, t in sorted(sums.items()))
print(open("out.csv", newline="").read())
### json lines to a report
import json, collections
with open("events.jsonl", "w") as f:
    for i in range(200): f.write(json.dumps({"user": f"u{i % 7}", "ms": i * 37 % 101, "ok": i % 5 != 0}) + "\n")
by = collections.defaultdict(list)
for line in open("events.jsonl"): e = json.loads(line); by[e["user"]].append(e)
for user, es in sorted(by.items()): print(f"{user:<4}{len(es):>5}{sum(e['ms'] for e in es) / len(es):>8.2f}{sum(e['ok'] for e in es) / len(es):>8.1%}")
### words counted
import re, collections
text = "It was the best of times, it was the worst of times, it was the age of wisdom"
open("book", "w").write(text * 50); words = re.findall(r"\w+", open("book").read().lower())
for word, n in sorted(collections.Counter(words).items(), key=lambda p: (-p[1], p[0]))[:5]: print(f"{word:>8} {n}")
### a log is rotated
import logging, logging.handlers, os
h = logging.handlers.RotatingFileHandler("app.log", maxBytes=200, backupCount=2); h.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
log = logging.getLogger("app"); log.addHandler(h); log.setLevel("INFO"); log.propagate = False
for i in range(30): log.info("message %03d", i)
h.close(); print(sorted(os.listdir()), open("app.log").read().splitlines()[-1])
### pickle in a file
import pickle, os
with open("p", "wb") as f:
    for x in [{"a": 1}, [1, 2], "s"]: pickle.dump(x, f)
with open("p", "rb") as f: print([pickle.load(f) for _ in range(3)], f.read())
os.remove("p")
### xml file rewritten
import xml.etree.ElementTree as ET
open("x.xml", "w").write("<list><p id='1'><n>a</n></p><p id='2'><n>b</n></p></list>"); tree = ET.parse("x.xml")
for p in tree.getroot().iter("p"): p.set("id", str(int(p.get("id")) * 10)); p.find("n").text += "!"
tree.write("y.xml", encoding="utf-8", xml_declaration=True); print(open("y.xml").read())
