"""Routing of a store, once its content is replaced by older content: nobody comes in again, no generation falls.

Invariant: routing is the present state of the store, not part of its history. Where the old content can be read whole,
its chats, its people, locks, codes and marks stand; a chat whose session is not in the new content goes on in the one
that the new content has for it, if no reset came between, and else only in a new session. Where it cannot be read, of
chats the later known version stands, nobody who was paired is believed, and no code opens anything. A home that either
content marks as removed stays removed, every conversation is of a higher generation than any before, and an interrupted
turn is not taken up: it may have ended since, or is not there.

Not for: whose bot answers: that is what the later row says, and where it says nothing it stays so. Taking the chats as
the older content has them was rejected: a conversation that a person stopped would go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state import deletions
from hermes_state.errors import StorageError
from hermes_state.routing.changing import raise_generations
from maintenance.dialects.native import owed, routed, serving
from maintenance.replacement import old as old_content
from maintenance.replacement import working
from maintenance.replacement.old import Old, look_at

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Transaction

ACTOR = "hermes-state"
LOST = "the session that it went on in is not in the content that was restored"
NOT_THERE = "the store whose content was replaced had no such chat"
FORGOTTEN = "it was forgotten in the store whose content was replaced"


def old_routing(ask: routed.Ask, *, hidden: bool) -> Old:
    """Look at the old content. `hidden`: commits may stand in its WAL that SQLite does not see."""
    return look_at(ask, routed.has_routing, routed.TABLES, hidden=hidden)


def make_room(store: ExclusiveStore, old: Old, clock: Clock, *, readable: bool) -> bool:
    """Bring a private copy from before routing up when the old content has some, or nobody can tell (`readable` False);
    whether the copy has the tables."""
    if not readable and not old.there and not routed.has_routing(store.rows):
        return old_content.bring_up(store, clock, routed.has_routing)
    return old_content.make_room(store, old, clock, routed.has_routing, routed.any_routing)


def carry_over(
    tx: Transaction, old: Old, *, same_store: bool, readable: bool, at: float
) -> routed.Moved:
    """Let what is known of the old content hold in the new. `readable`: whether the old file could be read at all; `at`
    is now, epoch seconds UTC."""
    moved = routed.Moved()
    carry = _Carry(tx, old, moved, at)
    with serving.unguarded(tx, [routed.ENTRIES]):
        if same_store and old.there and old.whole:
            carry.all_of_it()
        elif same_store and readable and not old.there:
            pass  # it is from before routing: nothing of it was changed since the backup, which is later
        else:
            carry.what_is_certain(there=same_store and old.there)
        tx.execute("UPDATE routing_entries SET state = 'active', state_reason = '' WHERE state = 'resuming'")
    highest = routed.highest_generation(tx.rows)
    known = old.whole or (readable and not old.there)
    if old.there:
        try:
            highest = max(highest, routed.highest_generation(old.ask))
        except StorageError:
            known = False
    moved.generation = highest if known and same_store else highest + routed.GENERATION_LEAP
    if moved.generation:
        working.keep_generations(tx, moved.generation)
        raise_generations(tx, moved.generation)
    moved.removed = routed.is_removed(tx)
    return moved


class _Carry:
    """One carrying over, with the triggers away that demand an order of events."""

    def __init__(self, tx: Transaction, old: Old, moved: routed.Moved, at: float) -> None:
        self._tx, self._ask, self._moved, self._at = tx, old.ask, moved, at

    # --- the old content is whole ----------------------------------------------------------------------------

    def all_of_it(self) -> None:
        """Take everything over."""
        self._removal()
        mine, theirs = routed.by_key(self._tx.rows, routed.ENTRIES), routed.by_key(self._ask, routed.ENTRIES)
        for key, row in theirs.items():
            self._stand(mine.get(key), row)
        gone = {
            str(key) for (key,) in self._ask(
                "SELECT value FROM deletions, json_each(deletions.keys) WHERE kind = 'route'"
            )
        }
        for (key,), _row in mine.items():
            if (key,) in theirs:
                continue
            if key not in gone:
                routed.stop(self._tx, key, NOT_THERE, at=self._at)
                self._moved.stopped += 1
                continue
            routed.take_out(self._tx, routed.ENTRIES, (key,))
            deletions.record(
                self._tx, actor=ACTOR, reason=FORGOTTEN, kind="route", keys=[key], rows=1, at=self._at
            )
            self._moved.forgotten += 1
        self._people()
        self._tx.execute("DELETE FROM routing_unserved")
        for row in routed.rows_of(self._ask, "routing_unserved"):
            routed.put(self._tx, "routing_unserved", row)

    def _stand(self, mine: owed.Row | None, row: owed.Row) -> None:
        """Let an entry of the old content stand, in a session that is there."""
        changed = mine is None or {**mine} != {**row}
        lost = not routed.has_session(self._tx, row["session_id"])
        if lost and mine is not None and mine["generation"] == row["generation"] and (
            routed.has_session(self._tx, mine["session_id"])
        ):
            # It was compacted since, and not reset: what is there is the earlier part of the same conversation.
            row, lost = row | {"session_id": mine["session_id"]}, False
        routed.put(self._tx, routed.ENTRIES, row)
        self._moved.routes += changed
        if lost and row["state"] not in routed.STOPPED:
            routed.stop(self._tx, row["session_key"], LOST, at=self._at)
            self._moved.stopped += 1

    def _people(self) -> None:
        mine, theirs = routed.by_key(self._tx.rows, "pairing_users"), routed.by_key(self._ask, "pairing_users")
        self._moved.unpaired += len({*mine} - {*theirs})
        self._moved.paired += len({*theirs} - {*mine})
        codes = {str(row["code_digest"]) for row in routed.rows_of(self._ask, "pairing_requests")}
        self._moved.codes += sum(
            row["code_digest"] is not None and str(row["code_digest"]) not in codes
            for row in routed.rows_of(self._tx.rows, "pairing_requests")
        )
        for table in routed.PAIRING:
            self._tx.execute(f"DELETE FROM {table}")
            for row in routed.rows_of(self._ask, table):
                routed.put(self._tx, table, row)

    # --- it is not -------------------------------------------------------------------------------------------

    def what_is_certain(self, *, there: bool) -> None:
        """Take over what is later in the old content, as far as it can be read, and believe nobody."""
        if there:
            for take in (self._removal, self._later_entries, self._locks):
                try:
                    take()
                except StorageError:
                    continue  # as far as it can be read; the rest is judged like what was not there
        self._moved.codes += routed.void_codes(self._tx)
        (count,) = self._tx.rows("SELECT count(*) FROM pairing_users")[0]
        self._tx.execute("DELETE FROM pairing_users")
        self._moved.unpaired += int(count)

    def _later_entries(self) -> None:
        mine = routed.by_key(self._tx.rows, routed.ENTRIES)
        for key, row in routed.by_key(self._ask, routed.ENTRIES).items():
            there = mine.get(key)
            if not routed.problem_of(row) and (there is None or routed.later_of(routed.ENTRIES, there, row)):
                self._stand(there, row)

    def _locks(self) -> None:
        mine = routed.by_key(self._tx.rows, "pairing_failures")
        for key, row in routed.by_key(self._ask, "pairing_failures").items():
            there = mine.get(key)
            if there is None or routed.later_of("pairing_failures", there, row):
                routed.put(self._tx, "pairing_failures", row)

    # --- both ------------------------------------------------------------------------------------------------

    def _removal(self) -> None:
        for row in routed.rows_of(self._ask, "routing_home", "removed_at IS NOT NULL"):
            routed.remove_home(self._tx, row)
