"""Who holds or blocks an SQLite file: kernel locks, open descriptors, process identities.

Invariant: an answer never says "nobody" when something could not be seen; what was hidden is part of the answer.

    scan = holders(path)                      everybody who has the store open
    report = lock_owners(path)                who holds which SQLite lock right now
    verdict(scan, exclusive_obtained=True, replaces_inode=False).allowed

Not for: the schema, SQLite connections, or taking locks. Importing costs no third-party module.
"""

from __future__ import annotations

from lockowners.errors import (
    LockOwnersError,
    LockTableUnreadable,
    NoSuchStore,
    ProbeUnsupported,
    StoreUnreachable,
)
from lockowners.gate import conflicting_lock, own_lock, sole_opener
from lockowners.owners import Watcher, lock_owners
from lockowners.process import started_at
from lockowners.records import (
    Descriptors,
    HeldFile,
    Hidden,
    Holder,
    LockOwner,
    LockReport,
    Process,
    Scan,
    Verdict,
)
from lockowners.scan import holders
from lockowners.verdicts import verdict

__all__ = [
    "Descriptors",
    "HeldFile",
    "Hidden",
    "Holder",
    "LockOwner",
    "LockOwnersError",
    "LockReport",
    "LockTableUnreadable",
    "NoSuchStore",
    "ProbeUnsupported",
    "Process",
    "Scan",
    "StoreUnreachable",
    "Verdict",
    "Watcher",
    "conflicting_lock",
    "holders",
    "lock_owners",
    "own_lock",
    "sole_opener",
    "started_at",
    "verdict",
]
