"""What a restore would do with obligations, counted before it is done.

Invariant: both sides are only read, and what is counted is what `replacement.owing` does then: the same rules, with a
reader in the place of the writer. Obligations are never gone: what the store knows of them goes into the new content.

Not for: doing it. A difference in the numbers of rows was rejected: it reads as if what is owed were lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_state.engine import open_read
from hermes_state.errors import NotFound, StateError, StorageError
from maintenance.backups.gap import has_journal
from maintenance.dialects.native import owed
from maintenance.dialects.native.shape import native_identity
from maintenance.output.text import plural
from maintenance.replacement.old import Old
from maintenance.replacement.owing import carry_over, old_owed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hermes_state.clock import Clock
    from hermes_state.engine import Reader


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OwedThen:
    """What becomes of obligations."""

    whole: bool  # whether all that the store knows of them can be read and carried over
    carried: owed.Carried  # in rows

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {"known": self.whole, **self.carried.document()}


def foresee(store: Path, copy: Path, *, hidden: bool, clock: Clock) -> OwedThen:
    """Count it. `copy` is the private database out of a backup; `hidden`: commits may stand in the WAL beside the store
    that SQLite does not see."""
    with open_read(copy, clock=clock) as new, new.snapshot():
        return with_old(
            store, clock, lambda live: _unread(new, clock) if live is None else _foresee(live, new, hidden, clock)
        )


def with_old(store: Path, clock: Clock, look: Callable[[Reader | None], T]) -> T:
    """What `look` says of the store in one snapshot; it is given None when the store is gone or cannot be read."""
    if has_journal(store):  # read only once its unfinished change is undone, which the restore does first
        return look(None)
    try:
        with open_read(store, clock=clock) as live, live.snapshot():
            return look(live)
    except (NotFound, StorageError, UnicodeDecodeError) as error:
        if isinstance(error, StorageError) and error.exit_code != 65:
            raise
        return look(None)


def _foresee(live: Reader, new: Reader, hidden: bool, clock: Clock) -> OwedThen:
    old = old_owed(live.rows, hidden=hidden)
    try:
        mine, theirs = native_identity(live), native_identity(new)
    except StateError:
        return _unread(new, clock)
    if not owed.has_outbox(new.rows):  # from before there was one: it is given the tables, and all that is owed
        rows = live.rows("SELECT count(*) FROM outbox")[0][0] if old.there else 0
        return OwedThen(whole=old.whole or not old.there, carried=owed.Carried(added=rows))
    same = mine is not None and theirs is not None and mine.store_id == theirs.store_id
    carried = carry_over(owed.Looking(new), old, same_store=same, at=clock.now())
    return OwedThen(whole=old.whole and same, carried=carried)


def _unread(new: Reader, clock: Clock) -> OwedThen:
    if not owed.has_outbox(new.rows):
        return OwedThen(whole=False, carried=owed.Carried())
    nothing = Old(ask=new.rows, there=False, whole=False)
    return OwedThen(whole=False, carried=carry_over(owed.Looking(new), nothing, same_store=False, at=clock.now()))


def sentences(carried: owed.Carried, *, done: bool) -> Iterator[str]:
    """What becomes of obligations, or became, one line for each kind of change; nothing where nothing does."""
    kept = carried.verdicts + carried.brought + carried.added
    if kept:
        how = ", ".join(
            f"{count:,} {word}" for count, word in (
                (carried.verdicts, "with the verdict that they have got since"),
                (carried.brought, "with the attempts made since"), (carried.added, "recorded since"),
            ) if count
        )
        are = "was" if kept == 1 else "were"
        yield f"{plural(kept, 'obligation')} {are if done else 'would be'} carried over from the store: {how}"
    for count, what in (
        (carried.unknown, "may have been sent, and at most once: unknown, not sent again; a person decides"),
        (carried.marked, "may have been sent, and at least once: sent again, marked as recovered"),
        (carried.ended, "settled and forgotten by the store: not sent again"),
    ):
        if count:
            yield f"{plural(count, 'obligation')} {what}"
