### classes and inheritance
class Shape:
    count = 0
    def __init__(self, name):
        self.name = name
        Shape.count += 1
    def area(self):
        raise NotImplementedError
    def __repr__(self):
        return f"{type(self).__name__}({self.name!r}, {self.area():.2f})"
class Circle(Shape):
    def __init__(self, r):
        super().__init__("circle")
        self.r = r
    def area(self):
        return 3.14159 * self.r ** 2
class Square(Shape):
    def __init__(self, a):
        super().__init__("square")
        self.a = a
    def area(self):
        return self.a ** 2
print(sorted([Circle(1), Square(3), Circle(0.5)], key=lambda s: s.area()), Shape.count)
print([c.__name__ for c in Circle.__mro__], isinstance(Circle(1), Shape), hasattr(Square(1), "r"))
### operators of a class
import functools
@functools.total_ordering
class Version:
    def __init__(self, text):
        self.parts = tuple(map(int, text.split(".")))
    def __eq__(self, other):
        return self.parts == other.parts
    def __lt__(self, other):
        return self.parts < other.parts
    def __hash__(self):
        return hash(self.parts)
    def __getitem__(self, i):
        return self.parts[i]
    def __len__(self):
        return len(self.parts)
    def __add__(self, n):
        return Version(".".join(map(str, self.parts[:-1] + (self.parts[-1] + n,))))
    def __str__(self):
        return ".".join(map(str, self.parts))
a, b = Version("1.10.2"), Version("1.9")
print(a > b, a >= b, a == Version("1.10.2"), len({a, Version("1.10.2")}), str(a + 3), list(b), max(a, b)[1])
### properties and descriptors
class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, obj, owner=None):
        return getattr(obj, self.name, 0)
    def __set__(self, obj, value):
        if value < 0:
            raise ValueError(f"{self.name[1:]} must not be negative")
        setattr(obj, self.name, value)
class Box:
    w, h = Positive(), Positive()
    @property
    def area(self):
        return self.w * self.h
    @area.setter
    def area(self, value):
        self.w, self.h = value, 1
b = Box(); b.w, b.h = 2, 3; print(b.area); b.area = 7; print(b.w, b.h)
try:
    b.w = -1
except ValueError as error:
    print(error)
### metaclasses and registries
class Registry(type):
    known = {}
    def __new__(mcs, name, bases, space, **extra):
        cls = super().__new__(mcs, name, bases, space)
        mcs.known[name] = (cls, extra)
        return cls
    def __init__(cls, name, bases, space, **extra):
        super().__init__(name, bases, space)
class A(metaclass=Registry, tag=1): pass
class B(A, tag=2): pass
print({k: v[1] for k, v in Registry.known.items()})
class Base:
    subs = []
    def __init_subclass__(cls, **kw):
        cls.subs.append(cls.__name__)
class X(Base): pass
class Y(Base): pass
print(Base.subs, type("Made", (Base,), {"v": 3})().v)
### data classes
from dataclasses import dataclass, field, asdict, replace, astuple, FrozenInstanceError
@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False)
    tags: list = field(default_factory=list, compare=False)
    def __post_init__(self):
        self.name = self.name.strip()
@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0
print(sorted([Item(3, " tea "), Item(1, "salt", ["white"])]), asdict(Item(2, "x")), astuple(Point(1)))
p = Point(1, 2); print(replace(p, y=5), hash(p) == hash(Point(1, 2)))
try:
    p.x = 3
except FrozenInstanceError:
    print("frozen")
### enumerations
import enum
class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1
class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9
print(list(Colour), Colour(2), Colour["RED"], Colour.CRIMSON is Colour.RED, Colour.RED.name)
print((Perm.R | Perm.X).value, Perm.W in (Perm.R | Perm.W), Level.HIGH > 3, sorted([Level.HIGH, Level.LOW]) == [1, 9])
try:
    Colour(7)
except ValueError as error:
    print(error)
### generators and pipelines
def numbers():
    n = 0
    while True:
        got = yield n
        n = got if got is not None else n + 1
def take(n, it):
    for _, x in zip(range(n), it):
        yield x
def flatten(x):
    for item in x:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item
g = numbers(); print(next(g), next(g), g.send(10), next(g)); g.close()
print(list(take(5, (x * x for x in numbers() if x % 2))), list(flatten([1, [2, [3, []], 4]])))
def closing():
    try:
        yield 1
    finally:
        print("closed")
for x in closing():
    break
### closures and decorators
import functools
def counted(f):
    @functools.wraps(f)
    def inner(*args, **kw):
        inner.calls += 1
        return f(*args, **kw)
    inner.calls = 0
    return inner
def repeat(n):
    def deco(f):
        return lambda *a: [f(*a) for _ in range(n)]
    return deco
@counted
def add(a, b=1, *rest, c, **more):
    "adds"
    return a + b + sum(rest) + c + sum(more.values())
print(add(1, c=2), add(1, 2, 3, 4, c=5, d=6), add.calls, add.__name__, add.__doc__)
@repeat(3)
def hi(x):
    return x * 2
print(hi("a"))
def counter():
    n = 0
    def inc():
        nonlocal n
        n += 1
        return n
    return inc
c = counter(); c(); print(c(), [f(2) for f in [lambda x, k=k: x ** k for k in range(4)]])
### pattern matching
def what(x):
    match x:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return f"large {n}"
        case [first, *rest]:
            return f"list {first} {rest}"
        case {"kind": "circle", "r": r, **more}:
            return f"circle {r} {more}"
        case str() as s:
            return f"text {s}"
        case (_, _):
            return "never"
        case None:
            return "nothing"
        case _:
            return "other"
for x in [0, 101, 50, [1, 2, 3], {"kind": "circle", "r": 2, "c": "red"}, "x", None, (1, 2), {}]:
    print(what(x))
### context managers
import contextlib
class Res:
    def __init__(self, name): self.name = name
    def __enter__(self): print("open", self.name); return self
    def __exit__(self, kind, value, tb):
        print("close", self.name, kind.__name__ if kind else None)
        return kind is KeyError
with Res("a"), Res("b") as b:
    raise KeyError("x")
@contextlib.contextmanager
def tag(name):
    print(f"<{name}>")
    try:
        yield name
    finally:
        print(f"</{name}>")
with tag("p"), contextlib.suppress(ZeroDivisionError):
    1 / 0
with contextlib.ExitStack() as stack:
    for n in "xyz":
        stack.enter_context(tag(n))
    stack.callback(print, "callback")
### exceptions with causes
class AppError(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code
def inner():
    try:
        {}["missing"]
    except KeyError as error:
        raise AppError(7) from error
try:
    inner()
except AppError as error:
    print(error, error.code, repr(error.__cause__), error.__context__ is error.__cause__)
def flow(x):
    try:
        if x: raise ValueError(x)
    except (TypeError, ValueError) as e:
        return f"caught {e}"
    else:
        return "fine"
    finally:
        print("finally")
print(flow(0), flow(1))
### groups of exceptions
def fail():
    raise ExceptionGroup("several", [ValueError("a"), TypeError("b"), ExceptionGroup("inner", [ValueError("c")])])
try:
    fail()
except* ValueError as group:
    print("values", [str(e) for e in group.exceptions if not isinstance(e, ExceptionGroup)])
except* TypeError as group:
    print("types", len(group.exceptions))
e = ValueError("x"); e.add_note("a note"); print(e.__notes__)
### tracebacks as text
import traceback, sys
def outer():
    return deeper(1)
def deeper(x):
    return x / 0
try:
    outer()
except ZeroDivisionError:
    frames = traceback.extract_tb(sys.exc_info()[2])
    print([(f.name, f.lineno) for f in frames])
    print(traceback.format_exc().splitlines()[0], traceback.format_exc().splitlines()[-1])
### an uncaught exception ends with 1
print("before")
raise RuntimeError("out")
### a syntax error ends with 1
print("never"
### exit with a number
import sys, atexit
atexit.register(print, "at exit")
print("x")
sys.exit(42)
### exit with a text
import sys
try:
    sys.exit("message")
finally:
    print("finally")
### exit by an exception in main
def main():
    raise SystemExit(3)
if __name__ == "__main__":
    main()
### comprehensions and unpacking
print([x * y for x in range(4) for y in range(x) if (x + y) % 2], {k: v for k, v in zip("abc", range(3))}, {c for c in "hello"} == set("helo"))
first, *middle, last = range(6); print(first, middle, last)
(a, b), c = (1, 2), 3; print(a, b, c, [*range(3), *"ab"], {**{"a": 1}, "b": 2})
print([(i, v) for i, v in enumerate("ab", 1)], any(x > 2 for x in [1, 2]), all([]), list(zip("ab", [1, 2, 3])))
if (n := len("abc")) > 2: print(n)
m = [[1, 2], [3, 4]]; print([list(r) for r in zip(*m)], [row[::-1] for row in m], sum(m, []))
### sorting is stable
people = [("bob", 3), ("ann", 3), ("cid", 1)]
print(sorted(people, key=lambda p: p[1]), sorted(people, key=lambda p: (-p[1], p[0])), sorted("bAc", key=str.lower, reverse=True))
people.sort(); print(people, min(people, key=lambda p: p[1]), max(range(5), key=lambda x: -abs(x - 2)))
### slices and sets
s = list(range(10)); print(s[2:8:3], s[::-2], s[-3:], s[:0]); s[2:5] = "x"; del s[::3]; print(s)
a, b = {1, 2, 3}, {2, 3, 4}; print(a & b, a | b, a - b, a ^ b, a <= {1, 2, 3, 4}, frozenset(a) == a)
d = dict(a=1); d |= {"b": 2}; print(d, d.setdefault("c", []), d.pop("a"), list(d.items()), dict.fromkeys("xy", 0))
### typing at run time
from typing import get_type_hints, NamedTuple, TypedDict, Optional, Protocol, runtime_checkable, Generic, TypeVar
class P(NamedTuple):
    x: int
    y: int = 2
class D(TypedDict, total=False):
    a: int
@runtime_checkable
class HasLen(Protocol):
    def __len__(self) -> int: ...
T = TypeVar("T")
class Stack(Generic[T]):
    def __init__(self): self.items: list[T] = []
def f(a: int, b: Optional[str] = None) -> list[int]: ...
print(P(1), P(1)._replace(y=5)._asdict(), D(a=1), isinstance([], HasLen), isinstance(3, HasLen))
print(sorted(get_type_hints(f)), Stack[int]().items, f.__annotations__["a"])
### asking about code
import inspect, ast
def f(a, b=2, *args, key, **kw): pass
print(inspect.signature(f), list(inspect.signature(f).parameters), inspect.isfunction(f))
tree = ast.parse("x = 1 + y * 2\nfor i in z: pass")
print([type(n).__name__ for n in tree.body], sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}), ast.unparse(tree))
print(ast.literal_eval("{'a': [1, (2,)]}"), eval("a + 1", {"a": 2}))
space = {}; exec(compile("def g(): return 5", "<made>", "exec"), space); print(space["g"]())
### copies deep and shallow
import copy
a = [1, [2, 3], {"k": [4]}]; b, c = copy.copy(a), copy.deepcopy(a)
a[1].append(9); a[2]["k"].append(8); print(b[1], c[1], b[2], c[2])
x = []; x.append(x); y = copy.deepcopy(x); print(y[0] is y, repr(x))
### weak references and collection
import weakref, gc
class Node: pass
n = Node(); r = weakref.ref(n); d = weakref.WeakValueDictionary(n=n)
n.me = n; del n; gc.collect(); print(r(), len(d))
weakref.finalize(f := Node(), print, "finalised"); del f
### recursion has a limit
import sys
def down(n):
    return 1 + down(n - 1) if n else 0
print(down(500))
try:
    down(10 ** 6)
except RecursionError:
    print("too deep")
### text of many lines to standard error
import sys
print("out")
print("err", file=sys.stderr)
sys.stdout.write("no newline"); sys.stdout.flush()
### warnings and logging
import warnings, logging, sys
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    warnings.warn("old", DeprecationWarning)
    print(len(seen), seen[0].category.__name__)
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
log = logging.getLogger("a.b"); log.info("hi %d", 5); log.debug("no")
try:
    1 / 0
except ZeroDivisionError:
    log.error("failed", exc_info=False)
