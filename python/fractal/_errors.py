"""A server's errors as the exceptions that the engine raises in process."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

# As in `crates/py/src/errors.rs`.
_NUMBERS = {
    "not_found": errno.ENOENT,
    "corrupt": errno.EIO,
    "denied": errno.EACCES,
    "gate": errno.EACCES,
    "busy": errno.EBUSY,
    "exists": errno.EEXIST,
    "limit": errno.ENOSPC,
    "unsupported": errno.EOPNOTSUPP,
    "timeout": errno.ETIMEDOUT,
    "conflict": errno.ESTALE,
}


def of_engine(error: Mapping[str, Any]) -> Exception:
    """What to raise for `{"code", "message", "hint"}`."""
    code, hint = error.get("code", "internal"), error.get("hint")
    text = str(error.get("message", "the server gave no reason"))
    if hint:
        text = f"{text}; {hint}"
    number = _NUMBERS.get(code)
    raised: Exception
    if number is not None:
        raised = OSError(number, text)
    elif code == "invalid":
        raised = ValueError(text)
    else:
        raised = RuntimeError(text)
    for name, value in (("code", code), ("hint", hint)):
        setattr(raised, name, value)
    return raised


def code_of(error: BaseException) -> str | None:
    """The engine's word for an error, if it is one of the engine's."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else None
