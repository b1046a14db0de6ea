"""Keeping a store's files as they are, byte for byte, in a folder of their own.

Invariant: the files are copied before SQLite opens any of them, because an open alone can change them (a hot journal is
played back, the WAL of an empty file is deleted), and compared again once nobody else can write; what differs by then
is kept as well, under a name of its own. The folder gets its name only when it is whole, verified and synced.

Not for: copies that are to be opened beside the live store; these are for recovery. The backup API was rejected here:
it gives pages, not what is in front of and behind them, and nothing at all of a damaged file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput, Refused
from hermes_state.flushing import sync_folder
from maintenance.replacement.child import Heard, run

if TYPE_CHECKING:
    from hermes_state.clock import Clock

MARK = ".replaced-"
PARTIAL = ".partial"
MANIFEST = "manifest.json"
ENDINGS = ("", "-wal", "-journal")
_OWNER = re.compile(r"-([0-9]{1,9})(?:-[0-9]+)?\.partial$")


@dataclass(frozen=True, kw_only=True)
class Aside:
    """The copy of a store's files."""

    folder: Path  # final name; until `publish` it is there under its working name
    working: Path  # where the files are now
    files: dict[str, dict[str, Any]]  # name -> bytes, sha256, device, inode, head (first 100 bytes, hexadecimal)

    @property
    def bytes(self) -> int:
        """All bytes kept."""
        return sum(int(found["bytes"]) for found in self.files.values())

    @property
    def main(self) -> dict[str, Any] | None:
        """What is known of the database file, None when there was none."""
        return next((self.files[name] for name in self.files if not name.endswith(("-wal", "-journal"))), None)

    def wal_page_size(self) -> int | None:
        """The page size in the header of the WAL that was copied, None without a WAL that SQLite would read."""
        head = next((bytes.fromhex(found["head"]) for name, found in self.files.items() if name.endswith("-wal")), b"")
        if len(head) < 32 or head[:4] not in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"):
            return None
        size = int.from_bytes(head[8:12], "big")
        return size if 512 <= size <= 65536 and size & (size - 1) == 0 else None


def family(db: Path) -> tuple[str, ...]:
    """Names of the files that hold a store's content."""
    return tuple(f"{db.name}{ending}" for ending in ENDINGS)


def family_bytes(db: Path) -> int:
    """How large they are together."""
    return sum(path.stat().st_size for path in map(db.with_name, family(db)) if path.exists())


def copy_aside(db: Path, aside: Path | None, clock: Clock, heard: Heard | None = None) -> Aside:
    """Copy the files of the store at `db`, which need not be there, into a folder under its working name."""
    folder = aside or _new_name(db, clock)
    working = folder.with_name(f"{folder.name}{PARTIAL}")
    if folder.exists() or working.exists():
        raise Refused(f"{folder} exists already.", hint="Name a new folder.", path=folder)
    if not folder.parent.is_dir():
        raise InvalidInput(f"The folder {folder.parent} does not exist.", hint="Create it first.", path=folder.parent)
    working.mkdir(mode=0o700)
    try:
        names = list(family(db))
        files = run("copy", db, heard, names=names, source=str(db.parent), to=str(working))
    except BaseException:
        discard(working)
        raise
    return Aside(folder=folder, working=working, files=files)


def verify_aside(db: Path, kept: Aside, heard: Heard | None = None) -> Aside:
    """Compare with the live files, which nobody can change now; copies again what differs.

    The journal is left out: a hot one was played back when SQLite took the lock, and what is there now is SQLite's own.
    """
    names = [name for name in family(db) if not name.endswith("-journal")]
    again = run("verify", db, heard, names=names, source=str(db.parent), to=str(kept.working))
    return Aside(folder=kept.folder, working=kept.working, files=kept.files | again)


def publish(db: Path, kept: Aside, verb: str, clock: Clock) -> Aside:
    """Write the manifest and give the folder its name."""
    manifest = {
        "version": 1, "store": str(db), "verb": verb,
        "kept_at": datetime.fromtimestamp(clock.now(), UTC).isoformat().replace("+00:00", "Z"),
        "files": {name: {key: found[key] for key in found if key != "head"} for name, found in kept.files.items()},
    }
    with open(kept.working / MANIFEST, "x", encoding="utf-8") as out:
        json.dump(manifest, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    sync_folder(kept.working)
    os.rename(kept.working, kept.folder)
    sync_folder(kept.folder.parent)
    return Aside(folder=kept.folder, working=kept.folder, files=kept.files)


def has_hidden_commits(db: Path, kept: Aside) -> bool:
    """Whether the kept WAL may hold commits that SQLite does not see."""
    name = next((name for name in kept.files if name.endswith("-wal")), None)
    if name is None or not kept.files[name]["bytes"]:
        return False
    return bool(run("hidden_commits", db, wal=str(kept.working / name))["hidden"])


def discard(folder: Path) -> None:
    """Remove a copy that nothing needs, because the store itself was not changed."""
    shutil.rmtree(folder, ignore_errors=False)


def killed_copies(db: Path) -> tuple[Path, ...]:
    """Copies that killed runs left under a working name: the store was not changed after them."""
    literal = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in db.name)
    return tuple(
        sorted(
            found for found in db.parent.glob(f"{literal}{MARK}*{PARTIAL}") if found.is_dir() and not _in_use(found)
        )
    )


def _new_name(db: Path, clock: Clock) -> Path:
    moment = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
    base = db.with_name(f"{db.name}{MARK}{moment}-{os.getpid()}")
    folder, number = base, 1
    while folder.exists() or folder.with_name(f"{folder.name}{PARTIAL}").exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _in_use(folder: Path) -> bool:
    owner = _OWNER.search(folder.name)
    if owner is None or int(owner[1]) == os.getpid():
        return owner is None
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and somebody else's
        return True
    return True
