"""The raw private copy of a source, made by a child process before SQLite opens anything.

Invariant: the source is only read, by a process of its own, so that no lock of this process can be lost and no SQLite
sees it; size, time and inode are the same before and after all files were copied, else the copy is thrown away. What
SQLite would discard at its first open (the end of a damaged WAL) is in the copy. Stretches of zeros become holes.

Not for: choosing files (`sources.py`). A copy by the backup API was rejected: it stops at the first damaged page, and
it leaves out what the WAL holds behind a bad frame.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes_state.errors import CannotOpen, IOFailure, LockTimeout
from maintenance.recovery.records import Cancel, FileFacts, Progress, Source, Step

NAMES = {"main": "source.db", "wal": "source.db-wal", "journal": "source.db-journal"}
TRIES = 2
LARGE_BYTES = 64 << 20
# The child. It imports nothing of this project and stands alone, whatever the current folder is.
_CHILD = r"""
import hashlib, json, os, sys
CHUNK = 1 << 20
ZEROS = bytes(CHUNK)

def facts(path):
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev]

pairs = json.loads(sys.argv[1])
before = [facts(source) for source, _target in pairs]
said, done = [], 0
for source, target in pairs:
    digest, at = hashlib.sha256(), 0
    out = os.fdopen(os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0)
    with open(source, "rb", 0) as file, out:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                break
            digest.update(chunk)
            if chunk != ZEROS[:len(chunk)]:
                out.seek(at)
                out.write(chunk)
            at += len(chunk)
            done += len(chunk)
            if done & 0x3FFFFFF < CHUNK:
                print(json.dumps({"done": done}), flush=True)
        out.truncate(at)
        os.fsync(out.fileno())
    said.append({"bytes": at, "sha256": digest.hexdigest()})
after = [facts(source) for source, _target in pairs]
print(json.dumps({"before": before, "after": after, "files": said}), flush=True)
"""


def copy_source(
    source: Source, folder: Path, *, progress: Progress | None = None, cancel: Cancel | None = None
) -> tuple[FileFacts, ...]:
    """Copy the files of `source` into the private folder under fixed names.

    Raises `LockTimeout` when they changed meanwhile, with the holders that can be seen, `CannotOpen`, `IOFailure`.
    """
    pairs = [(str(path), str(folder / NAMES[part])) for part, path in source.files]
    total = sum(path.stat().st_size for _part, path in source.files)
    said: dict[str, Any] = {}
    for _try in range(TRIES):
        said = _run(source, pairs, total, progress, cancel)
        # A sidecar that appeared meanwhile belongs to the file too.
        if said["before"] == said["after"] and not _new_sidecars(source):
            break
    else:
        for _path, target in pairs:
            Path(target).unlink(missing_ok=True)
        raise _busy(source)
    return tuple(
        FileFacts(
            path=path, part=part, size_bytes=before[0], mtime_ns=before[1], inode=before[2], sha256=file["sha256"]
        )
        for (part, path), before, file in zip(source.files, said["before"], said["files"], strict=True)
    )


def forget_cached(path: Path) -> None:
    """Let the system drop what it has cached of a large private file that nobody has open.

    One read of a mapped file maps all of a cached stretch: 400 pages spread over a file that was just written counted
    as 200 MB of this process (measured), and as 20 MB when nothing was cached.
    """
    if not hasattr(os, "posix_fadvise") or not path.exists() or path.stat().st_size < LARGE_BYTES:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def is_unchanged(source: Source, facts: Sequence[FileFacts]) -> bool:
    """Whether the source still is what was copied, by size, time and inode."""
    known = {file.part: file for file in facts}
    if {part for part, _path in source.files} != set(known):
        return False
    for part, path in source.files:
        found, was = path.stat(), known[part]
        if (found.st_size, found.st_mtime_ns, found.st_ino) != (was.size_bytes, was.mtime_ns, was.inode):
            return False
    return True


def _run(
    source: Source, pairs: list[tuple[str, str]], total: int, progress: Progress | None, cancel: Cancel | None
) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _CHILD, json.dumps(pairs)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        last: dict[str, Any] = {}
        for line in child.stdout:
            last = json.loads(line)
            if cancel is not None and cancel():
                child.kill()
                break
            if progress is not None and "done" in last:
                progress(Step(doing="copying", done=last["done"], total=total, unit="bytes"))
        complaint = child.stderr.read().decode(errors="replace").strip().splitlines()
    if cancel is not None and cancel():
        from maintenance.recovery.work import stopped

        raise stopped(source.given, Path(pairs[0][1]).parent)
    if "files" in last:
        return last
    why = complaint[-1] if complaint else f"the copying process ended with {child.returncode}"
    if why.startswith(("PermissionError", "FileNotFoundError")):
        raise CannotOpen(
            f"{source.name} cannot be copied: {why}.", hint="Run as the user who owns it.", path=source.name, errno=0
        )
    raise IOFailure(
        f"{source.name} could not be copied: {why}.",
        hint="Check the disk first: a copy with `ddrescue` reads around bad sectors, and can be the --source.",
        path=source.name, errno=0,
    )


def _new_sidecars(source: Source) -> bool:
    if source.main is None:
        return False
    for ending, known in (("-wal", source.wal), ("-journal", source.journal)):
        path = source.main.with_name(source.main.name + ending)
        if known is None and path.is_file() and path.stat().st_size:
            return True
    return False


def _busy(source: Source) -> LockTimeout:
    """The source is being written to: name who has it open."""
    from lockowners import holders

    found = holders(source.name).holders if source.main is not None else ()
    who = ", ".join(f"PID {holder.process.pid} ({holder.process.command})" for holder in found) or "nobody visible here"
    return LockTimeout(
        f"{source.name} was written to while it was copied, so there is no copy of one moment. It is open in: {who}.",
        hint="Stop the Hermes processes of this store, then run the same command again.",
        path=source.name, holders=tuple(found), waited_seconds=0.0,
    )
