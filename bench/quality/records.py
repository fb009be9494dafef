#!/usr/bin/env python3
"""bench/quality/records.py DIRECTORY

Makes records from what our dependencies say about themselves, at the versions
of Cargo.lock: sections of READMEs, changelogs and guides, and the docs of
modules and public items. Nothing of theirs is kept in this repository; the same
lock file gives the same records, byte by byte. Needs `cargo fetch` before.

Each record lies in a bundle of its crate and has a stable name, `crate/file#part`,
by which `questions.jsonl` knows it; `names.tsv` says which file that is.
"""

import hashlib
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES = """anyhow arc-swap axum base64 bstr bumpalo bytes cc chrono clap_builder
crossbeam-channel crossbeam-epoch fancy-regex filetime flate2 fuser getrandom gix hashbrown http
hyper indexmap itertools jiff log memchr memmap2 mio ndarray nix once_cell parking_lot
portable-atomic proptest pyo3 rand rayon regex regex-automata rmcp rusqlite rustix rustls schemars
semver serde serde_json socket2 tar tempfile thiserror tokio tokio-util toml_edit tower tracing
tracing-subscriber typed-path ureq url uuid walkdir wasmtime winnow zerocopy zip zstd""".split()
WORDS_MIN, WORDS_MAX = 45, 300
# So that no crate outweighs the others.
PER_CRATE_MAX = 24
ITEM = re.compile(r"\s*pub (?:const |unsafe |async |extern \"C\" )*"
                  r"(fn|struct|enum|trait|mod|type|static|macro)\s+(\w+)|\s*pub const (\w+)|\s*macro_rules!\s+(\w+)")


def main(into):
    made = 0
    for crate in CRATES:
        version, source = newest(crate)
        parts = {}
        for file in sorted(source.rglob("*.md")):
            if is_read(file.relative_to(source)):
                add(parts, crate, file.relative_to(source), sections(text_of(file)), version)
        for file in sorted((source / "src").rglob("*.rs")):
            add(parts, crate, file.relative_to(source), docs(text_of(file)), version)
        chosen = choose(parts)
        for name in chosen:
            write(into, name, *parts[name])
        made += len(chosen)
    print(f"{made} records from {len(CRATES)} crates")


def choose(parts):
    """Half of pages, if there are so many, the rest of anything; by hash, so
    that a choice stays what it is when others come or go."""
    order = sorted(parts, key=lambda name: hashlib.sha256(name.encode()).digest())
    pages = [name for name in order if ".md#" in name][:PER_CRATE_MAX // 2]
    rest = [name for name in order if name not in pages]
    return sorted([*pages, *rest][:PER_CRATE_MAX])


def newest(crate):
    """The highest version that the lock file names, and where its source lies."""
    lock = (ROOT / "Cargo.lock").read_text()
    versions = re.findall(rf'name = "{re.escape(crate)}"\nversion = "(.*)"\nsource', lock)
    number = lambda text: [int(part) for part in re.findall(r"\d+", text)[:3]]
    version = max(versions, key=number)
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    found = sorted(home.glob(f"registry/src/*/{crate}-{version}"))
    if not found:
        sys.exit(f"{crate} {version} is not there: run `cargo fetch`")
    return version, found[0]


def text_of(file):
    return file.read_text(errors="replace").replace("\r\n", "\n")


def is_read(path):
    low = str(path).lower()
    foreign = ("test", "bench", "example", "license", "contributing", "conduct", ".github", "issue", "vendor")
    return not any(word in low for word in foreign) and len(path.parts) <= 4


def sections(text):
    """Title and text of the parts between headings, outside of code."""
    title, lines, is_code, above = "Overview", [], False, ""
    for line in text.split("\n"):
        is_code ^= line.lstrip().startswith("```")
        heading = None if is_code else re.match(r"(#{1,4})\s+(.+)", line)
        if heading:
            yield f"{above}{title}", "\n".join(lines)
            name = re.sub(r"\[([^\]]*)\](\([^)]*\))?", r"\1", heading[2]).strip(" #`*")
            # "Fixed" says nothing without the version above it.
            above = above if len(heading[1]) > 2 else ""
            if re.search(r"\d+\.\d+", name) and len(heading[1]) <= 2:
                above = f"{name.split(' - ')[0].split(' (')[0]}: "
                title, lines = "Changes", []
                continue
            title, lines = name, []
        else:
            lines.append(line)
    yield f"{above}{title}", "\n".join(lines)


def docs(text):
    """The same of Rust: the head of a file by heading, and its public items."""
    lines = text.split("\n")
    head = [line.lstrip()[3:].removeprefix(" ") for line in lines if line.lstrip().startswith("//!")]
    yield from sections(shown(head))
    doc = []
    for line in lines:
        bare = line.strip()
        if bare.startswith("///"):
            doc.append(bare[3:].removeprefix(" "))
        elif not bare.startswith("#[") and doc:
            item = ITEM.match(line)
            if item:
                name = item[2] or item[3] or item[4]
                yield f"{item[1] or 'const'} {name}", shown(doc)
            doc = []


def shown(lines):
    """Docs without the lines that are hidden from readers."""
    is_code, out = False, []
    for line in lines:
        is_code ^= line.lstrip().startswith("```")
        if not (is_code and re.match(r"\s*# |\s*#$", line)):
            out.append(line)
    return "\n".join(out)


def add(parts, crate, path, found, version):
    for title, text in found:
        if re.search(r"licen[sc]e|contribut|policy", title.lower()):
            continue
        for number, piece in enumerate(pieces(text)):
            anchor = re.sub(r"[^a-z0-9_.]+", "-", title.lower()).strip("-")[:60]
            name = base = f"{crate}/{path}#{anchor}" + (f".{number + 1}" if number else "")
            again = 1
            while name in parts:
                again += 1
                name = f"{base}~{again}"
            # A README is often the head of the library, too.
            if all(piece != other[-1] for other in parts.values()):
                parts[name] = (crate, version, path, title, piece)


def pieces(text):
    """Texts of a record's length, cut between paragraphs and list items."""
    blocks = re.split(r"\n\s*\n|\n(?=[-*] )", re.sub(r"<!--.*?-->|\[!\[.*", "", text, flags=re.S))
    now, count = [], 0
    for block in [*blocks, None]:
        words = len(block.split()) if block else 0
        if block is None or count + words > WORDS_MAX:
            if WORDS_MIN <= count <= WORDS_MAX and prose("\n".join(now)):
                yield "\n\n".join(now).strip()
            now, count = [], 0
        if block:
            now.append(block)
            count += words


def prose(text):
    """Whether people wrote sentences: tables and code alone teach nothing."""
    plain = re.sub(r"```.*?(```|$)|^\s*\|.*$|^\[.*?\]:.*$|https?://\S+", "", text, flags=re.S | re.M)
    return len(re.findall(r"\b[a-z]{2,}\b", plain)) >= 35


def kind_of(title, path, text):
    low, log = title.lower(), "change" in str(path).lower() or "release" in str(path).lower()
    if log and re.search(r"\bfix|bug|panic|crash|wrong|incorrect", (title + text).lower()):
        return "Failure"
    if log or re.search(r"why|design|rationale|compar|alternativ|choice|policy|version|guarantee|stability", low):
        return "Decision"
    if re.search(r"example|usage|how|guide|pattern|using|tips|recipe", low) or text.count("```") >= 2:
        return "Pattern"
    return "Failure" if re.search(r"panic|error|pitfall|caveat|limitation|known", low) else "Insight"


def write(into, name, crate, version, path, title, text):
    kind = kind_of(title, path, text)
    what = title if str(path).endswith(".md") else f"{title} ({path.with_suffix('').name})"
    digest = hashlib.sha256(name.encode()).hexdigest()
    file = into / f"sandbox/{crate}_skunkworks/{kind.lower()}s/{digest[:12]}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    quoted = lambda text: "'" + text.replace("'", "''") + "'"
    file.write_text(f"---\ntype: {kind}\ntitle: {quoted(f'{crate}: {what}')}\n---\n{text}\n")
    with open(into / "names.tsv", "a") as names:
        names.write(f"{name}\t{file.relative_to(into)}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    place = pathlib.Path(sys.argv[1])
    place.mkdir(parents=True)
    main(place)
