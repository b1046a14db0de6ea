"""Gateways of a recovered store: nobody is let in on a row that is not sure, and no removed id comes free.

Invariant: of two versions of a row the later state stands. An instance of which anything that lets it in is uncertain,
lost, or may have changed in commits that are gone is revoked; so are tokens. A removed instance has its tombstone, a
thread the instance that it is bound to, and a thread's status is what its turns and stops say. What may stand only once
(a nickname, an active turn, a stop that is owed) stands once: its index is made after the rows. Nothing is thrown away.

Not for: obligations (`owing`), nor a store that takes recovered content (`maintenance.replacement.serving`). Settling
turns that ran was rejected: the next connection asks the gateway, which knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.instances.nicknames import nickname_key
from hermes_state.instances.removal import HORIZON_SECONDS
from hermes_state.turns import stops
from hermes_state.turns.records import transport_of
from maintenance.dialects.native import owed, serving
from maintenance.recovery.filling import key_of
from maintenance.recovery.notes import Key
from maintenance.recovery.owing import suppress
from maintenance.replacement.serving import NUMBER_LEAP

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from maintenance.recovery.filling import Filler, TableFiller
    from maintenance.recovery.ladder import Fate

STEP = 6  # the schema step that made the last of the tables
ACTOR = "hermes-state sessions recover"
NOT_SURE = "its store was damaged, and it is not sure that it was not revoked"
ROW_LOST = "its row was lost to damage"
ANSWER_NOT_KNOWN = "its store was damaged, and it is not known whether it was answered"
ANOTHER_TURN = "its store was damaged, and a later turn of its thread was found"
ANOTHER_STOP = "another stop of the same session is owed"
NO_STOP = "its store was damaged, and no stop is owed"
_JSON = (
    ("turn_items", ("fields",)), ("interactions", ("args", "questions", "answers")),
    ("gateway_operations", ("outcome",)), ("home_deliveries", ("payload",)),
)
_OBJECTS = frozenset({"fields", "args", "answers"})


def give_instances(filler: Filler, fillers: dict[str, TableFiller], clock: Clock) -> None:
    """Before references are mended: a bound thread whose instance is lost gets a revoked one, a turn its thread."""
    if not {*fillers} >= serving.TABLES:
        return
    db, at = filler.db, clock.now()
    with filler.mending("instances") as due:
        if not due:
            return
        for (name,) in db.rows(
            "SELECT DISTINCT instance_id FROM thread_bindings AS b WHERE typeof(instance_id) = 'text' AND NOT EXISTS"
            " (SELECT 1 FROM gateway_instances AS i WHERE i.instance_id = b.instance_id) ORDER BY instance_id"
        ):
            row = serving.free_nickname(db, {
                "instance_id": name, "nickname": name, "nickname_key": nickname_key(name), "state": "revoked",
            })
            db.execute(
                "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, state, state_at, state_actor,"
                " state_reason, created_at, enrolled_at) VALUES (?, ?, ?, 'revoked', ?, ?, ?, ?, ?)",
                (name, row["nickname"], row["nickname_key"], at, ACTOR, ROW_LOST, at, at),
            )
            (no,) = db.rows("SELECT no FROM gateway_instances WHERE instance_id = ?", (name,))[0]
            filler.notes.made(fillers["gateway_instances"].number, int(no))
            filler.decisions.append({"what": "instance_made", "table": "gateway_instances", "key": name})
        for table in ("turns", "interactions"):
            for (name,) in db.rows(
                f"SELECT DISTINCT t.thread_id FROM {table} AS t JOIN thread_bindings AS b ON b.thread_id = t.thread_id"
                " WHERE NOT EXISTS (SELECT 1 FROM thread_states AS s WHERE s.thread_id = t.thread_id)"
            ):
                db.execute("INSERT INTO thread_states (thread_id) VALUES (?)", (name,))
                (rowid,) = db.rows("SELECT rowid FROM thread_states WHERE thread_id = ?", (name,))[0]
                filler.notes.made(fillers["thread_states"].number, int(rowid))
                filler.decisions.append({"what": "thread_made", "table": "thread_states", "key": name})


def settle_serving(
    filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], *, hidden: bool, numbered: bool,
    clock: Clock,
) -> None:
    """Judge instances, turns and questions of a native result.

    `hidden`: commits were found that SQLite does not see; `numbered`: the counters of numbers could be read. One
    transaction, before the list of schema steps is completed: it says whether there were such tables at all.
    """
    if not {*fillers} >= serving.TABLES:
        return
    with filler.mending("gateways") as due:
        steps = {int(number) for (number,) in filler.db.rows("SELECT number FROM migrations")}
        if not due or (steps and max(steps) < STEP):
            return
        judging = _Judging(filler, fillers, fates, hidden, clock.now())
        judging.texts()
        judging.instances()
        judging.tombstones()
        judging.once()
        judging.questions()
        judging.threads()
        judging.numbers(numbered)
        judging.epoch()


class _Judging:
    def __init__(
        self, filler: Filler, fillers: dict[str, TableFiller], fates: dict[str, Fate], hidden: bool, at: float
    ) -> None:
        self._filler, self._fillers, self._fates = filler, fillers, fates
        self._db, self._hidden, self._at = filler.db, hidden, at

    def texts(self) -> None:
        """What is no JSON any more is kept as a text in JSON, so that nothing that reads it fails."""
        for table, names in _JSON:
            for row in serving.rows_of(self._db.rows, table):
                wrong = [name for name in names if row[name] is not None and not _reads(name, row[name])]
                for name in wrong:
                    new: Any = {"unreadable": str(row[name])} if name in _OBJECTS else str(row[name])
                    same = " AND ".join(f"{key} IS ?" for key in serving.KEYS[table])
                    self._db.execute(
                        f"UPDATE {table} SET {name} = ? WHERE {same}",
                        (json.dumps([new] if name == "questions" else new), *serving.key_of(table, row)),
                    )
                if wrong:
                    self._say("gateway_text_mended", table, list(serving.key_of(table, row)), columns=wrong)

    def instances(self) -> None:
        """Nobody is let in on what is not sure."""
        db, at = self._db, self._at
        unsure = self._hidden or any(self._in_part(name) for name in serving.REGISTRY)
        ended: dict[str, str] = {}  # why, by the transport of an instance that may not connect
        for row in serving.rows_of(db.rows, "gateway_instances"):
            name = row["instance_id"]
            key = nickname_key(row["nickname"])
            if key and key != row["nickname_key"]:
                db.execute("UPDATE gateway_instances SET nickname_key = ? WHERE instance_id = ?", (key, name))
            digest = db.row("SELECT 1 FROM gateway_credentials WHERE instance_id = ?", (name,)) is not None
            doubt = unsure or self._doubt("gateway_instances", row["no"]) or (
                digest and self._doubt("gateway_credentials", [name])
            )
            if row["state"] == "enrolled" and doubt:
                serving.revoke(db, name, NOT_SURE, actor=ACTOR, at=at)
                self._end_threads(name)
                ended[transport_of(name)] = NOT_SURE
                self._say("instance_revoked", "gateway_instances", name, why=NOT_SURE)
            elif digest and row["state"] != "enrolled":
                db.execute("DELETE FROM gateway_credentials WHERE instance_id = ?", (name,))
                self._say("credential_dropped", "gateway_credentials", name)
            if row["state"] in ("revoked", "removed"):
                # Its end may be a later version of its row than that of what it was owed.
                ended[transport_of(name)] = f"its instance was {row['state']}"
        suppress(self._filler, ended, but=stops.KIND, at=at)
        self._nicknames()
        self._tokens(unsure)

    def _nicknames(self) -> None:
        """Of living instances with one nickname the certain one, or the one that changed last, keeps it."""
        seen = set()
        found = serving.rows_of(
            self._db.rows, "gateway_instances",
            "removed_at IS NULL AND nickname_key IN (SELECT nickname_key FROM gateway_instances WHERE removed_at IS"
            " NULL GROUP BY nickname_key HAVING count(*) > 1)",
        )
        for row in sorted(found, key=lambda one: (self._doubt("gateway_instances", one["no"]), -one["state_at"])):
            if row["nickname_key"] not in seen:
                seen.add(row["nickname_key"])
                continue
            free = serving.free_nickname(self._db, row)
            self._db.execute(
                "UPDATE gateway_instances SET nickname = ?, nickname_key = ? WHERE instance_id = ?",
                (free["nickname"], free["nickname_key"], row["instance_id"]),
            )
            self._say("nickname_changed", "gateway_instances", row["instance_id"], was=row["nickname"])

    def _tokens(self, unsure: bool) -> None:
        db, at = self._db, self._at
        if unsure or any(self._doubt("gateway_digest_key", one) for (one,) in db.rows(
            "SELECT one FROM gateway_digest_key"
        )):
            ended = serving.forget_tokens(db, at=at)
        else:
            ended = 0
            for row in serving.rows_of(db.rows, "enrollment_tokens", "state = 'pending'"):
                others = db.row(
                    "SELECT count(*) FROM enrollment_tokens WHERE instance_id = ? AND state = 'pending'",
                    (row["instance_id"],),
                )
                if self._doubt("enrollment_tokens", [row["token_digest"]]) or (others is not None and others[0] > 1):
                    ended += serving.forget_tokens(
                        db, at=at, which="token_digest = ?", values=(row["token_digest"],)
                    )
        if ended:
            self._say("tokens_ended", "enrollment_tokens", None, rows=ended)

    def tombstones(self) -> None:
        """A removed id whose tombstone is lost gets another one."""
        for row in serving.rows_of(self._db.rows, "gateway_instances", "state = 'removed'"):
            made = {
                "kind": serving.KIND, "key": row["instance_id"], "made_at": row["removed_at"],
                "horizon_at": row["removed_at"] + HORIZON_SECONDS, "actor": row["state_actor"],
                "reason": row["state_reason"],
            }
            if self._db.row(
                "SELECT 1 FROM tombstones WHERE kind = ? AND key = ?", (serving.KIND, row["instance_id"])
            ) is None and (made["horizon_at"] > self._at or self._in_part("tombstones")):
                serving.keep_tombstone(self._db, made)
                self._note_made("tombstones", made)
                self._say("tombstone_made", "tombstones", row["instance_id"])
        before = self._rows("tombstone_references")
        serving.hold_bindings(self._db)
        for row in self._rows("tombstone_references"):
            if row not in before:
                self._note_made("tombstone_references", row)

    def once(self) -> None:
        """Of what may stand only once the latest stands, a certain one before one that is not."""
        db, at = self._db, self._at
        for table, of, active in (
            ("turns", ("thread_id",), "state IN ('starting', 'running', 'stopping')"),
            ("stops", ("thread_id", "session_id"), "state = 'pending'"),
        ):
            seen: set[tuple[Any, ...]] = set()
            found = serving.rows_of(db.rows, table, active)
            for row in sorted(found, key=lambda one: (self._doubt(table, one["no"]), -one["no"])):
                which = tuple(row[name] for name in of)
                if which not in seen:
                    seen.add(which)
                    continue
                if table == "turns":
                    ending, why = "state = 'failed', settled_at = ?, error = ?", ANOTHER_TURN
                else:
                    ending, why = "state = 'cancelled', settled_at = ?, outcome = ?", ANOTHER_STOP
                db.execute(f"UPDATE {table} SET {ending} WHERE no = ?", (at, why, row["no"]))
                self._say("turn_ended" if table == "turns" else "stop_ended", table, row["no"], why=why)

    def questions(self) -> None:
        """A question that may have been answered is not asked again."""
        for row in serving.rows_of(self._db.rows, "interactions", "state = 'open'"):
            if self._hidden or self._doubt("interactions", row["id"]):
                self._cancel(row["id"], ANSWER_NOT_KNOWN)

    def threads(self) -> None:
        """Threads say what their turns and stops say."""
        for row in serving.rows_of(
            self._db.rows, "turns",
            "state = 'stopping' AND NOT EXISTS (SELECT 1 FROM stops WHERE stops.thread_id = turns.thread_id AND"
            " stops.state = 'pending')",
        ):
            self._db.execute(
                "UPDATE turns SET state = 'stopped', settled_at = ?, error = ? WHERE no = ?",
                (self._at, NO_STOP, row["no"]),
            )
            self._say("turn_ended", "turns", row["no"], why=NO_STOP)
        for name in serving.match_threads(self._db):
            self._say("thread_mended", "thread_states", name)

    def numbers(self, numbered: bool) -> None:
        """The number of a question that is lost is never given again: an answer to it would permit another one."""
        highest = self._filler.notes.highest(self._fillers["interactions"].number)
        if not numbered and self._in_part("interactions"):
            (given,) = self._db.rows("SELECT coalesce(max(id), 0) FROM interactions")[0]
            highest = max(highest, int(given) + NUMBER_LEAP)
        if highest > 0:
            owed.raise_sequence(self._db, "interactions", highest)

    def epoch(self) -> None:
        """The epoch of the server is above every one that a row names, and higher where it may have been raised."""
        db = self._db
        named = max(int(row[0] or 0) for row in (
            *db.rows("SELECT max(CAST(generation AS INTEGER)) FROM turns WHERE generation GLOB '[0-9]*.[0-9]*'"),
            *db.rows("SELECT max(epoch) FROM gateway_operations"),
        ))
        there = db.row("SELECT fence FROM leases WHERE name = ?", (serving.SERVER_LEASE,))
        fence = 0 if there is None else int(there[0])
        unsure = self._hidden or self._in_part("leases") or self._doubt("leases", [serving.SERVER_LEASE])
        wanted = max(fence, named) + (NUMBER_LEAP if unsure and serving.anybody(db.rows) else 0)
        if wanted <= fence:
            return
        db.execute(
            "INSERT INTO leases (name, fence) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET fence = excluded.fence",
            (serving.SERVER_LEASE, wanted),
        )
        if there is None:
            self._note_made("leases", {"name": serving.SERVER_LEASE})
        self._say("epoch_raised", "leases", serving.SERVER_LEASE, to=wanted)

    def _end_threads(self, instance_id: str) -> None:
        """What only an instance that is revoked now could have ended."""
        for no, state in self._db.rows(
            "SELECT t.no, t.state FROM turns AS t JOIN thread_bindings AS b ON b.thread_id = t.thread_id"
            " WHERE b.instance_id = ? AND t.state IN ('starting', 'running', 'stopping')", (instance_id,),
        ):
            self._db.execute(
                "UPDATE turns SET state = ?, settled_at = ?, error = ? WHERE no = ?",
                ("stopped" if state == "stopping" else "failed", self._at, NOT_SURE, no),
            )
            self._say("turn_ended", "turns", no, why=NOT_SURE)
        for (number,) in self._db.rows(
            "SELECT id FROM interactions WHERE instance_id = ? AND state = 'open'", (instance_id,)
        ):
            self._cancel(number, NOT_SURE)

    def _cancel(self, number: int, why: str) -> None:
        self._db.execute(
            "UPDATE interactions SET state = 'cancelled', settled_at = ?, reason = ? WHERE id = ?",
            (self._at, why, number),
        )
        self._say("question_cancelled", "interactions", number, why=why)

    def _in_part(self, table: str) -> bool:
        if table not in self._fillers:
            return True
        fate = self._fates.get(table)
        apart = self._filler.notes.count("_recovery_apart", self._fillers[table].number)
        return (fate is not None and not fate.whole) or bool(apart)

    def _doubt(self, table: str, key: Any) -> bool:
        one = self._fillers[table]
        said: Key = key if one.table.rowid is not None and not isinstance(key, list) else _key(one, key)
        return self._filler.notes.doubt(one.number, said) is not None

    def _rows(self, table: str) -> list[owed.Row]:
        return serving.rows_of(self._db.rows, table)

    def _note_made(self, table: str, row: owed.Row) -> None:
        one = self._fillers[table]
        self._filler.notes.made(one.number, _key(one, [row[one.table.names[place]] for place in one.table.key]))

    def _say(self, what: str, table: str, key: Any, **more: Any) -> None:
        self._filler.decisions.append({"what": what, "table": table, "key": key} | more)


def _key(one: TableFiller, values: Sequence[Any]) -> Key:
    """The key of a row of a table without rowid, as notes know it."""
    cells: list[Any] = [None] * len(one.table.names)
    for place, value in zip(one.table.key, values, strict=True):
        cells[place] = value
    return key_of(one.table, None, cells)


def _reads(name: str, text: Any) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False
    return isinstance(found, dict) if name in _OBJECTS else isinstance(found, list) if name == "questions" else True
