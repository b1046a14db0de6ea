"""The engine: the one door to a store, its transactions and its guards.

Invariant: a live store is opened here, through APSW, and nowhere else. Public names are re-exported below; modules
of this folder are otherwise private to `hermes_state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from hermes_state.engine.connection import APPLICATION_ID, ReadStore, open_exclusive, open_read, open_write
from hermes_state.engine.descriptors import StoreDescriptors, is_open, open_stores
from hermes_state.engine.store import Checkpoint, Durability, ExclusiveStore, Store
from hermes_state.engine.tokenizers import NulRule
from hermes_state.engine.transaction import Transaction
from hermes_state.engine.wal_index import WalState


class Reader(Protocol):
    """Anything that answers queries: a store open for reading or writing, or a transaction."""

    path: Path

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows one by one."""


__all__ = [
    "APPLICATION_ID",
    "Checkpoint",
    "Durability",
    "ExclusiveStore",
    "NulRule",
    "ReadStore",
    "Reader",
    "Store",
    "StoreDescriptors",
    "Transaction",
    "WalState",
    "is_open",
    "open_exclusive",
    "open_read",
    "open_stores",
    "open_write",
]
