"""Deleting units of sessions in bounded transactions, so that a kill at any moment leaves a sound store.

Invariant, per transaction: its ledger line is on the disk before BEGIN; inside, every session of it is compared with
the plan once more, a unit that changed stays, and only what is still there is deleted and reported; rows of all tables
and the search index (by the file's own triggers) go together; after COMMIT the marks and the files beside the store go.

A dialect that drains (native stores) takes a unit of any size out of sight in one short transaction, with its ledger
and tombstones, and its rows in later ones; what a kill leaves of those has no id and goes first in the next run.

Otherwise, order within a unit that is too large for one transaction: its messages first, oldest first, delegates
before the conversation that they belong to; then, in one last transaction, the session rows of the whole unit with
what is left. So at any point every message has its session, no child points at a session that is gone, and a session
that is not finished is still chosen by the same filters: running the command again finishes it. What a kill can leave
behind is a ledger run without its last line, and files of a session whose row is gone; `leftovers.py` settles both on
the next run.

Not for: choosing sessions, asking, opening stores. One large transaction was rejected: it keeps every writer waiting
and loses all progress when it is interrupted. A transaction a session was rejected too: a full-text index writes a
segment for each, and each is synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from hermes_state.errors import Corrupt, Refused
from maintenance.dialects.base import DeleteCounts
from maintenance.lineage import KeptUnit, Unit
from maintenance.marks import forget_sessions
from maintenance.removal.files import SessionFiles
from maintenance.removal.pacing import Pace
from maintenance.removal.recheck import Snapshot, Watch, what_changed
from maintenance.removal.record import Record
from maintenance.space.copy_back import keep_short

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Store, Transaction
    from maintenance.dialects.base import Dialect


@dataclass
class Removed:
    """What a run did so far. It grows while the run goes on, so an interrupted one can be reported too."""

    # Rows that went.
    counts: DeleteCounts = field(default_factory=DeleteCounts)
    # Sessions that this run deleted, delegates included.
    ids: list[str] = field(default_factory=list)
    # Sessions that something else had deleted when their turn came.
    already_gone: dict[str, None] = field(default_factory=dict)
    # Units that stay after all, with the reason.
    kept: list[KeptUnit] = field(default_factory=list)
    # Units whose entries in a search index could not be found with the tokenizer in use.
    unindexed: list[Unit] = field(default_factory=list)
    # Files beside the store that went.
    files: int = 0
    # Files beside the store that could not be removed, with the reason.
    files_left: list[str] = field(default_factory=list)
    # Transactions that committed.
    transactions: int = 0
    # Longest time that one of them held the write lock, in seconds.
    longest_hold_seconds: float = 0.0


class Remover:
    """One run of deletes on one open store."""

    def __init__(
        self,
        *,
        store: Store,
        dialect: Dialect,
        snapshot: Snapshot,
        record: Record,
        pace: Pace,
        clock: Clock,
        removed: Removed,
        on_rows: Callable[[int], None] | None = None,
        between: Callable[[], None] | None = None,
    ) -> None:
        """`snapshot` is what the plan saw; `removed` grows and may be shared by several runs of one command.

        `on_rows` receives the rows that each transaction took; `between` is called when nothing is locked.
        """
        self._store = store
        self._dialect = dialect
        self._snapshot = snapshot
        self._record = record
        self._pace = pace
        self._clock = clock
        self._removed = removed
        self._on_rows = on_rows
        self._between = between
        self._files = SessionFiles(store.path, partial(dialect.ids_with_prefix, store))
        # Units that the transaction under way leaves alone: the unit, the session that keeps it, the reason.
        self._later_kept: list[tuple[Unit, str, str]] = []
        # How long the last transaction waited for the lock and then held it.
        self._waited_seconds = self._held_seconds = 0.0
        self._watch = Watch(store.path, dialect, snapshot)

    def remove(self, units: Sequence[Unit]) -> None:
        """Delete these units. Raises what the engine raises; what was committed until then is in `removed`."""
        rows = self._dialect.message_counts(self._store, [key for unit in units for key in unit.ids])
        self._drain()
        waiting = deque(units)
        while waiting:
            first = waiting.popleft()
            size = _size(first, rows)
            if size > self._pace.rows and not self._dialect.drains and not self._shorten(first, rows):
                continue
            batch, size = [first], _size(first, rows)
            while waiting and size + _size(waiting[0], rows) <= self._pace.rows:
                size += _size(waiting[0], rows)
                batch.append(waiting.popleft())
            self._delete(batch, rows)
            if size > self._pace.rows:
                self._drain()
        self._drain()

    def _drain(self) -> None:
        """Remove what deletes took out of sight only, in steps; also what a killed run left."""
        more = self._dialect.left_behind(self._store)
        while more:
            with self._transaction() as tx:
                more = self._dialect.drain(tx, self._pace.rows)
            self._rest()

    def _shorten(self, unit: Unit, rows: dict[str, int]) -> bool:
        """Delete messages of a large unit until the rest fits one transaction; False when the unit stays after all."""
        for key in reversed(unit.ids):
            while rows.get(key, 0) > 0 and _size(unit, rows) > self._pace.rows:
                if not self._present([key]):
                    rows[key] = 0
                    break
                limit = min(self._pace.rows, rows[key])
                self._record.before((key,), limit, note="messages first, the session follows")
                try:
                    with self._transaction() as tx:
                        wanted = self._still_wanted(tx, [unit])
                        gone = self._delete_messages(tx, key, limit) if wanted else 0
                except Corrupt as problem:
                    if not of_search_index(problem):
                        raise
                    self._removed.unindexed.append(unit)
                    return False
                if not wanted:
                    self._rest()
                    return False
                # None left means that somebody else deleted them; the count is what the next step goes by.
                rows[key] = rows[key] - gone if gone else 0
                self._removed.counts += DeleteCounts(messages=gone)
                self._tell(gone)
                self._rest()
        return True

    def _delete(self, batch: Sequence[Unit], rows: Mapping[str, int]) -> None:
        """Delete whole units in one transaction; when a table of another program forbids one, the others still go."""
        named = self._present(list(dict.fromkeys(key for unit in batch for key in unit.ids)))
        if not named:
            return
        self._record.before(named, sum(rows.get(key, 0) for key in named))
        try:
            with self._transaction() as tx:
                wanted = self._still_wanted(tx, batch)
                ids = list(dict.fromkeys(key for unit in wanted for key in unit.ids))
                # Another run may have been first; what it took is its own to report.
                here = self._dialect.sessions(tx, ids)
                late = [key for key in named if key in ids and key not in here]
                ids = [key for key in ids if key in here]
                counts = (
                    self._dialect.delete_sessions(tx, ids, self._record.deed(), limit=self._pace.rows)
                    if ids
                    else DeleteCounts()
                )
        except (Refused, Corrupt) as problem:
            if isinstance(problem, Corrupt) and not of_search_index(problem):
                raise
            # Rolled back. One unit may be to blame for all, so each is tried by itself.
            if len(batch) > 1:
                for unit in batch:
                    self._delete([unit], rows)
            elif isinstance(problem, Corrupt):
                self._removed.unindexed.append(batch[0])
            else:
                self._keep(batch[0], batch[0].ids[0], problem.message)
            return
        if late:
            self._record.gone(late)
            self._removed.already_gone.update(dict.fromkeys(late))
        self._removed.counts += counts
        self._removed.ids += ids
        forget_sessions(self._store.path, ids)
        for key in ids:
            self._removed.files += self._files.remove(key, self._removed.files_left)
        self._tell(counts.messages + counts.sessions)
        self._rest()

    def _delete_messages(self, tx: Transaction, key: str, limit: int) -> int:
        return self._dialect.delete_messages(tx, key, limit, self._record.deed())

    def _present(self, ids: Sequence[str]) -> list[str]:
        """Those of `ids` that the store still has; what is gone needs no line in the ledger."""
        here = self._dialect.sessions(self._store, ids)
        self._removed.already_gone.update(dict.fromkeys(key for key in ids if key not in here))
        return [key for key in ids if key in here]

    def _still_wanted(self, tx: Transaction, batch: Sequence[Unit]) -> list[Unit]:
        """The units of which no member changed since the plan; the others are noted as kept."""
        members = [key for unit in batch for key in unit.ids]
        changed = what_changed(
            tx, self._dialect, self._snapshot, members, watch=self._watch, now=self._clock.now()
        )
        wanted = []
        for unit in batch:
            keeper = next((key for key in unit.ids if key in changed), None)
            if keeper is None:
                wanted.append(unit)
            else:
                self._later_kept.append((unit, keeper, changed[keeper]))
        return wanted

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """One bounded transaction. The rest that it owes to others comes once what it did is noted."""
        self._later_kept = []
        asked = self._clock.monotonic()
        with self._store.transaction(durability="power", deadline_seconds=self._pace.deadline_seconds) as tx:
            began = self._clock.monotonic()
            yield tx
        held = self._clock.monotonic() - began
        self._removed.transactions += 1
        self._removed.longest_hold_seconds = max(self._removed.longest_hold_seconds, held)
        # Ledger lines are synced, so they are written when the lock is free again.
        for unit, keeper, reason in self._later_kept:
            self._keep(unit, keeper, reason)
        self._waited_seconds, self._held_seconds = began - asked, held

    def _rest(self) -> None:
        """Leave the store to others. A run is mostly stopped here, and what it did is in `removed` by then."""
        self._pace.rest(self._clock, waited_seconds=self._waited_seconds, held_seconds=self._held_seconds)
        if self._pace.budget_seconds is not None:
            keep_short(self._store)
        if self._between is not None:
            self._between()

    def _keep(self, unit: Unit, keeper: str, reason: str) -> None:
        self._record.kept(unit.ids, f"{keeper}: {reason}")
        self._removed.kept.append(KeptUnit(unit=unit, session_id=keeper, reason=reason))

    def _tell(self, rows: int) -> None:
        if self._on_rows is not None:
            self._on_rows(rows)


def _size(unit: Unit, rows: Mapping[str, int]) -> int:
    """Rows that deleting a unit takes: its messages and its session rows."""
    return len(unit.ids) + sum(rows.get(key, 0) for key in unit.ids)


def of_search_index(problem: Corrupt) -> bool:
    """Whether only a search index is damaged, or was written with another tokenizer; the rows are sound then."""
    return bool(getattr(problem, "search_index", False))
