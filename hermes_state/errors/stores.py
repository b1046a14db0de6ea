"""What can be wrong with a store's file, with this process, and with who else has it open.

Invariant: see the package. Not for: what a caller asked of sessions and messages.
"""

from __future__ import annotations

from hermes_state.errors.base import Refused, StateError, StorageError


class StoreHeld(Refused):
    """Other processes hold the store. Facts: `holders`, `scan`."""

    code = "store_held"


class ForeignStore(Refused):
    """A hermes-agent file was opened for writing by the library. Facts: `path`."""

    code = "foreign_store"


class InsufficientSpace(Refused):
    """The disk has no room for a safe rewrite. Facts: `needed_bytes`, `free_bytes`, `directory`."""

    code = "insufficient_space"


class LockTimeout(StateError):
    """Another process kept a lock past the deadline. Facts: `path`, `holders` (lock owners seen), `waited_seconds`.

    The holders' command lines are attributes and a log line; they are never part of the message.
    """

    code = "lock_timeout"
    retryable = True
    exit_code = 75


class UnsafeProcess(StateError):
    """This process can no longer trust its locks or its view of the file; the connection is closed to new work."""

    code = "unsafe_process"


class SecondSQLite(UnsafeProcess):
    """A second SQLite library has the same file open in this process. The program's fault.

    Facts: `path`, `descriptors`.
    """

    code = "second_sqlite"


class GenerationLost(UnsafeProcess):
    """The file, its WAL or its WAL index was replaced or unlinked under an open connection. Somebody else's fault.

    Facts: `path`, `lost` (which files), `capture` (directory or None), `committed` (True when the change was already
    committed when the loss was seen), `user_sentence`, `operator_detail`.
    """

    code = "generation_lost"


class WriteLockLost(UnsafeProcess):
    """The kernel no longer shows our lock: another library in this process closed a descriptor of the same file.

    Facts: `path`, `committed` (True when it was seen only after the commit). Retry only what is idempotent.
    """

    code = "write_lock_lost"
    retryable = True


class ForkedConnection(UnsafeProcess):
    """A connection was used in a process that did not open it. The program's fault. Facts: `path`, `opened_by_pid`."""

    code = "forked_connection"


class Corrupt(StorageError):
    """SQLITE_CORRUPT or SQLITE_CORRUPT_VTAB.

    Facts: `path`, `search_index` (True when only a search index is damaged).
    """

    code = "corrupt"
    exit_code = 65


class NotAStore(StorageError):
    """The file is not an SQLite database, or holds none of the tables of a store. Facts: `path`."""

    code = "not_a_store"
    exit_code = 65


class DiskFull(StorageError):
    """No space was left in the middle of a change; SQLite rolled it back. Facts: `path`."""

    code = "disk_full"


class IOFailure(StorageError):
    """The operating system failed a read, write, lock or sync. Facts: `path`, `errno`."""

    code = "io_failure"


class CannotOpen(StorageError):
    """The file or its sidecars cannot be opened. Facts: `path`, `errno` (0 when the system said nothing)."""

    code = "cannot_open"


class ReadOnlyStore(StorageError):
    """A write was tried on a store that can only be read. Facts: `path`."""

    code = "read_only_store"


class PragmaRefused(StorageError):
    """SQLite answered a pragma with another value than the one set. Facts: `path`, `pragma`, `wanted`, `got`."""

    code = "pragma_refused"


class StatementFailed(StorageError):
    """SQLite refused a statement: a constraint, a trigger of the file, or a programming error. Facts: `path`."""

    code = "statement_failed"


class SchemaTooOld(StateError):
    """The file's schema is older than the command can work with. Facts: `path`, `found`, `needed`."""

    code = "schema_too_old"


class SchemaTooNew(StateError):
    """The file's schema is newer than this program knows. Facts: `path`, `found`, `known`."""

    code = "schema_too_new"


class IdentityConflict(Refused):
    """The same store id is live at two files. Facts: `path`, `other_path`, `store_id`."""

    code = "identity_conflict"


class MigrationFailed(StateError):
    """A step did not apply and was rolled back whole. Facts: `path`, `number`, `name`."""

    code = "migration_failed"
