"""Whether the WAL beside a store holds commits that its database file has not.

Invariant: "no" only when every page of every whole commit in the WAL is byte for byte what the database file has. The
files are read by a child process, since this one may have the store open. Not for: damaged WALs; what SQLite would not
read counts as nothing here, and is kept aside with the rest.
"""

from __future__ import annotations

from pathlib import Path

from maintenance.replacement.child import run


def frames_not_in_file(store: Path) -> int:
    """Frames of whole commits in the WAL beside `store` whose page the database file does not have as it is there."""
    wal = Path(f"{store}-wal")
    if not wal.exists() or wal.stat().st_size <= 32:
        return 0
    return int(run("wal_frames", store, main=str(store), wal=str(wal))["missing"])
