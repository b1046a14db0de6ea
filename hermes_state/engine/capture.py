"""Keeping what only a lost generation holds, before its connection is closed.

Invariant: a capture is a folder that appears under its final name only when it is complete and synced; it holds the
WAL exactly as SQLite's own descriptor sees it, a manifest with identities, sizes and SHA-256, and, when space allows,
a whole copy of the store made by the backup API through the connection that still sees it consistently.
The live path is never written and never read by name.

Not for: bringing rows back (that is `hermes-state sessions recover`). Reopening the files by path was rejected: the
path names the other generation.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_state.clock import Clock
from hermes_state.engine.descriptors import StoreDescriptors
from hermes_state.flushing import sync_folder

MANIFEST_VERSION = 1
# Never the store's own name: SQLite would take the captured WAL beside it for the copy's, and unlink it at close.
COPY_NAME = "copy.db"
_CHUNK = 1 << 20
_SPARE_BYTES = 64 << 20  # left free on the disk beside a whole copy


def capture_folder(path: Path, clock: Clock) -> Path:
    """The name of a new capture of the store at `path`: `<db>.retired-wal-<UTC>-<pid>[-n]`."""
    stamp = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
    base = path.with_name(f"{path.name}.retired-wal-{stamp}-{os.getpid()}")
    folder, number = base, 1
    while folder.exists() or folder.with_name(folder.name + ".partial").exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def capture_generation(
    path: Path,
    descriptors: StoreDescriptors,
    lost: tuple[str, ...],
    copy_store: Callable[[Path], str] | None,
    clock: Clock,
) -> Path:
    """Write a capture and return its folder. Raises OSError.

    `copy_store(target)` makes the backup-API copy and returns its page verdict; None: the connection cannot be used.
    """
    folder = capture_folder(path, clock)
    staged = folder.with_name(folder.name + ".partial")
    staged.mkdir(mode=0o700)
    manifest: dict[str, Any] = {
        "version": MANIFEST_VERSION,
        "store": str(path),
        "captured_at": datetime.fromtimestamp(clock.now(), UTC).isoformat().replace("+00:00", "Z"),
        "pid": os.getpid(),
        "command": sys.argv[:1],
        "lost": list(lost),
        "path_now": {name: _describe_path(path, suffix) for name, suffix in _SUFFIXES},
        "files": {},
    }
    if descriptors.wal is not None:
        manifest["files"][f"{path.name}-wal"] = _copy_descriptor(descriptors.wal, staged / f"{path.name}-wal")
    manifest["copy"] = _whole_copy(path, descriptors, staged, copy_store, manifest)
    _write_synced(staged / "manifest.json", json.dumps(manifest, indent=1).encode())
    sync_folder(staged)
    os.rename(staged, folder)
    sync_folder(folder.parent)
    return folder


_SUFFIXES = (("main", ""), ("wal", "-wal"), ("shm", "-shm"))


def _describe_path(path: Path, suffix: str) -> dict[str, int] | None:
    try:
        state = os.stat(f"{path}{suffix}")
    except OSError:
        return None
    return {"device": state.st_dev, "inode": state.st_ino, "bytes": state.st_size}


def _whole_copy(
    path: Path,
    descriptors: StoreDescriptors,
    staged: Path,
    copy_store: Callable[[Path], str] | None,
    manifest: dict[str, Any],
) -> str:
    """Make the backup-API copy when the disk has room; returns what was done, for the manifest."""
    if descriptors.main is None:
        return "not made: the database file is not open"
    if copy_store is None:
        return "not made: the connection could not be used safely"
    wal_bytes = os.fstat(descriptors.wal).st_size if descriptors.wal is not None else 0
    needed = os.fstat(descriptors.main).st_size + wal_bytes + _SPARE_BYTES
    free = shutil.disk_usage(staged).free
    if free < needed:
        return f"not made: {needed} bytes needed, {free} free"
    target = staged / COPY_NAME
    try:
        verdict = copy_store(target)
    except Exception as error:
        # The WAL above is already kept; a copy that fails is recorded with its reason and never half kept.
        target.unlink(missing_ok=True)
        return f"not made: {type(error).__name__}: {error}"
    with open(target, "rb") as copied:
        digest = hashlib.file_digest(copied, "sha256").hexdigest()
        os.fsync(copied.fileno())
    size = target.stat().st_size
    manifest["files"][COPY_NAME] = {"bytes": size, "sha256": digest, "source": "backup API", "pages": verdict}
    return "made" if verdict == "ok" else "made, but its pages are not sound; prefer the captured WAL"


def _copy_descriptor(descriptor: int, target: Path) -> dict[str, Any]:
    """Copy what SQLite's own descriptor sees into a new file; positions and locks stay untouched."""
    state = os.fstat(descriptor)
    digest = hashlib.sha256()
    copied = 0
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        while chunk := os.pread(descriptor, _CHUNK, copied):
            digest.update(chunk)
            out.write(chunk)
            copied += len(chunk)
        out.flush()
        os.fsync(out.fileno())
    return {
        "bytes": copied, "sha256": digest.hexdigest(), "device": state.st_dev, "inode": state.st_ino,
        "source": "SQLite's own descriptor",
    }


def _write_synced(target: Path, content: bytes) -> None:
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
