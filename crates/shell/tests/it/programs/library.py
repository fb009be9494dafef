### collections
from collections import Counter, defaultdict, deque, OrderedDict, namedtuple, ChainMap
c = Counter("mississippi"); print(c.most_common(2), c["z"], c - Counter("miss"), sorted(c.elements())[:3])
d = defaultdict(list)
for k, v in [("a", 1), ("b", 2), ("a", 3)]: d[k].append(v)
print(dict(d)); q = deque([1, 2, 3], maxlen=3); q.append(4); q.rotate(1); print(q, q.popleft())
o = OrderedDict(a=1, b=2); o.move_to_end("a"); print(list(o)); P = namedtuple("P", "x y"); print(P(1, 2)._asdict(), ChainMap({"a": 1}, {"a": 2, "b": 3})["b"])
### itertools
import itertools as it
print(list(it.chain([1], [2, 3])), list(it.islice(it.count(5, 2), 3)), list(it.accumulate([1, 2, 3], lambda a, b: a * b)))
print(["".join(p) for p in it.permutations("abc", 2)], list(it.combinations(range(4), 2)), len(list(it.product("ab", repeat=3))))
print([(k, list(g)) for k, g in it.groupby("aabbba")], list(it.zip_longest("ab", "c", fillvalue="-")), list(it.pairwise([1, 2, 3])))
print(list(it.takewhile(lambda x: x < 3, it.count())), list(it.dropwhile(lambda x: x < 3, range(5))), list(it.starmap(pow, [(2, 3)])), list(it.compress("abc", [1, 0, 1])))
a, b = it.tee([1, 2]); print(list(a), list(b), list(it.filterfalse(bool, [0, 1, ""])))
### functools
import functools
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(200), fib.cache_info().misses, functools.reduce(lambda a, b: a * b, range(1, 6)), functools.partial(int, base=2)("101"))
@functools.singledispatch
def show(x): return "any"
@show.register
def _(x: int): return "int"
@show.register(list)
def _(x): return "list"
print(show(1), show([]), show("s"), sorted([3, 1], key=functools.cmp_to_key(lambda a, b: b - a)))
class C:
    @functools.cached_property
    def v(self): print("once"); return 1
c = C(); print(c.v, c.v)
### heaps and bisection
import heapq, bisect
h = [5, 3, 8, 1]; heapq.heapify(h); heapq.heappush(h, 0); print([heapq.heappop(h) for _ in range(5)])
print(heapq.nlargest(2, [1, 9, 3]), heapq.nsmallest(2, "zebra"), list(heapq.merge([1, 4], [2, 3])), heapq.heappushpop([1, 2], 0))
s = [1, 3, 3, 7]; print(bisect.bisect_left(s, 3), bisect.bisect_right(s, 3)); bisect.insort(s, 5); print(s)
def grade(score): return "FDCBA"[bisect.bisect([60, 70, 80, 90], score)]
print([grade(x) for x in [33, 99, 77, 70, 89]])
### shortest ways in a graph
import heapq
graph = {"a": {"b": 7, "c": 9, "f": 14}, "b": {"c": 10, "d": 15}, "c": {"d": 11, "f": 2}, "d": {"e": 6}, "f": {"e": 9}, "e": {}}
def shortest(start):
    best, queue = {}, [(0, start, None)]
    while queue:
        cost, node, before = heapq.heappop(queue)
        if node in best: continue
        best[node] = (cost, before)
        for to, w in graph[node].items():
            heapq.heappush(queue, (cost + w, to, node))
    return best
print(shortest("a"))
import graphlib
print(list(graphlib.TopologicalSorter({"d": {"b", "c"}, "b": {"a"}, "c": {"b"}}).static_order()))
### arguments of a command
import argparse
p = argparse.ArgumentParser(prog="tool", description="does things")
p.add_argument("files", nargs="+"); p.add_argument("-n", "--number", type=int, default=3); p.add_argument("-v", action="count", default=0)
p.add_argument("--kind", choices=["a", "b"])
print(p.parse_args(["x", "y", "-n", "5", "-vv", "--kind=b"]))
sub = argparse.ArgumentParser(prog="t"); s = sub.add_subparsers(dest="cmd"); s.add_parser("go").add_argument("where")
print(sub.parse_args(["go", "home"]).where)
### wrong arguments end with 2
import argparse
p = argparse.ArgumentParser(prog="tool")
p.add_argument("-n", type=int)
print("start", flush=True)
p.parse_args(["-n", "x"])
### streams in memory
import io
s = io.StringIO("one\ntwo\r\nthree"); print(s.readline(), s.read(3), s.tell(), list(s), s.seek(0), s.getvalue()[:3])
b = io.BytesIO(); b.write(b"abc"); b.seek(1); b.write(b"XY!"); print(b.getvalue(), b.getbuffer().nbytes)
t = io.TextIOWrapper(io.BytesIO("grün\n".encode("latin-1")), encoding="latin-1"); print(t.read(), end="")
w = io.TextIOWrapper(raw := io.BytesIO(), newline="\r\n", write_through=True); w.write("a\nb\n"); print(raw.getvalue())
r = io.BufferedReader(io.BytesIO(b"0123456789"), 4); print(r.peek(2)[:2], r.read(3), r.read1(2))
### standard input
import sys
print(repr(sys.stdin.readline()))
for i, line in enumerate(sys.stdin):
    print(i, line.strip()[::-1])
print(repr(sys.stdin.read()))
### standard input as bytes and by input
import sys
print(input("prompt? "))
data = sys.stdin.buffer.read()
print(len(data), data.upper())
try:
    input()
except EOFError:
    print("end of input")
### asyncio gathers and waits
import asyncio
async def work(name, delay):
    await asyncio.sleep(delay)
    print("done", name)
    return name.upper()
async def main():
    print(await asyncio.gather(work("b", 0.02), work("a", 0.01)))
    task = asyncio.create_task(work("never", 50)); await asyncio.sleep(0); task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")
    try:
        await asyncio.wait_for(asyncio.sleep(50), 0.01)
    except asyncio.TimeoutError:
        print("timeout")
asyncio.run(main())
### asyncio queues and locks
import asyncio
async def producer(q):
    for i in range(5):
        await q.put(i)
    await q.put(None)
async def consumer(q, out):
    while (item := await q.get()) is not None:
        out.append(item * item)
async def numbers():
    for i in range(3):
        yield i
        await asyncio.sleep(0)
async def main():
    q, out = asyncio.Queue(2), []
    await asyncio.gather(producer(q), consumer(q, out))
    print(out, [x async for x in numbers()])
    lock = asyncio.Lock()
    async with lock:
        print(lock.locked())
    async with asyncio.TaskGroup() as tg:
        t = tg.create_task(asyncio.sleep(0, "value"))
    print(t.result())
asyncio.run(main())
### pickles
import pickle, copyreg
class P:
    def __init__(self, x): self.x = x
    def __reduce__(self): return (P, (self.x + 1,))
data = {"a": [1, (2, 3)], "s": {4}, "b": b"x", "n": None, "f": 1.5}
print(pickle.loads(pickle.dumps(data)) == data, pickle.loads(pickle.dumps(P(1))).x)
for protocol in range(6):
    assert pickle.loads(pickle.dumps(data, protocol)) == data
try:
    pickle.dumps(lambda: 0)
except Exception:
    print("no lambda")
### identifiers and secrets
import uuid, secrets
print(uuid.uuid5(uuid.NAMESPACE_DNS, "example.org"), uuid.UUID(int=5), uuid.uuid4() != uuid.uuid4(), uuid.uuid4().version)
print(len(secrets.token_hex(8)), secrets.token_bytes(4) != secrets.token_bytes(4), secrets.choice([1]) == 1)
### networks as numbers
import ipaddress
n = ipaddress.ip_network("192.168.0.0/29")
print([str(h) for h in n.hosts()], n.netmask, ipaddress.ip_address("192.168.0.3") in n, ipaddress.ip_address("::1").is_loopback)
print(list(ipaddress.ip_network("10.0.0.0/30").subnets(new_prefix=31)), ipaddress.collapse_addresses([ipaddress.ip_network("10.0.0.0/25"), ipaddress.ip_network("10.0.0.128/25")]).__next__())
### mail messages
from email.message import EmailMessage
from email import message_from_string, policy
m = EmailMessage(); m["Subject"] = "Grüße"; m["To"] = "a@example.org"; m.set_content("Hällo\n")
parsed = message_from_string(m.as_string(), policy=policy.default)
print(parsed["subject"], parsed["to"], parsed.get_content().strip(), parsed.get_content_type())
### contextvars and enumerating modules
import contextvars, sys, types
v = contextvars.ContextVar("v", default=1)
def inner(): v.set(5); return v.get()
print(contextvars.copy_context().run(inner), v.get())
print("json" not in dir(), sys.version_info.major, sys.byteorder, types.SimpleNamespace(a=1))
mod = types.ModuleType("made"); mod.x = 3; sys.modules["made"] = mod
import made
print(made.x)
### colours and quoted text
import colorsys, quopri
print([round(x, 3) for x in colorsys.rgb_to_hsv(0.2, 0.4, 0.4)], quopri.encodestring("ä=b".encode()), quopri.decodestring(b"=C3=A4").decode())
### queues and threads that only look
import queue, threading
q = queue.PriorityQueue()
for x in [3, 1, 2]: q.put(x)
print([q.get() for _ in range(3)], q.empty())
lock = threading.Lock()
with lock: print(lock.locked(), threading.current_thread().name, threading.active_count())
local = threading.local(); local.x = 1; print(local.x)
### life and other grids
def step(cells):
    from collections import Counter
    near = Counter((x + dx, y + dy) for x, y in cells for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0))
    return {c for c, n in near.items() if n == 3 or (n == 2 and c in cells)}
cells = {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}
for _ in range(40): cells = step(cells)
print(sorted(cells))
### eight queens
def queens(n, row=0, cols=(), d1=(), d2=()):
    if row == n: return 1
    return sum(queens(n, row + 1, cols + (c,), d1 + (row + c,), d2 + (row - c,)) for c in range(n) if c not in cols and row + c not in d1 and row - c not in d2)
print(queens(6))
### a small interpreter
import re, operator
OPS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
def calc(text):
    out, ops, prec = [], [], {"+": 1, "-": 1, "*": 2, "/": 2}
    def apply():
        b, a = out.pop(), out.pop(); out.append(OPS[ops.pop()](a, b))
    for t in re.findall(r"\d+\.?\d*|[-+*/()]", text):
        if t[0].isdigit(): out.append(float(t))
        elif t == "(": ops.append(t)
        elif t == ")":
            while ops[-1] != "(": apply()
            ops.pop()
        else:
            while ops and ops[-1] != "(" and prec[ops[-1]] >= prec[t]: apply()
            ops.append(t)
    while ops: apply()
    return out[0]
print([calc(x) for x in ["1+2*3", "(1+2)*3", "10/4-1", "2*(3+(4-1))*2"]])
