"""What repair, recovery, captures, backups and replication can run into, and the files kept beside a store.

Invariant: see the package. Not for: the library.
"""

from __future__ import annotations

from hermes_state.errors.base import Refused, StateError, StorageError


class MarksDamaged(StateError):
    """The marks file beside a store cannot be read, so no filter that needs it may run.

    Facts: `path`; `session_id` and `mark` when one entry is at fault.
    """

    code = "marks_damaged"


class LedgerDamaged(StateError):
    """The delete ledger beside a store cannot be written or read. Facts: `path`."""

    code = "ledger_damaged"


class RecoveryStopped(StateError):
    """A recovery was cancelled by its caller. Nothing is lost: the same call goes on. Facts: `path`, `work_folder`."""

    code = "recovery_stopped"


class RepairFailed(StateError):
    """A repair did not make the copy sound, or would have lost rows. The store is as it was.

    Facts: `path`; `attempts` and `fingerprint` when it was tried often enough, `step` when one failed, `tables` when
    rows differ.
    """

    code = "repair_failed"


class RepairStopped(StateError):
    """A repair was cancelled by its caller before the store was touched. Facts: `path`."""

    code = "repair_stopped"


class CaptureRefused(StateError):
    """A capture of a lost WAL generation cannot be used as it is.

    Facts: `path` (its folder), `kind`: partial, manifest, missing, altered, unnamed, base, wal, wal_header, page_size,
    order, other_store, header_only.
    """

    code = "capture_refused"
    exit_code = 65


class BackupDamaged(StorageError):
    """A backup is not what its manifest says, or bytes of an encrypted one were altered. Facts: `path`."""

    code = "backup_damaged"
    exit_code = 65


class WrongPassphrase(Refused):
    """An encrypted backup does not open with the passphrase that was given. Facts: `path`."""

    code = "wrong_passphrase"


class BackupStopped(StateError):
    """A backup or a restore was cancelled by its caller; nothing was changed. Facts: `path`."""

    code = "backup_stopped"


class ReplicationFailed(StateError):
    """Litestream ended, left something out, or was cut off from the store. The store is as it was.

    Facts: `path`, `status` (exit status of the program, negative for a signal, or None), `output` (its last lines).
    """

    code = "replication_failed"
