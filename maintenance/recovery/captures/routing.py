"""Routing of a native capture: what a lost WAL stopped stays stopped, and nobody is let in by it.

Invariant: a removal of the home, a chat that was stopped, reset or forgotten, a person who was put out and a code that
was used in the lost WAL alone take effect in the store. A chat that only the lost WAL has comes in, in the session that
was merged before, or else needing a new one. No generation falls. What the store knows later stays, and merging again
changes nothing.

Not for: people who were paired in the lost WAL: the store cannot know whether that was taken back. What was not served
is found out anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hermes_state import deletions
from hermes_state.changes.records import record
from maintenance.dialects.native import owed, routed, serving

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction
    from maintenance.recovery.captures.view import View

ACTOR = "hermes-state sessions captures"
FORGOTTEN = "it was forgotten in a WAL that was lost"
LOST = "the session that it went on in is not here: its WAL was lost"


def merge_routing(core: Core, view: View, *, at: float, write: bool) -> int:
    """Bring in what only the capture holds of routing; returns how many rows it changes or adds. `at` is now."""
    with view.opened(routed.has_routing) as both:
        if both is None:
            return 0
        whole, before = both
        if not write:
            with core.reader() as reader:
                if not routed.has_routing(reader.rows):
                    return len(routed.rows_of(whole.rows, routed.ENTRIES))
                return _Merge(owed.Looking(reader), whole, before, at).run()

        def work(tx: Transaction) -> int:
            one = _Merge(tx, whole, before, at)
            with serving.unguarded(tx, [routed.ENTRIES]):
                done = one.run()
            for key in one.forgotten:
                deletions.record(tx, actor=ACTOR, reason=FORGOTTEN, kind="route", keys=[key], rows=1, at=at)
            for table, key, operation in one.touched:
                record(tx, table, key, operation, at)
            return done

        return core.write(work, durability="power", deadline_seconds=60.0)


class _Merge:
    def __init__(self, tx: owed.Writer, whole: Reader, before: Reader | None, at: float) -> None:
        self._tx, self._whole, self._before, self._at = tx, whole, before, at
        self.forgotten: list[str] = []  # keys of entries that went
        # For the feed of changes: table, key, operation.
        self.touched: list[tuple[str, str, Literal["insert", "update", "delete"]]] = []

    def run(self) -> int:
        """Everything; how many rows."""
        highest = max(routed.highest_generation(self._tx.rows), routed.highest_generation(self._whole.rows))
        done = self._removal() + self._entries(highest) + self._people() + self._codes() + self._locks()
        if highest:
            self._tx.execute(
                "INSERT INTO routing_home (one, generation_floor) VALUES (1, ?) ON CONFLICT (one) DO UPDATE"
                " SET generation_floor = max(generation_floor, excluded.generation_floor)", (highest,),
            )
        return done

    def _removal(self) -> int:
        found = routed.rows_of(self._whole.rows, "routing_home", "removed_at IS NOT NULL")
        if not found or routed.is_removed(self._tx):
            return 0
        routed.remove_home(self._tx, found[0])
        return 1

    def _entries(self, highest: int) -> int:
        tx, done = self._tx, 0
        here, there = routed.by_key(tx.rows, routed.ENTRIES), routed.by_key(self._whole.rows, routed.ENTRIES)
        was = {} if self._before is None else routed.by_key(self._before.rows, routed.ENTRIES)
        gone = routed.forgotten(tx)
        for key, row in there.items():
            mine = here.get(key)
            if mine is None and (key in was or key[0] in gone):
                continue  # the store had it, and forgot it
            if mine is not None and not routed.later_of(routed.ENTRIES, mine, row):
                continue
            if mine is not None and key in was and routed.later_of(routed.ENTRIES, was[key], mine) and (
                mine["state"] in routed.STOPPED
            ):
                continue  # both changed it since, and the store stopped it
            # Whoever read the row of either finds that it went on.
            routed.put(tx, routed.ENTRIES, row | {"version": row["version"] + 1, "updated_at": self._at})
            if row["state"] not in routed.STOPPED and not routed.has_session(tx, row["session_id"]):
                routed.stop(tx, row["session_key"], LOST, at=self._at)
            self.touched.append((routed.ENTRIES, key[0], "insert" if mine is None else "update"))
            done += 1
        forgotten = self._last("SELECT value, made_at FROM deletions, json_each(deletions.keys) WHERE kind = 'route'")
        for key, mine in here.items():
            if key not in there and mine["updated_at"] < forgotten.get(key[0], mine["updated_at"]):
                routed.take_out(tx, routed.ENTRIES, key)
                self.forgotten.append(key[0])
                self.touched.append((routed.ENTRIES, key[0], "delete"))
                done += 1
        return done

    def _people(self) -> int:
        """Who was put out in the lost WAL, after they were let in here, is out."""
        done, there = 0, routed.by_key(self._whole.rows, "pairing_users")
        was = {} if self._before is None else routed.by_key(self._before.rows, "pairing_users")
        out = self._last("SELECT key, at FROM changes WHERE table_name = 'pairing_users' AND operation = 'delete'")
        for key, mine in routed.by_key(self._tx.rows, "pairing_users").items():
            later = mine["approved_at"] <= out.get("/".join(key), -1.0)
            if key not in there and (later or was.get(key) == mine):
                routed.take_out(self._tx, "pairing_users", key)
                self.touched.append(("pairing_users", "/".join(key), "delete"))
                done += 1
        return done

    def _codes(self) -> int:
        """A code that the lost WAL used or replaced opens nothing."""
        there = {row["code_digest"] for row in routed.rows_of(self._whole.rows, "pairing_requests")}
        was: set[object] = set() if self._before is None else {
            row["code_digest"] for row in routed.rows_of(self._before.rows, "pairing_requests")
        }
        used = self._last("SELECT key, at FROM changes WHERE table_name IN ('pairing_users', 'pairing_requests')")
        done = 0
        for row in routed.rows_of(self._tx.rows, "pairing_requests", "code_digest IS NOT NULL"):
            later = row["requested_at"] <= used.get(f"{row['platform']}/{row['user_id']}", -1.0)
            if row["code_digest"] not in there and (later or row["code_digest"] in was):
                done += routed.void_codes(
                    self._tx, "platform = ? AND user_id = ?", routed.key_of("pairing_requests", row)
                )
        return done

    def _last(self, sql: str) -> dict[str, float]:
        """When what the capture says last happened to each key."""
        found: dict[str, float] = {}
        for key, at in self._whole.rows(sql):
            found[str(key)] = max(at, found.get(str(key), at))
        return found

    def _locks(self) -> int:
        done, here = 0, routed.by_key(self._tx.rows, "pairing_failures")
        for key, row in routed.by_key(self._whole.rows, "pairing_failures").items():
            mine = here.get(key)
            if row["locked_until"] is not None and row["locked_until"] > self._at and (
                mine is None or (mine["locked_until"] or 0) < row["locked_until"]
            ):
                routed.put(self._tx, "pairing_failures", row)
                done += 1
        return done
