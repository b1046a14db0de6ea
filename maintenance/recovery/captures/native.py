"""Rows of a native capture that the live store lacks, merged by the import's own rules, in one transaction.

Invariant: what counts as the same message is decided in one place (`maintenance.intake.known`); a session or message
that was deleted from the live store stays deleted.

Not for: copying rows by number: both sides have given the same numbers to different messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes_state.errors import CaptureRefused
from maintenance.dialects.native.shape import native_identity
from maintenance.intake.merge import Merger
from maintenance.intake.stores import StoreSource

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction
    from maintenance.intake.underway import Merged
    from maintenance.recovery.captures.view import View


class CaptureSource(StoreSource):
    """A capture as something to import from, without messages that were deleted from the live store one by one."""

    def __init__(self, view: View, clock: Clock, deleted: frozenset[int]) -> None:
        super().__init__(view.whole, clock)
        self._dialect = _Without(self._dialect, deleted)  # type: ignore[assignment]


class _Without:
    """A dialect that passes over some messages."""

    def __init__(self, dialect: Any, ids: frozenset[int]) -> None:
        self._of, self._ids = dialect, ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def message_records(self, reader: Any, session_id: str) -> Iterator[dict[str, Any]]:
        """The messages of a session but those."""
        return (record for record in self._of.message_records(reader, session_id) if record["id"] not in self._ids)


class _InTransaction:
    """A store's core for the length of one transaction: every write is a part of it, every read sees it."""

    def __init__(self, core: Core, tx: Transaction) -> None:
        self._core, self._tx = core, tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def write(self, work: Callable[[Transaction], Any], **_wishes: Any) -> Any:
        """Run `work` in the transaction that is open."""
        return work(self._tx)

    @contextmanager
    def reader(self) -> Iterator[Any]:
        """The transaction, which answers queries."""
        yield _Reading(self._tx)


class _Reading:
    """A transaction as a reader whose every look is of one moment."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.path = tx.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Nothing else can change the rows meanwhile."""
        yield


def require_same_store(core: Core, view: View, clock: Clock) -> None:
    """Raises `CaptureRefused` when the capture is of another store."""
    from hermes_state.engine import open_read

    with open_read(view.whole, clock=clock) as captured:
        identity = native_identity(captured)
    if identity is None or identity.store_id != core.store_id:
        other = "a file of hermes-agent" if identity is None else f"the store {identity.store_id}"
        raise CaptureRefused(
            f"The capture {view.capture.folder} is of {other}; {core.path} is the store {core.store_id}.",
            hint="Bring its rows in with `hermes-state sessions import`, if that is what you want.",
            path=view.capture.folder, kind="other_store",
        )


def deleted_messages(core: Core) -> frozenset[int]:
    """Ids of messages that were deleted one by one."""
    with core.reader() as reader:
        rows = reader.rows("SELECT keys FROM deletions WHERE kind = 'message'")
    return frozenset(int(key) for (keys,) in rows for key in json.loads(keys))


def merge(core: Core, view: View, clock: Clock, *, write: bool) -> Merged:
    """Bring in what only the capture holds, or with `write=False` count it."""
    source = CaptureSource(view, clock, deleted_messages(core))
    looked = source.look()
    if not write:
        return Merger(core, source, looked, write=False).run()
    return core.write(
        lambda tx: Merger(_InTransaction(core, tx), source, looked, write=True).run(),  # type: ignore[arg-type]
        durability="power", deadline_seconds=60.0,
    )
