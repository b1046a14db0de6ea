"""What a process did to a store's files, from the kernel's own record of its system calls.

Invariant: every call that strace wrote is either understood or raises; a line that is not understood can never pass as
"nothing forbidden". Descriptors are resolved to paths by strace itself (-y), so that a rename between open and use
cannot mislead.

Not for: timing. Sampling /proc/locks was rejected: a lock held for a microsecond is never seen.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "fcntl,flock,unlink,unlinkat,rename,renameat,renameat2,ftruncate,truncate,fallocate,open,openat,creat,"
    "write,pwrite64,pwritev,pwritev2,writev,link,linkat,symlink,symlinkat"
)
WAL_WRITE, WAL_RECOVER = 120, 122
PENDING, SHARED_LAST = 0x40000000, 0x40000000 + 511
WRITING = {"write", "pwrite64", "pwritev", "pwritev2", "writev"}
SHRINKING = {"ftruncate", "truncate", "fallocate"}
NAMING = {"unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"}

_LINE = re.compile(r"^(?:\[pid\s+\d+\] |\d+\s+)?(\w+)\((.*)\)\s+= (-?\d+|\?|0x[0-9a-f]+)(<[^>]*>)?(.*)$")
_UNFINISHED = re.compile(r"^(?:\[pid\s+(\d+)\] |(\d+)\s+)?(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?:\[pid\s+(\d+)\] |(\d+)\s+)?<\.\.\. (\w+) resumed>(.*)$")
_DESCRIPTOR = re.compile(r"^(\d+)<([^>]*?)>(?:\(deleted\))?,? ?")
_LOCK = re.compile(
    r"(F_SETLKW?|F_OFD_SETLKW?), "
    r"\{l_type=(F_\w+), l_whence=(SEEK_\w+), l_start=(-?\d+), l_len=(\d+)(?:, l_pid=-?\d+)?\}"
)
_NOISE = re.compile(r"^(?:\[pid\s+\d+\] |\d+\s+)?(?:\+\+\+ .* \+\+\+|--- .* ---)$")


class NotUnderstood(AssertionError):
    """strace wrote a line that this module cannot read."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Everything about one store in one trace."""

    # Sentences about calls that a read-only verb must not make.
    forbidden: tuple[str, ...]
    # Opens of the main file that asked for writing.
    writable_opens: tuple[str, ...]
    # Lock calls on the store's files that were understood: proof that the trace recorded the store at all.
    locks: int


@dataclass
class _Reading:
    forbidden: list[str] = field(default_factory=list)
    writable_opens: list[str] = field(default_factory=list)
    locks: int = 0


def under_strace(command: Sequence[str], trace: Path) -> list[str]:
    """`command`, recorded with all its threads and children into the file `trace`."""
    return ["strace", "-f", "-y", "-s", "0", "-e", f"trace={CALLS}", "-o", str(trace), *command]


def available() -> bool:
    """Whether strace can trace here."""
    try:
        done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def read(lines: Iterable[str], store: Path) -> Seen:
    """Judge one trace for the store at `store` (an absolute path)."""
    names = {str(store): "main", f"{store}-wal": "wal", f"{store}-shm": "shm", f"{store}-journal": "journal"}
    reading = _Reading()
    for line in _whole_calls(lines):
        match = _LINE.match(line)
        if match is None:
            if _NOISE.match(line) or not line.strip():
                continue
            raise NotUnderstood(line)
        call, arguments = match.group(1), match.group(2)
        _judge(call, arguments, line, names, reading)
    return Seen(forbidden=tuple(reading.forbidden), writable_opens=tuple(reading.writable_opens), locks=reading.locks)


def _whole_calls(lines: Iterable[str]) -> Iterable[str]:
    """Lines with calls that strace had to split put together again."""
    waiting: dict[tuple[str, str], str] = {}
    for raw in lines:
        line = raw.rstrip("\n")
        begun = _UNFINISHED.match(line)
        if begun is not None:
            text = begun.group(3)
            waiting[begun.group(1) or begun.group(2) or "", text.split("(", 1)[0]] = text
            continue
        ended = _RESUMED.match(line)
        if ended is not None:
            key = (ended.group(1) or ended.group(2) or "", ended.group(3))
            if key not in waiting:
                raise NotUnderstood(line)
            line = waiting.pop(key) + ended.group(4)
        yield line
    # A call in which its process was killed never ends; what it would have done counts.
    for text in waiting.values():
        yield text.rstrip(", ") + ") = ?"


def _judge(call: str, arguments: str, line: str, names: dict[str, str], reading: _Reading) -> None:
    descriptor = _DESCRIPTOR.match(arguments)
    on = names.get(descriptor.group(2).removesuffix(" (deleted)")) if descriptor is not None else None
    if call == "fcntl" and on is not None and ("SETLK" in arguments):
        lock = _LOCK.search(arguments)
        if lock is None or lock.group(3) != "SEEK_SET":
            raise NotUnderstood(line)
        reading.locks += 1
        first, length = int(lock.group(4)), int(lock.group(5))
        last = first + length - 1 if length else 1 << 62
        if lock.group(2) == "F_WRLCK":
            outcome = ", asked for in vain" if re.search(r"\)\s+= -1\b", line) else ""
            _judge_write_lock(on, first, last, outcome, reading)
    elif call == "flock" and on is not None:
        reading.forbidden.append(f"flock on {on}")
    elif call in WRITING and on in ("main", "wal", "journal"):
        reading.forbidden.append(f"{call} to {on}")
    elif call in SHRINKING:
        named = on or next((kind for path, kind in names.items() if f'"{path}"' in arguments), None)
        if named is not None:
            reading.forbidden.append(f"{call} of {named}")
    elif call in NAMING:
        reading.forbidden += [f"{call} of {kind}" for path, kind in names.items() if _names(arguments, path)]
    elif call in ("open", "openat", "creat"):
        named = next((kind for path, kind in names.items() if _names(arguments, path)), None)
        if named == "main" and (call == "creat" or "O_RDWR" in arguments or "O_WRONLY" in arguments):
            reading.writable_opens.append(line)
        if named is not None and "O_TRUNC" in arguments:
            reading.forbidden.append(f"{call} with O_TRUNC of {named}")


def _judge_write_lock(on: str, first: int, last: int, outcome: str, reading: _Reading) -> None:
    """An attempt in vain is forbidden as well, but tells another story."""
    if on == "shm" and first <= WAL_RECOVER and last >= WAL_WRITE:
        reading.forbidden.append(f"write lock on -shm bytes {first} to {last}{outcome}")
    if on == "main" and first <= SHARED_LAST and last >= PENDING:
        kind = {PENDING: "PENDING", PENDING + 1: "RESERVED"}.get(first, "EXCLUSIVE")
        reading.forbidden.append(f"write lock {kind} on the main file{outcome}")


def _names(arguments: str, path: str) -> bool:
    """Whether a call's arguments name `path`, absolutely or relative to a directory descriptor."""
    if f'"{path}"' in arguments:
        return True
    folder, name = path.rsplit("/", 1)
    return re.search(rf'<{re.escape(folder)}>, "(?:\./)?{re.escape(name)}"', arguments) is not None
