"""A private file that is about to be used by itself, without the WAL beside it.

Invariant: what was committed to the file is in the file, because its WAL was copied back by a checkpoint whose answer
was read; a WAL that holds bytes is never removed. Closing a connection copies the WAL back as well, but a close whose
checkpoint fails says nothing (measured: on a full disk the file is then one without its newest pages).

Not for: stores, whose WAL stays beside them and is read by whoever comes next.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes_state.engine.pragmas import read_pragma, set_pragma
from hermes_state.engine.translate import translated
from hermes_state.errors import IOFailure
from hermes_state.flushing import sync_file

_HINT = "Check the disk and the file system of that folder, then try again."


def copy_back(connection: apsw.Connection, path: Path) -> None:
    """Copy every frame of the private file's WAL into it and empty the WAL; nothing to do outside WAL mode.

    Raises `DiskFull`, `IOFailure` and the like when it fails, `LockTimeout` when somebody else has the file open.
    """
    with translated(path, "copying the WAL back into", connection):
        # A connection that has read nothing yet knows of no WAL, and would say that there is nothing to do.
        connection.execute("PRAGMA schema_version").fetchall()
        # Not the pragma: that needs a schema that can be read, and takes a busy file for an answer.
        frames, copied = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    if frames != copied:
        raise IOFailure(
            f"The WAL of {path} was not copied back ({copied} of {frames} frames).", hint=_HINT, path=path, errno=0
        )


def settle_private(path: Path, *, page_size: int | None = None) -> None:
    """Bring the WAL of a private file that nobody has open into it, and rebuild it when its page size must be another.

    Afterwards it is one file in rollback mode without sidecars, synced. Raises what `copy_back` raises, and
    `PragmaRefused` when SQLite keeps the file in WAL mode.
    """
    with translated(path, "preparing"):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            set_pragma(connection, path, "synchronous", 2)
            copy_back(connection, path)
            set_pragma(connection, path, "journal_mode", "delete")
            if page_size is not None and read_pragma(connection, "page_size") != page_size:
                connection.execute(f"PRAGMA page_size = {page_size}").fetchall()
                connection.execute("VACUUM").fetchall()
        finally:
            connection.close()
    drop_sidecars(path)
    sync_file(path)


def drop_sidecars(path: Path) -> None:
    """Remove what SQLite left beside a private file that nobody has open. Raises `IOFailure` over a WAL with bytes."""
    wal = Path(f"{path}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size:
        raise IOFailure(
            f"{path} is not whole by itself: {size} bytes are still in its WAL.", hint=_HINT, path=path, errno=0
        )
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
