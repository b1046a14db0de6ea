"""What the gate hands out: a store together with what is known about the others.

Invariant: a `Forced` store can read and run one in-place VACUUM, nothing else, because other processes are using the
file meanwhile. Not for: opening anything. A flag on a full store was rejected: nothing would keep a verb from using it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.engine import ExclusiveStore, Store

if TYPE_CHECKING:
    from lockowners import Scan, Verdict


@dataclass(frozen=True, kw_only=True)
class Online:
    """A store opened for bounded work while others may use it."""

    # Read and write, in short transactions.
    store: Store
    # Who has the store open, and what could not be seen.
    scan: Scan


@dataclass(frozen=True, kw_only=True)
class Alone:
    """A store whose exclusive lock this process holds until the context ends."""

    # Nobody else can read, write or open it.
    store: ExclusiveStore
    # The scan made under the lock.
    scan: Scan
    # Why the rewrite is allowed, and what was not visible.
    verdict: Verdict

    @property
    def forced(self) -> bool:
        """Always False: nothing was overridden."""
        return False


class VacuumOnly:
    """A store in normal locking mode that offers reading and one in-place VACUUM."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path: Path = store.path

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a reading statement."""
        return self._store.rows(sql, params)

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a reading statement."""
        return self._store.row(sql, params)

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows of a reading statement, a batch at a time."""
        return self._store.iterate(sql, params, batch=batch)

    def vacuum(self) -> None:
        """Rewrite the file in place; others wait for as long as it takes."""
        self._store.vacuum()


@dataclass(frozen=True, kw_only=True)
class Forced:
    """What `--force` gives when holders keep the exclusive lock from us."""

    # Only VACUUM, in normal locking mode.
    store: VacuumOnly
    # Who has the store open.
    scan: Scan
    # The sentence to print before the VACUUM.
    warning: str

    @property
    def forced(self) -> bool:
        """Always True."""
        return True
