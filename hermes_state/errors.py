"""Every error of the project, as one tree.

Invariant: each class has a stable `code`, says whether a plain retry may help (`retryable`), which exit status the
command line gives it (`exit_code`) and what to do next (`hint`); what is known is kept as attributes, never only as
text. Errors pickle, and the SQLite error that started one stays its `__cause__`.

Not for: classifying by message text. SQLite's own errors are mapped by result code in `engine/translate.py`.

    StateError
    ├── InvalidInput          the caller's argument cannot be used
    ├── Refused               the request is understood and is not carried out
    │   ├── StoreHeld         other processes have the store open
    │   ├── SessionGuarded    a lease or ledger row protects a session
    │   ├── ForeignStore      the file belongs to hermes-agent: adopt it or use the maintenance commands
    │   ├── SessionDeleted    the session was removed; its id may not be used
    │   ├── SessionReplaced   a continuation took the session over: go on there
    │   ├── SessionExists     the id is taken
    │   ├── TitleTaken        another session has the title
    │   ├── Entombed          a deleted id may not come back yet
    │   ├── IdentityConflict  the same store is live at two files
    │   └── InsufficientSpace the disk has no room for a safe rewrite
    ├── NotFound              no such store, session, or file
    │   └── SessionNotFound   no session of that id
    ├── IdempotencyConflict   the key was used before, for something else
    ├── LeaseHeld             another owner has the lease
    ├── LeaseLost, StaleFence the lease went to somebody else: stop
    ├── LockTimeout           the deadline for a lock passed
    ├── UnsafeProcess         this process can no longer trust its own locks or files
    │   ├── SecondSQLite      a second SQLite library has the same file open in this process
    │   ├── GenerationLost    the database, its WAL or its WAL index was replaced or unlinked under us
    │   ├── WriteLockLost     the kernel no longer shows our lock
    │   └── ForkedConnection  a connection was used after fork
    ├── StorageError          SQLite or the file system failed
    │   ├── Corrupt           canonical data is damaged
    │   ├── NotAStore         the file is not an SQLite database, or has none of the tables
    │   ├── DiskFull, IOFailure, CannotOpen, ReadOnlyStore, PragmaRefused
    │   └── StatementFailed   SQLite refused a statement for another reason
    ├── SchemaTooOld, SchemaTooNew
    ├── MigrationFailed       a migration step did not apply; the store is as before
    ├── SearchUnavailable     the search index cannot be used and the caller asked not to do without
    ├── GateNotOpened         for tests: another process did not come to where it was waited for (see `testing`)
    └── MarksDamaged, LedgerDamaged   a file that we keep beside the store cannot be read
"""

from __future__ import annotations

from typing import Any


class StateError(Exception):
    """Base of the tree. `message` is a whole sentence: what, to which file, who holds it."""

    code = "state_error"
    retryable = False
    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts
        # SQLite's primary and extended result codes, when SQLite started it.
        self.sqlite_code: int | None = facts.pop("sqlite_code", None)
        self.sqlite_extended: int | None = facts.pop("sqlite_extended", None)
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = dict(self.facts, sqlite_code=self.sqlite_code, sqlite_extended=self.sqlite_extended)
        return (_rebuild, (type(self), self.message, self.hint, facts))


def _rebuild(kind: type[StateError], message: str, hint: str, facts: dict[str, Any]) -> StateError:
    return kind(message, hint=hint, **facts)


class InvalidInput(StateError):
    """The caller's fault: an argument cannot be used. Nothing was changed."""

    code = "invalid_input"
    exit_code = 2


class NotFound(StateError):
    """Nothing of that name exists."""

    code = "not_found"


class Refused(StateError):
    """Understood and not done, because it would be unsafe or was not confirmed. Nothing was changed."""

    code = "refused"


class StoreHeld(Refused):
    """Other processes hold the store. Facts: `holders`, `scan`."""

    code = "store_held"


class SessionGuarded(Refused):
    """A live lease or a runtime ledger row protects a session. Facts: `session_id`, `guard`."""

    code = "session_guarded"


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


class StorageError(StateError):
    """SQLite or the file system failed. `sqlite_code` and `sqlite_extended` say how."""

    code = "storage_error"


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


class MarksDamaged(StateError):
    """The marks file beside a store cannot be read, so no filter that needs it may run.

    Facts: `path`; `session_id` and `mark` when one entry is at fault.
    """

    code = "marks_damaged"


class LedgerDamaged(StateError):
    """The delete ledger beside a store cannot be written or read. Facts: `path`."""

    code = "ledger_damaged"


class SessionNotFound(NotFound):
    """No session of that id was ever here. Facts: `path`, `session_id`."""

    code = "session_not_found"


class SessionDeleted(Refused):
    """The caller holds on to a session that was removed. Facts: `path`, `session_id`, `deleted_at` (epoch seconds)."""

    code = "session_deleted"


class SessionReplaced(Refused):
    """A continuation took the session over; rows go there now. Facts: `path`, `session_id`, `tip_id`."""

    code = "session_replaced"


class SessionExists(Refused):
    """A session of that id is there already. Facts: `path`, `session_id`."""

    code = "session_exists"


class TitleTaken(Refused):
    """Another session has the title. Facts: `path`, `title`, `session_id` (of the other one)."""

    code = "title_taken"


class Entombed(Refused):
    """A deleted id may not come back before its horizon. Facts: `path`, `kind`, `key`, `horizon_at`, `references`."""

    code = "entombed"


class IdentityConflict(Refused):
    """The same store id is live at two files. Facts: `path`, `other_path`, `store_id`."""

    code = "identity_conflict"


class IdempotencyConflict(StateError):
    """The caller's fault: a key came again with other content, or after its message was taken back (`taken_back`).

    Facts: `path`, `session_id`, `key`, `existing_id`, `taken_back`.
    """

    code = "idempotency_conflict"


class LeaseHeld(StateError):
    """Another owner has the lease. Facts: `path`, `name`, `owner` (identity), `expires_in_seconds` (None: unknown)."""

    code = "lease_held"
    retryable = True
    exit_code = 75


class LeaseLost(StateError):
    """The holder was away too long and its lease went on. Facts: `path`, `name`, `fence` (ours), `current` (theirs)."""

    code = "lease_lost"


class StaleFence(StateError):
    """A guarded write came with a fence that is no longer the lease's. Facts: `path`, `name`, `fence`, `current`."""

    code = "stale_fence"


class MigrationFailed(StateError):
    """A step did not apply and was rolled back whole. Facts: `path`, `number`, `name`."""

    code = "migration_failed"


class SearchUnavailable(StateError):
    """The search index cannot be used now, and the caller asked for nothing less. Facts: `path`, `reason`."""

    code = "search_unavailable"
    retryable = True
