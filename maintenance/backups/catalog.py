"""A folder of backups: names, which ones count, what goes by `--keep`, and what killed runs left.

Invariant: only backups with a manifest that can be read are counted and removed, only those of the same store, and
never the one made just now. Not for: files that were put there by hand; they stay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.errors import BackupDamaged, Refused
from hermes_state.flushing import sync_folder
from maintenance.backups.manifest import ENDING, Manifest, manifest_path, read_manifest

if TYPE_CHECKING:
    from hermes_state.clock import Clock

FOLDER = "backups"  # beside the store
SEALED = ".sealed"
PARTIAL = ".partial"
_SIDECARS = ("-wal", "-shm", "-journal")
_OWNER = re.compile(r"-([0-9]{1,9})\.partial(?:-wal|-shm|-journal)?$")


def new_name(folder: Path, store: Path, clock: Clock, *, sealed: bool) -> Path:
    """`<stem>-<UTC>.db`, with `.sealed` at the end when encrypted; never one that is there."""
    moment = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in range(1, 10_000):
        more = "" if number == 1 else f"-{number}"
        path = folder / f"{store.stem}-{moment}{more}.db{SEALED if sealed else ''}"
        if not path.exists() and not manifest_path(path).exists():
            return path
    raise Refused(f"There are too many backups of one second in {folder}.", hint="Name another folder.", path=folder)


def verified_backups(folder: Path, made: Manifest) -> list[tuple[Manifest, Path]]:
    """Verified backups of the same store in a folder, oldest first; others' are passed over."""
    found = []
    for path in folder.glob(f"*{ENDING}"):
        backup = path.with_name(path.name.removesuffix(ENDING))
        try:
            manifest = read_manifest(backup)
        except BackupDamaged:
            continue  # not known to be verified, so it is nobody's to remove
        if manifest is not None and backup.is_file() and _same_store(manifest, made):
            found.append((manifest, backup))
    return sorted(found, key=lambda item: (item[0].created_at, item[0].file))


def backups_of(store: Path) -> tuple[Path, ...]:
    """Verified backups of the store at `store`, by its path, in the folder that is used unless told otherwise.

    Oldest first; the store itself need not be there.
    """
    real = Path(os.path.realpath(store))
    found = []
    for path in (real.parent / FOLDER).glob(f"*{ENDING}"):
        backup = path.with_name(path.name.removesuffix(ENDING))
        try:
            manifest = read_manifest(backup)
        except (BackupDamaged, OSError):
            continue  # not known to be a backup of anything
        if manifest is not None and manifest.store == str(real) and backup.is_file():
            found.append((manifest.created_at, backup))
    return tuple(backup for _created, backup in sorted(found))


def thin_out(folder: Path, made: Manifest, keep: int) -> tuple[Path, ...]:
    """Remove the oldest verified backups of this store until `keep` are left; the one just made stays."""
    others = [path for manifest, path in verified_backups(folder, made) if manifest.file != made.file]
    surplus = others[: max(len(others) - (keep - 1), 0)]
    for path in surplus:
        # The manifest goes last: what is left by a kill in between says what it was.
        path.unlink(missing_ok=True)
        manifest_path(path).unlink(missing_ok=True)
    if surplus:
        sync_folder(folder)
    return tuple(surplus)


def working_name(target: Path) -> Path:
    """The hidden name beside a file under which it is written."""
    return target.with_name(f".{target.name}-{os.getpid()}{PARTIAL}")


def remove_killed(folder: Path, stem: str) -> tuple[Path, ...]:
    """Remove what killed runs left half written under a working name; what living ones write stays."""
    gone = []
    literal = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in stem)
    for path in folder.glob(f".{literal}-*{PARTIAL}*"):
        owner = _OWNER.search(path.name)
        if owner is not None and not path.is_dir() and not alive(int(owner[1])):
            path.unlink(missing_ok=True)
            gone.append(path)
    return tuple(sorted(gone))


@contextmanager
def removed_after(*working: Path) -> Iterator[None]:
    """Whatever happens, no working file stays; one that got its final name is not there any more."""
    try:
        yield
    finally:
        for path in working:
            for ending in ("", *_SIDECARS):
                Path(f"{path}{ending}").unlink(missing_ok=True)


def _same_store(manifest: Manifest, made: Manifest) -> bool:
    if made.content.store_id is not None or manifest.content.store_id is not None:
        return manifest.content.store_id == made.content.store_id
    return manifest.store == made.store


def alive(pid: int) -> bool:
    """Whether a process of that number may still be there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and somebody else's
        return True
    return True
