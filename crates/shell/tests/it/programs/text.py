### json round trip
import json
data = {"name": "grün", "list": [1, 2.5, None, True], "nested": {"a": [{"b": []}]}}
text = json.dumps(data, sort_keys=True, ensure_ascii=False)
print(text)
print(json.loads(text) == data)
print(json.dumps(data, indent=2, sort_keys=True))
### json errors say where
import json
for text in ['{"a": }', '[1, 2', '{"a" 1}', 'nul', '"\\x"']:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        print(error.lineno, error.colno, error.pos)
### json with a default and hooks
import json, decimal, datetime
def plain(value):
    return str(value)
print(json.dumps({"d": decimal.Decimal("1.10"), "t": datetime.date(2024, 2, 29)}, default=plain))
print(json.loads('{"x": 1.10, "y": 2}', parse_float=decimal.Decimal))
print(json.loads('{"b": 1, "a": 2}', object_pairs_hook=list))
### csv to totals
import csv, io, collections
rows = "region,item,amount\nnorth,tea,3\nsouth,tea,4\nnorth,\"coffee, ground\",5\n"
totals = collections.Counter()
for row in csv.DictReader(io.StringIO(rows)):
    totals[row["region"]] += int(row["amount"])
    print(row["item"])
print(sorted(totals.items()))
### csv quoting
import csv, sys
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["plain", "with,comma", 'with "quotes"', "two\nlines", "", None, 1.5])
out = csv.writer(sys.stdout, delimiter=";", quoting=csv.QUOTE_ALL, lineterminator="\n")
out.writerow(["a", "b;c", 3])
print(list(csv.reader(["a\tb c\td"], delimiter="\t")))
### csv sniffs a dialect
import csv
dialect = csv.Sniffer().sniff("a;b;c\n1;2;3\n4;5;6\n")
print(dialect.delimiter)
print(csv.Sniffer().has_header("name;age\nann;31\nbob;42\n"))
### regular expressions with groups
import re
line = '127.0.0.1 - - [10/Oct/2000:13:55:36] "GET /a.html HTTP/1.0" 200 2326'
m = re.match(r'(?P<ip>\S+) .*\[(?P<when>[^\]]+)\] "(?P<verb>\w+) (?P<path>\S+)[^"]*" (?P<status>\d+)', line)
print(m.groupdict(), m.span("path"))
print(re.findall(r"\b(\w)(\w*)\b", "some few words"))
print(re.sub(r"(\w+) (\w+)", r"\2 \1", "hello world, good day"))
### regular expressions look around
import re
print(re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", "1234567890"))
print(re.split(r"[;,]\s*", "a, b;c,d"))
print(re.findall(r"(?i)straße|ÄPFEL", "Straße äpfel"))
print(re.sub(r"[aeiou]", lambda m: m.group().upper(), "functional"))
print(re.fullmatch(r"(a|b)*c?", "ababc").group(1))
pattern = re.compile(r"""
    (\d+)   # whole
    \.?     # maybe a point
    (\d*)   # rest
""", re.VERBOSE)
print([m.groups() for m in pattern.finditer("3.14 42 7.")])
### string formatting of numbers
for spec in ["d", "5d", "<5d", "^5d", "05d", "+d", ",d", "_d", "x", "#x", "b", "o", "e", ".3f", "%", "g"]:
    print(spec, format(42, spec))
for spec in [".2f", "10.3f", "+.1e", ".0f", "g", ".3g", ",.2f", "%"]:
    print(spec, format(1234.5678, spec))
### string formatting of texts
name, width = "Ann", 10
print(f"{name!r:>{width}}|{name:*^{width}}|{name:.2}")
print("{0} {1} {0} {key}".format("a", "b", key="c"))
print("%s %5.2f %-6s| %05d %x %%" % ("s", 3.14159, "left", 42, 255))
print(f"{1 + 1 = } {'nested ' + f'{name}'}")
print("{:{}{}}".format("x", ">", 5), "{[1]} {.real}".format([1, 2], 3))
### text wrapping
import textwrap
text = "The quick brown fox jumps over the lazy dog. " * 3
print(textwrap.fill(text, 30))
print(textwrap.shorten(text, 25))
print(textwrap.dedent("    a\n      b\n    c\n"))
print(textwrap.indent("a\n\nb\n", "> "))
### text methods
s = "Hello, World"
print(s.lower(), s.upper(), s.swapcase(), s.title(), s.casefold())
print(s.find("o"), s.rfind("o"), s.index("W"), s.count("l"), s.partition(", "))
print("a-b-c".split("-", 1), "a-b-c".rsplit("-", 1), " x ".strip(), "xxaxx".strip("x"))
print("prefix-rest".removeprefix("prefix-"), "a.txt".removesuffix(".txt"))
print("1\t2".expandtabs(4), "7".zfill(3), "ab".center(6, "*"), "ß".upper(), "a\r\nb\nc".splitlines())
print("abc".translate(str.maketrans("abc", "xyz")), "abc".isalpha(), "1²".isdigit(), "".join(reversed("abc")))
### unicode names and normal forms
import unicodedata
for c in "é€𝄞ﬁ":
    print(hex(ord(c)), unicodedata.name(c), unicodedata.category(c), len(c.encode()))
print(unicodedata.normalize("NFD", "é") == "e\u0301", unicodedata.normalize("NFKC", "ﬁ"))
print(sorted(["zebra", "Äpfel", "apfel", "éclair"], key=lambda s: unicodedata.normalize("NFD", s).casefold()))
### bytes and encodings
text = "naïve €"
for encoding in ["utf-8", "utf-16-le", "latin-1", "cp1252", "utf-32-be"]:
    try:
        print(encoding, text.encode(encoding))
    except UnicodeEncodeError as error:
        print(encoding, error.reason, error.start)
print(b"\xff\xfe".decode("utf-8", "replace"), b"a\xffb".decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape"))
print("a€".encode("ascii", "xmlcharrefreplace"), "a€".encode("ascii", "backslashreplace"))
### base64 and hex
import base64, binascii
data = bytes(range(0, 256, 17))
print(base64.b64encode(data), base64.urlsafe_b64encode(b"\xfb\xff"), base64.b32encode(b"hi"), base64.b85encode(b"hello"))
print(base64.b64decode("aGVsbG8="), data.hex(" ", 2), bytes.fromhex("00 ff"), binascii.crc32(b"hello"))
try:
    base64.b64decode("a")
except binascii.Error:
    print("bad padding")
### difference of texts
import difflib
a, b = "one\ntwo\nthree\n".splitlines(True), "one\n2\nthree\nfour\n".splitlines(True)
print("".join(difflib.unified_diff(a, b, "old", "new")))
print(difflib.get_close_matches("appel", ["ape", "apple", "peach"]))
print(round(difflib.SequenceMatcher(None, "abcd", "bcde").ratio(), 3))
### templates and quoting
import string, shlex, html
print(string.Template("$who likes ${what} for $$5").substitute(who="tim", what="tea"))
print(string.Template("$a $b").safe_substitute(a=1))
print(shlex.split("a 'b c' \"d e\" f\\ g"), shlex.quote("it's"), shlex.join(["a b", "c"]))
print(html.escape("<a href=\"x\">&"), html.unescape("&lt;&eacute;&#8364;"))
print(string.ascii_lowercase, string.punctuation)
### pretty printing
import pprint
data = {"numbers": list(range(30)), "words": ["alpha", "beta", "gamma"] * 4, "nested": {"deep": {"deeper": (1, 2)}}}
pprint.pprint(data, width=60)
print(pprint.pformat([1, [2, [3, [4]]]], depth=2))
### addresses of the web
from urllib.parse import urlparse, parse_qs, urlencode, quote, unquote, urljoin
u = urlparse("https://user@example.org:8080/a/b;p?q=1&q=2&r=%20x#frag")
print(u.hostname, u.port, u.path, u.params, parse_qs(u.query), u.fragment)
print(urlencode({"a": "x y", "b": ["1", "2"]}, doseq=True), quote("/ä b"), unquote("%C3%A4"))
print(urljoin("http://h/a/b/c", "../d"))
### xml in and out
import xml.etree.ElementTree as ET
root = ET.fromstring("<r><i n='1'>one</i><i n='2'>two<b/></i><!-- c --></r>")
print([(i.get("n"), i.text, len(i)) for i in root.findall("i")])
ET.SubElement(root, "new", {"k": "v & w"}).text = "<text>"
print(ET.tostring(root, encoding="unicode"))
try:
    ET.fromstring("<a><b></a>")
except ET.ParseError as error:
    print(error.position)
### toml and ini
import tomllib, configparser
print(tomllib.loads('title = "x"\n[a.b]\nn = 1_000\nf = [1.5, 2]\nd = 2024-01-02\n'))
ini = configparser.ConfigParser()
ini.read_string("[main]\nhost = h\nurl = http://%(host)s/\n[other]\nflag = yes\n")
print(ini["main"]["url"], ini.getboolean("other", "flag"), ini.sections())
### html parser
from html.parser import HTMLParser
class Links(HTMLParser):
    def handle_starttag(self, tag, attrs):
        print("start", tag, attrs)
    def handle_data(self, data):
        if data.strip():
            print("data", data.strip())
Links().feed("<p>Hi <a href='x?a=1&amp;b=2'>there</a><br/></p>")
