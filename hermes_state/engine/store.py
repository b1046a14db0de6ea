"""A store open for writing, and one open under SQLite's exclusive lock.

Invariant: work on the whole file runs under the same guards as a transaction (`writer.py`), with full durability, and
nothing follows a checkpoint or a close that found the files or the locks lost. A store is opened anew in place, so that
those who have it go on with the same object.

Not for: deciding who may write (the command line's gate) or what rows mean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import apsw

from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.pragmas import SYNCHRONOUS, set_pragma
from hermes_state.engine.transaction import Transaction
from hermes_state.engine.translate import translate
from hermes_state.engine.waiting import lock_timeout
from hermes_state.engine.whole_file import copy_back
from hermes_state.engine.writer import Checkpoint, Durability, Result, Writer
from hermes_state.errors import WriteLockLost

__all__ = ["Checkpoint", "Durability", "ExclusiveStore", "Store"]


class Store(Writer):
    """A store open for writing, in SQLite's normal locking mode."""

    _reopen: Callable[[], Store]

    def _start(self, reopen: Callable[[], Store]) -> None:
        self._reopen = reopen
        self._start_writing()

    def run(
        self, work: Callable[[Transaction], Result], *, durability: Durability = "process", idempotent: bool = False
    ) -> Result:
        """Run `work` in a transaction. When our lock was lost, reopen, and repeat only what is idempotent."""
        try:
            with self.transaction(durability=durability) as transaction:
                return work(transaction)
        except WriteLockLost:
            self.reopen()
            if not idempotent:
                raise
        with self.transaction(durability=durability) as transaction:
            return work(transaction)

    # --- work on the whole file ------------------------------------------------------------------------------

    def incremental_vacuum(self, pages: int, *, deadline_seconds: float | None = None) -> int:
        """Return up to `pages` free pages to the file system in one short transaction; returns how many."""
        with self.transaction(deadline_seconds=deadline_seconds) as transaction:
            before = transaction.rows("PRAGMA freelist_count")[0][0]
            transaction.rows(f"PRAGMA incremental_vacuum({int(pages)})")
            return int(before - transaction.rows("PRAGMA freelist_count")[0][0])

    def vacuum(self, *, on_progress: Callable[[int], None] | None = None) -> None:
        """Rewrite the whole file in place. `on_progress` receives a rising count of steps, not a share."""
        self._whole_file("VACUUM", (), "vacuuming", on_progress)

    def vacuum_into(self, target: Path, *, on_progress: Callable[[int], None] | None = None) -> None:
        """Write a compact copy of the store to the new file `target`."""
        self._whole_file("VACUUM INTO ?", (str(target),), "copying", on_progress)

    def statement(self, sql: str, *, doing: str, on_progress: Callable[[int], None] | None = None) -> None:
        """Run one statement that makes its own transaction, under the guards, with full durability."""
        self._whole_file(sql, (), doing, on_progress)

    def _whole_file(
        self, sql: str, params: tuple[Any, ...], doing: str, on_progress: Callable[[int], None] | None
    ) -> None:
        with self._lock:
            self._ready()
            self._check_generation(committed=False, contents=False)
            self._wait.arm(self._patience)
            steps = 0

            def step() -> bool:
                nonlocal steps
                steps += 1
                if on_progress is not None:
                    on_progress(steps)
                return False

            self._refuse_foreign_writer()
            REGISTRY.start_writing(self.token)
            try:
                set_pragma(self._connection, self.path, "synchronous", SYNCHRONOUS["power"])
                self._synchronous = SYNCHRONOUS["power"]
                if not self._exclusive:  # a whole file does not fit into memory
                    self._connection.execute("PRAGMA cache_spill = on").fetchall()
                if on_progress is not None:
                    self._connection.set_progress_handler(step, 20_000)
                self._connection.execute(sql, params).fetchall()
            except apsw.BusyError as error:
                raise lock_timeout(self.path, self.descriptors, self._wait.waited, cause=error) from error
            except apsw.Error as error:
                problem = translate(error, self.path, doing, system_errno=self._connection.system_errno)
                self._stop_on(problem)
                raise problem from error
            finally:
                REGISTRY.stop_writing(self.token)
                if not self._exclusive:
                    self._connection.execute("PRAGMA cache_spill = off").fetchall()
                if on_progress is not None:
                    self._connection.set_progress_handler(None)
            self._check_strangers(committed=True)
            self._wrote = True
            self._check_generation(committed=True, contents=False)
            self._check_standing_lock(committed=True)

    # --- closing and reopening -------------------------------------------------------------------------------

    def _before_close(self) -> None:
        if self._in_transaction():
            return  # an interrupt left it open, or the block goes on: it is rolled back, without a checkpoint
        self._check_generation(committed=False, contents=False)
        if self._wrote and self._content_is_ours():
            self._checkpoint("passive")

    def _content_is_ours(self) -> bool:
        """Whether the file still is what the WAL belongs to; False when the write lock does not come at once to ask.

        A checkpoint into a file that was overwritten in place would mix two stores. Raises `GenerationLost`.
        """
        self._wait.arm(0.0)
        try:
            self._connection.execute("BEGIN IMMEDIATE").fetchall()
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise translate(error, self.path, "closing", system_errno=self._connection.system_errno) from error
        try:
            self._check_generation(committed=False, contents=True)
        finally:
            if not self._closed:
                self._connection.execute("ROLLBACK").fetchall()
        return True

    def reopen(self) -> None:
        """Close and open again after a lost generation or lock; refused while a stale holder remains."""
        with self._lock:
            if not self._closed:
                if self._stopped is None:
                    self._check_generation(committed=False, contents=False)
                self._release()
            fresh = self._reopen()
            # Other threads may be waiting for these two, so they stay those of this object.
            kept = {"_lock": self._lock, "_turn": self._turn}
            self.__dict__.update({**fresh.__dict__, **kept})
            self._adopt(fresh)


class ExclusiveStore(Store):
    """A store under SQLite's own exclusive lock, from open to close: nobody else can open it, read or write."""

    # True beside a replica: it reads the -wal file, so no checkpoint empties that, the one at close included.
    keep_wal = False

    def checkpoint(self, mode: Literal["passive", "truncate"] = "truncate") -> Checkpoint:
        """Copy all frames; "truncate" also empties the -wal file, unless `keep_wal`."""
        with self._lock:
            self._ready()
            return self._checkpoint("passive" if self.keep_wal else mode)

    def copy_back(self) -> None:
        """Copy every frame of a private file's WAL into it, so that it can be used by itself. Raises when not all go.

        The checkpoint at close may leave frames behind, which is right for a store: its WAL stays beside it.
        """
        with self._lock:
            self._ready()
            self._check_generation(committed=False, contents=False)
            copy_back(self._connection, self.path)

    def promote(self, copy: Path) -> None:
        """Replace the content of the store by that of the verified private file `copy`, in place, through the pager.

        One transaction of SQLite's backup API: it is either wholly there or not at all. The inode stays.
        """
        from hermes_state.engine.connection import copy_onto

        with self._lock:
            self._ready()
            self._check_generation(committed=False, contents=False)
            set_pragma(self._connection, self.path, "synchronous", SYNCHRONOUS["power"])
            self._synchronous = SYNCHRONOUS["power"]
            copy_onto(copy, self._connection, self.path)
            self._wrote = True
            self._check_generation(committed=True, contents=False)
            self._check_standing_lock(committed=True)

    def tune(self, **pragmas: int) -> None:
        """Set pragmas of this connection only, such as `cache_size` or `temp_store`, each read back."""
        with self._lock:
            self._ready()
            for name, value in pragmas.items():
                set_pragma(self._connection, self.path, name, value)

    def _before_close(self) -> None:
        self._check_generation(committed=False, contents=False)
        if self._wrote:
            self._checkpoint("passive" if self.keep_wal else "truncate")
