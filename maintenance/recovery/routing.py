"""Routing of a recovered store: nobody may write on a row that is not sure, and no conversation begins anew.

Invariant: of two versions of a row the later stands. An entry that the program could not read is kept apart; one that
is not certain needs a new session, since it may have been stopped; an interrupted turn is taken up only where its row
is. Somebody who is paired on a row that is not certain, or where such rows or commits are gone, is kept apart: pair
them again. Where codes, locks or commits may be gone no code opens anything. Where entries or the floor of generations
may be gone every conversation gets a generation above all that may have been given out. Nothing is filled in: no bot,
no home, no chat.

Not for: a store that takes recovered content (`maintenance.replacement.routing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.routing.pairing import MOST_FAILURES
from maintenance.dialects.native import routed
from maintenance.interop.typed import CellReader
from maintenance.quoting import quoted
from maintenance.recovery.filling import key_of
from maintenance.recovery.notes import said_cells

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from maintenance.recovery.filling import Filler, TableFiller
    from maintenance.recovery.ladder import Fate
    from maintenance.recovery.notes import Key

STEP = 7  # the schema step that made the tables
RUNG = "judged"
NOT_COUNTED = "nobody counts failures so: it may be a row of another table"
NOT_READ = "it cannot be read: "
NOT_SURE = "its store was damaged, and it is not sure that this was not taken back"
MAY_BE_STOPPED = "its row was recovered and is not certain; it may have been stopped"


def settle_routing(
    filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], *, hidden: bool, clock: Clock
) -> None:
    """Judge chats and people of a native result. `hidden`: commits were found that SQLite does not see.

    One transaction, before the list of schema steps is completed: it says whether there was routing at all.
    """
    if not {*fillers} >= routed.TABLES:
        return
    with filler.mending("routing") as due:
        steps = {int(number) for (number,) in filler.db.rows("SELECT number FROM migrations")}
        if not due or (steps and max(steps) < STEP):
            return
        judging = _Judging(filler, fillers, fates, hidden, clock.now())
        judging.entries()
        judging.people()
        judging.generations()


class _Judging:
    def __init__(
        self, filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], hidden: bool, at: float
    ) -> None:
        self._filler, self._fillers, self._fates = filler, fillers, fates
        self._db, self._hidden, self._at = filler.db, hidden, at
        self._highest = 0
        # Counted before anything is judged: rows that are kept apart here are no sign of damage beside them.
        self._found_apart = {
            name: filler.notes.count("_recovery_apart", fillers[name].number) for name in routed.TABLES
        }

    def entries(self) -> None:
        """What cannot be read is kept apart; what is not certain needs a new session."""
        self._highest = routed.highest_generation(self._db.rows)
        for row in routed.rows_of(self._db.rows, routed.ENTRIES):
            name = row["session_key"]
            key = self._key(routed.ENTRIES, row)
            if problem := routed.problem_of(row):
                self._apart(routed.ENTRIES, row, f"{NOT_READ}{problem}")
                self._say("route_kept_apart", routed.ENTRIES, name, why=problem)
            elif self._doubt(routed.ENTRIES, key) and row["state"] not in routed.STOPPED:
                routed.stop(self._db, name, MAY_BE_STOPPED, at=self._at)
                self._say("route_stopped", routed.ENTRIES, name, why=MAY_BE_STOPPED)
            elif self._hidden and row["state"] == "resuming":
                self._db.execute(
                    "UPDATE routing_entries SET state = 'active', state_reason = '', version = version + 1"
                    " WHERE session_key = ?", (name,),
                )
                self._say("route_not_resumed", routed.ENTRIES, name)

    def people(self) -> None:
        """Nobody may write, and no code opens anything, on what is not sure."""
        for row in routed.rows_of(self._db.rows, "pairing_failures"):
            if row["failures"] < 1 or (row["locked_until"] is None) is not (row["failures"] < MOST_FAILURES):
                self._apart("pairing_failures", row, NOT_COUNTED)
                self._say("failures_kept_apart", "pairing_failures", row["platform"], why=NOT_COUNTED)
        unsure = self._hidden or self._in_part("pairing_users")
        for row in routed.rows_of(self._db.rows, "pairing_users"):
            if unsure or self._doubt("pairing_users", self._key("pairing_users", row)):
                self._apart("pairing_users", row, NOT_SURE)
                self._say("person_not_paired", "pairing_users", [row["platform"], row["user_id"]], why=NOT_SURE)
        unsure = self._hidden or any(self._in_part(name) for name in routed.PAIRING)
        for row in routed.rows_of(self._db.rows, "pairing_requests", "code_digest IS NOT NULL"):
            key = routed.key_of("pairing_requests", row)
            if unsure or self._doubt("pairing_requests", self._key("pairing_requests", row)):
                routed.void_codes(self._db, "platform = ? AND user_id = ?", key)
                self._say("code_void", "pairing_requests", list(key))

    def generations(self) -> None:
        """No conversation gets a generation that may have been given out."""
        lost = [name for name in (routed.ENTRIES, "routing_home") if self._in_part(name)]
        doubt = any(
            self._doubt(name, self._key(name, row)) for name in (routed.ENTRIES, "routing_home")
            for row in routed.rows_of(self._db.rows, name)
        )
        apart = self._highest > routed.highest_generation(self._db.rows)
        if not (lost or doubt or apart or self._hidden):
            return
        to = self._highest + routed.GENERATION_LEAP
        self._db.execute(
            "UPDATE routing_entries SET generation = ?1 + 1, version = version + 1 WHERE generation <= ?1", (to,)
        )
        if self._db.row("SELECT 1 FROM routing_home") is None:
            self._filler.notes.made(self._fillers["routing_home"].number, 1)
        self._db.execute(
            "INSERT INTO routing_home (one, generation_floor) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE"
            " SET generation_floor = max(generation_floor, excluded.generation_floor)", (to,),
        )
        said = "Chats may be lost: every conversation is of a higher generation than any that was given out."
        if "routing_home" in lost:
            said += " Whether the home was marked as removed is not known."
        self._say("generations_raised", "routing_home", 1, to=to, sentence=said)

    def _apart(self, table: str, row: dict[str, Any], reason: str) -> None:
        """Take a row out of the result and keep it beside it."""
        one, key = self._fillers[table], self._key(table, row)
        where = " AND ".join(f"{quoted(name)} IS ?" for name in routed.KEYS[table])
        found = self._db.row(
            f"SELECT {CellReader(one.table.names).sql} FROM {table} WHERE {where}", list(routed.key_of(table, row))
        )
        assert found is not None  # it was read in this transaction
        cells = CellReader(one.table.names).cells(found)
        self._filler.notes.apart(one.number, key, reason, {
            "table": table, "key": key, "reason": reason, "rung": RUNG, "values": said_cells(one.table.names, cells),
        })
        routed.take_out(self._db, table, routed.key_of(table, row))
        self._filler.notes.proven(one.number, key)

    def _in_part(self, table: str) -> bool:
        fate = self._fates.get(table)
        return (fate is not None and not fate.whole) or bool(self._found_apart[table])

    def _key(self, table: str, row: dict[str, Any]) -> Key:
        one = self._fillers[table]
        if one.table.rowid is not None:
            where = " AND ".join(f"{quoted(name)} IS ?" for name in routed.KEYS[table])
            found = self._db.row(
                f"SELECT {one.table.rowid} FROM {table} WHERE {where}", list(routed.key_of(table, row))
            )
            assert found is not None
            return int(found[0])
        return key_of(one.table, None, [row.get(name) for name in one.table.names])

    def _doubt(self, table: str, key: Key) -> bool:
        return self._filler.notes.doubt(self._fillers[table].number, key) is not None

    def _say(self, what: str, table: str, key: Any, **more: Any) -> None:
        self._filler.decisions.append({"what": what, "table": table, "key": key} | more)
