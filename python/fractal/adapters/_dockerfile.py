"""A Dockerfile as steps that can be carried out in a clone of this machine.

What it stands on (`FROM`) is the machine itself. Only reading is done here:
the result is data, and what cannot be carried out is refused with its line.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field

__all__ = ["Copy", "Image", "Refused", "Run", "read"]


class Refused(ValueError):
    """Something that has no meaning in a clone."""


@dataclass(frozen=True)
class Run:
    """A program to run, or a script for `sh`."""

    words: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    user: str | None


@dataclass(frozen=True)
class Copy:
    """Files beside the Dockerfile to bring in; a directory's content goes into
    what it is brought to."""

    sources: tuple[str, ...]
    to: str
    owner: str | None = None
    mode: str | None = None

    @property
    def is_into(self) -> bool:
        """Whether `to` is a directory for what is brought."""
        return self.to.endswith("/") or len(self.sources) > 1


@dataclass
class Image:
    """What a Dockerfile makes: steps, and how programs are run afterwards."""

    steps: list[Run | Copy] = field(default_factory=list)
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    user: str | None = None


_SAYS_NOTHING_HERE = {
    "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"
}  # fmt: skip
_VARIABLE = re.compile(r"\\\$|\$(\w+)|\$\{(\w+)(?::([-+])([^}]*))?\}")


def read(text: str) -> Image:
    """The steps of a Dockerfile of one stage."""
    image = Image()
    args: dict[str, str] = {}
    stages = 0
    for number, keyword, value in _instructions(text):
        try:
            if keyword == "FROM":
                stages += 1
                if stages > 1:
                    raise Refused("a second stage")
            elif keyword == "ARG":
                name, _, default = value.partition("=")
                args[name] = _expanded(_unquoted(default), {**args, **image.env})
            elif keyword not in _SAYS_NOTHING_HERE:
                _add(image, keyword, value, args)
        except ValueError as error:
            raise Refused(
                f"line {number}: {keyword} cannot be carried out in a clone: {error}"
            ) from error
    return image


def _add(image: Image, keyword: str, value: str, args: dict[str, str]) -> None:
    known = {**args, **image.env}
    if keyword == "RUN":
        image.steps.append(_run(image, value, known))
    elif keyword in ("COPY", "ADD"):
        image.steps.append(_copy(image, keyword, value, known))
    elif keyword == "ENV":
        image.env.update(_pairs(value, known))
    elif keyword == "WORKDIR":
        image.workdir = posixpath.normpath(
            posixpath.join(image.workdir, _expanded(_unquoted(value), known))
        )
        image.steps.append(Run(("mkdir", "-p", "--", image.workdir), "/", {}, None))
    elif keyword == "USER":
        image.user = _expanded(value, known).partition(":")[0]
    else:
        raise Refused("it is not known here")


def _run(image: Image, value: str, known: dict[str, str]) -> Run:
    if value.startswith("--") or "<<" in value.split("\n")[0]:
        raise Refused("options and here-documents are not known here")
    exact = _json_words(value)
    words = ("sh", "-c", value) if exact is None else exact
    return Run(words, image.workdir, known, image.user)


def _copy(image: Image, keyword: str, value: str, known: dict[str, str]) -> Copy:
    options: dict[str, str] = {}
    while match := re.match(r"--(\w+)(?:=(\S+))?\s+", value):
        options[match[1]] = match[2] or ""
        value = value[match.end() :]
    unknown = sorted(set(options) - {"chown", "chmod", "link"})
    if unknown:
        raise Refused(f"--{unknown[0]} is not known here")
    exact = _json_words(value)
    words = shlex.split(value) if exact is None else list(exact)
    words = [_expanded(word, known) for word in words]
    if len(words) < 2:
        raise Refused("it names what to bring and where to")
    *sources, to = words
    for source in sources:
        if keyword == "ADD" and re.match(r"\w+://|git@|.*\.(tar|tgz|tar\.\w+)$", source):
            raise Refused(f"{source}: addresses and archives are not unpacked")
        if ".." in source.split("/"):
            raise Refused(f"{source}: it lies outside")
    whole = posixpath.join(image.workdir, to)
    return Copy(tuple(sources), whole, options.get("chown"), options.get("chmod"))


def _instructions(text: str) -> list[tuple[int, str, str]]:
    """Line number, keyword and value of each, with lines that go on put together."""
    found: list[tuple[int, str, str]] = []
    begun, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not whole):
            continue
        begun = begun or number
        whole += line.strip() if not whole else "\n" + line
        if re.search(r"\\\s*$", whole):
            whole = re.sub(r"\\\s*$", "\\\\", whole)
            continue
        joined = whole.replace("\\\n", " ")
        keyword, _, value = joined.partition(" ")
        found.append((begun, keyword.upper(), value.strip()))
        begun, whole = 0, ""
    if whole:
        raise Refused(f"line {begun}: it does not end")
    return found


def _pairs(value: str, known: dict[str, str]) -> dict[str, str]:
    words = shlex.split(value)
    if words and "=" not in words[0]:
        name, _, rest = value.partition(" ")
        return {name: _expanded(rest.strip(), known)}
    pairs = (word.partition("=") for word in words)
    return {name: _expanded(rest, known) for name, _, rest in pairs}


def _json_words(value: str) -> tuple[str, ...] | None:
    if not value.startswith("["):
        return None
    try:
        words = json.loads(value)
    except json.JSONDecodeError:
        return None
    return tuple(words) if all(isinstance(word, str) for word in words) else None


def _unquoted(value: str) -> str:
    words = shlex.split(value)
    return words[0] if len(words) == 1 else value


def _expanded(value: str, known: dict[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        name, kind, other = match[1] or match[2], match[3], match[4]
        found = known.get(name, "")
        if kind == "-":
            return found or other
        if kind == "+":
            return other if found else ""
        return found

    return _VARIABLE.sub(one, value)
