"""The private folder of a repair: the raw copy, and the file that will take the store's place.

Invariant: one folder of a fixed name beside the store, used only under the repair lock; what a killed run left in it is
thrown away, because the store was not touched or is repaired. It lies on the store's own file system and is closed to
others.

Not for: what is kept of the damaged store; that folder has a name of its own and stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maintenance.space.disk import Need, require_room, rooms

ENDING = ".hermes-state.repairing"
SPARE_BYTES = 64 << 20
COPY = "source.db"


def work_folder(db: Path) -> Path:
    """Where a repair of the store works."""
    return db.with_name(f"{db.name}{ENDING}")


@contextmanager
def working(db: Path) -> Iterator[Path]:
    """An empty private folder, removed at the end. Only under the repair lock."""
    folder = work_folder(db)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_room_for(db: Path, *, keeps: bool) -> None:
    """Raise `InsufficientSpace` before anything is written, when the whole repair would not fit.

    The raw copy, its rewrite, the WAL of the replacement, and with `keeps` the copy of the damaged store.
    """
    family = sum(_size(Path(f"{db}{ending}")) for ending in ("", "-wal", "-journal"))
    needed = family * (4 if keeps else 3) + SPARE_BYTES
    require_room(rooms([Need(directory=db.parent, bytes=needed, what="repair")]), what=f"A repair of {db}")


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
