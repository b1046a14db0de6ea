"""A database file that nobody writes any more, read without leaving anything beside it.

Invariant: the file is opened read-only and as immutable: no lock is taken, no `-wal` or `-shm` is made, nothing is
written. SQLite then looks at the file alone, so a file with a WAL or a journal that holds bytes is refused here.

Not for: stores, and copies that have a WAL (make a private copy and use `open_private`). An ordinary read-only open was
rejected: of a file in WAL mode it makes `-wal` and `-shm`, and leaves them where the folder may not be written.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import apsw

from hermes_state.engine.private import PrivateCopy
from hermes_state.engine.translate import translated
from hermes_state.errors import Refused


def open_still(path: Path) -> PrivateCopy:
    """Open for reading. Raises `Refused` beside a WAL or journal that holds bytes, `NotAStore`, `Corrupt`, ...

    Statements that write are refused by SQLite. Search modules are left out, so their tables cannot be read.
    """
    for ending in ("-wal", "-journal"):
        beside = Path(f"{path}{ending}")
        if beside.exists() and beside.stat().st_size:
            raise Refused(
                f"{path} has bytes in {beside.name}, so the file alone does not say what it holds.",
                hint="Copy both files to a folder of their own and look at the copy.", path=path,
            )
    with translated(path, "opening the copy"):
        connection = apsw.Connection(
            f"file:{quote(os.fspath(path.absolute()))}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        try:
            connection.drop_modules([])
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except BaseException:
            connection.close(True)
            raise
    return PrivateCopy(connection, path)
