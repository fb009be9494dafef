"""Filesystems in memory and instant copies of the real machine, for agents.

``Vfs`` is a filesystem in memory: it forks at once, shows files of the host,
archives, git commits and whatever your code makes, tells what changed, and
runs shell scripts that can reach nothing else.

``Sandbox`` is a copy-on-write clone of the real machine in which real programs
run; what they did is looked at, compared, and brought back or thrown away.

``note`` writes down what was learned on the way, and ``find`` brings it back.

``ToolRegistry`` offers both to agents, beside functions of yours.

``SandboxClient`` does the same through a server; ``ConfigManager`` tells what is
set.

>>> from fractal import Vfs
>>> vfs = Vfs()
>>> vfs.write("/notes/a.txt", "hello\\n", parents=True) > 0
True
>>> fork = vfs.fork()
>>> fork.exec("tr a-z A-Z < /notes/a.txt | tee /notes/b.txt").stdout
'HELLO\\n'
>>> fork.changes()
[Change('/notes/b.txt', 'added')]
>>> vfs.list("/notes")
['a.txt']
"""

from ._fractal import (
    Archive,
    Call,
    Change,
    CommandResult,
    Context,
    Entry,
    GitCommit,
    HostDir,
    Item,
    Mounted,
    Shell,
    Snapshot,
    Stat,
    Text,
    Vfs,
    load_snapshots,
)
from ._commands import Command
from ._sandbox_files import EntryInfo
from .attempts import Attempt, Attempts, CheckResult
from .client import ConfigManager, SandboxClient, Setting
from .knowledge import FailureGroup, Found, Hit, Learned, Learning, Noted, find, learned, note
from .sandbox import Promotion, RunResult, Sandbox, sandboxes, undo
from .tools import Tool, ToolError, ToolRegistry, ToolResult

__all__ = [
    "Archive",
    "Attempt",
    "Attempts",
    "Call",
    "Change",
    "CheckResult",
    "Command",
    "CommandResult",
    "ConfigManager",
    "Context",
    "Entry",
    "EntryInfo",
    "FailureGroup",
    "Found",
    "GitCommit",
    "Hit",
    "HostDir",
    "Item",
    "Learned",
    "Learning",
    "Mounted",
    "Noted",
    "Promotion",
    "RunResult",
    "Sandbox",
    "SandboxClient",
    "Setting",
    "Shell",
    "Snapshot",
    "Stat",
    "Text",
    "Tool",
    "ToolError",
    "ToolRegistry",
    "ToolResult",
    "Vfs",
    "find",
    "learned",
    "load_snapshots",
    "note",
    "sandboxes",
    "undo",
]
