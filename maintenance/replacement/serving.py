"""Gateways of a store, once its content is replaced by older content: nobody who was put out comes in again.

Invariant: where the old content can be read whole, its instances, credentials, tokens, tombstones and what its gateways
did stand, and of the new content only what the old one has nothing of is left, ended: an instance revoked, a turn
failed, a question cancelled. Where it cannot, nobody knows who was revoked since: every enrolled instance is revoked
until it is enrolled again, no token opens anything, and what was under way has ended; of the old content what ended
there has ended.

Not for: obligations (`owing`), which are carried over before. Leaving credentials as a backup has them was rejected:
one that was revoked since, because it was stolen, would open again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.errors import StorageError
from hermes_state.turns.ending import end_of_instance
from maintenance.dialects.native import owed, serving
from maintenance.replacement import old as old_content
from maintenance.replacement.old import Old, look_at

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Transaction

ACTOR = "hermes-state"
NOT_KNOWN = "the content of the store was replaced, and it is not known whether it was revoked since"
NOT_THERE = "the store whose content was replaced had no such instance"
LOST = "it is lost: the content of the store was replaced by an older one, and how it ended is not known"
# Numbers of questions that may have been given out since, and are in obligations and in what people were shown.
NUMBER_LEAP = 1_000_000
_NUMBERED = ("gateway_instances", "turns", "interactions", "stops", "home_deliveries")
_OF_AN_INSTANCE = ("gateway_links", "gateway_last_seen", "gateway_attention", "gateway_cursors", "home_threads")
_UNGUARDED = sorted(serving.TABLES)


def old_serving(ask: owed.Ask, *, hidden: bool) -> Old:
    """Look at the old content. `hidden`: commits may stand in its WAL that SQLite does not see."""
    tables = serving.TABLES | {"tombstones", "tombstone_references"}
    return look_at(ask, serving.has_instances, tables, hidden=hidden)


def make_room(store: ExclusiveStore, old: Old, clock: Clock) -> bool:
    """Bring a private copy from before instances up, when the old content has some; whether it has the tables."""
    return old_content.make_room(store, old, clock, serving.has_instances, serving.any_instance)


def carry_over(tx: Transaction, old: Old, *, same_store: bool, at: float) -> serving.Brought:
    """Let what is known of the old content hold in the new. `at` is now, epoch seconds UTC."""
    brought = serving.Brought()
    carry = _Carry(tx, old.ask, brought, at)
    with serving.unguarded(tx, _UNGUARDED):
        if same_store and old.there and old.whole:
            ended = carry.all_of_it()
        else:
            ended = carry.what_is_certain(there=same_store and old.there)
        carry.match()
    for instance_id, why, for_good in ended:
        end_of_instance(tx, instance_id, why, for_good=for_good, at=at)
    serving.hold_bindings(tx)
    return brought


class _Carry:
    """One carrying over, with the triggers away that demand an order of events."""

    def __init__(self, tx: Transaction, ask: owed.Ask, brought: serving.Brought, at: float) -> None:
        self._tx, self._ask, self._brought, self._at = tx, ask, brought, at
        self._names: dict[str, list[str]] = {}  # of the old content, by table
        self._into = {name: serving.columns(tx.rows, name) for name in serving.TABLES}

    # --- the old content is whole ----------------------------------------------------------------------------

    def all_of_it(self) -> list[tuple[str, str, bool]]:
        """Take everything over; which instances ended, and why."""
        tx = self._tx
        self._raise_numbers(0)
        under_way = self._under_way()
        known = self._instances()
        self._tombstones(living=True)
        for name in serving.ADMITS:
            if name != "gateway_digest_key" or self._ask("SELECT 1 FROM gateway_digest_key"):
                tx.execute(f"DELETE FROM {name}")
            self._put_all(name)
        ended = self._unknown_instances(known)
        threads = self._threads()
        for name in _OF_AN_INSTANCE:
            tx.executemany(f"DELETE FROM {name} WHERE instance_id = ?", [(one,) for one in known])
            self._put_all(name)
        self._put_all("gateway_operations")
        self._deliveries()
        self._brought.settled += len(under_way - self._under_way())
        self._end(threads, {str(name) for (name,) in self._ask("SELECT id FROM gateway_operations")})
        return ended

    def _under_way(self) -> set[tuple[str, Any]]:
        """What has not ended, by table and id."""
        ids = {"turns": "turn_id", "interactions": "id", "stops": "stop_id", "gateway_operations": "id"}
        return {
            (table, one) for table, name in ids.items()
            for (one,) in self._tx.rows(f"SELECT {name} FROM {table} WHERE settled_at IS NULL")
        }

    def _instances(self) -> set[str]:
        tx, before = self._tx, serving.rows_of(self._tx.rows, "gateway_instances")
        was = {row["instance_id"]: row for row in before}
        # No nickname is in the way of another: two may have been exchanged.
        tx.execute("UPDATE gateway_instances SET nickname_key = 'number ' || no || x'00'")
        known: set[str] = set()
        for row in serving.rows_of(self._ask, "gateway_instances"):
            known.add(row["instance_id"])
            there = was.get(row["instance_id"])
            self._brought.instances += there is None or {**there, "no": 0} != {**row, "no": 0}
            self._put("gateway_instances", row)
        for row in before:
            if row["instance_id"] not in known:
                named = serving.free_nickname(tx, row)
                tx.execute(
                    "UPDATE gateway_instances SET nickname = ?, nickname_key = ? WHERE instance_id = ?",
                    (named["nickname"], named["nickname_key"], row["instance_id"]),
                )
        return known

    def _unknown_instances(self, known: set[str]) -> list[tuple[str, str, bool]]:
        ended = []
        for row in serving.rows_of(self._tx.rows, "gateway_instances"):
            name = row["instance_id"]
            if name not in known:
                self._brought.revoked += serving.revoke(self._tx, name, NOT_THERE, actor=ACTOR, at=self._at)
                ended.append((name, NOT_THERE, row["state"] == "removed"))
            elif row["state"] in ("revoked", "removed"):
                ended.append((name, f"its instance was {row['state']}", row["state"] == "removed"))
        return ended

    def _threads(self) -> set[str]:
        """Take threads with all that happened in them; which ones."""
        tx, taken = self._tx, set()
        for row in serving.rows_of(self._ask, "thread_bindings"):
            thread_id = row["thread_id"]
            taken.add(thread_id)
            before = tx.row("SELECT * FROM thread_bindings WHERE thread_id = ?", (thread_id,))
            self._brought.threads += before is None
            # With its state, its turns and its questions, by the references between them.
            tx.execute("DELETE FROM thread_bindings WHERE thread_id = ?", (thread_id,))
            self._put("thread_bindings", row)
            where = f"thread_id = CAST(x'{thread_id.encode('utf-8', 'surrogatepass').hex()}' AS TEXT)"
            self._put_all("thread_states", where)
            for turn in self._theirs("turns", where):
                self._put("turns", turn)
                (no,) = tx.rows("SELECT no FROM turns WHERE turn_id = ?", (turn["turn_id"],))[0]
                for item in self._theirs("turn_items", f"turn_no = {turn['no']}"):
                    self._put("turn_items", item | {"turn_no": no})
            for question in self._theirs("interactions", where):
                self._make_way(question["id"])
                self._put("interactions", question)
            tx.execute("DELETE FROM stops WHERE thread_id = ?", (thread_id,))
        self._put_all("stops")
        return taken

    def _make_way(self, number: int) -> None:
        """A question is known by its number: one of a thread that only the new content has gets another one."""
        if self._tx.row("SELECT 1 FROM interactions WHERE id = ?", (number,)) is None:
            return
        (free,) = self._tx.rows("SELECT seq + 1 FROM sqlite_sequence WHERE name = 'interactions'")[0]
        self._tx.execute("UPDATE interactions SET id = ? WHERE id = ?", (free, number))
        owed.raise_sequence(self._tx, "interactions", free)

    # --- it is not -------------------------------------------------------------------------------------------

    def what_is_certain(self, *, there: bool) -> list[tuple[str, str, bool]]:
        """Take over what ended in the old content, as far as it can be read, and believe nobody; who ended."""
        tx, at = self._tx, self._at
        if there:
            for take in (
                self._later_instances, self._tombstones, self._later_bindings, self._endings, self._deliveries
            ):
                try:
                    take()
                except StorageError:
                    continue  # as far as it can be read; the rest is judged like what was not there
        self._raise_numbers(NUMBER_LEAP)
        ended = [
            (str(name), NOT_KNOWN if state == "enrolled" else f"its instance was {state}", state == "removed")
            for name, state in tx.rows("SELECT instance_id, state FROM gateway_instances WHERE state <> 'configured'")
        ]
        for name, why, _for_good in ended:
            self._brought.revoked += serving.revoke(tx, name, why, actor=ACTOR, at=at)
        self._brought.tokens += serving.forget_tokens(tx, at=at)
        self._end(set(), set())
        return ended

    def _later_instances(self) -> None:
        for row in serving.rows_of(self._ask, "gateway_instances"):
            there = serving.find(self._tx, "gateway_instances", row)
            if there is None or serving.later_of("gateway_instances", there, row):
                self._put("gateway_instances", serving.free_nickname(self._tx, row))
                self._brought.instances += 1

    def _later_bindings(self) -> None:
        for row in serving.rows_of(self._ask, "thread_bindings"):
            bound = serving.find(self._tx, "thread_bindings", row) is not None
            if not bound and serving.find(self._tx, "gateway_instances", row) is not None:
                self._put("thread_bindings", row)
                self._brought.threads += 1

    def _endings(self) -> None:
        self._brought.settled += serving.take_endings(self._tx, self._ask)

    # --- both ------------------------------------------------------------------------------------------------

    def match(self) -> None:
        """Let threads say what their turns and stops say."""
        self._tx.execute(
            "UPDATE turns SET state = 'stopped', settled_at = ? WHERE state = 'stopping' AND NOT EXISTS (SELECT 1 FROM"
            " stops WHERE stops.thread_id = turns.thread_id AND stops.state = 'pending')", (self._at,),
        )
        serving.match_threads(self._tx)

    def _end(self, known: set[str], operations: set[str]) -> None:
        """End what was under way in threads, and of operations, of which the old content says nothing."""
        tx, at = self._tx, self._at
        for no, thread_id in tx.rows("SELECT no, thread_id FROM turns WHERE state IN ('starting', 'running')"):
            if thread_id not in known:
                tx.execute("UPDATE turns SET state = 'failed', settled_at = ?, error = ? WHERE no = ?", (at, LOST, no))
                self._brought.lost += 1
        for number, thread_id in tx.rows("SELECT id, thread_id FROM interactions WHERE state = 'open'"):
            if thread_id not in known:
                tx.execute(
                    "UPDATE interactions SET state = 'cancelled', settled_at = ?, reason = ? WHERE id = ?",
                    (at, LOST, number),
                )
                self._brought.cancelled += 1
        for (name,) in tx.rows("SELECT id FROM gateway_operations WHERE settled_at IS NULL"):
            if name not in operations:
                tx.execute(
                    "UPDATE gateway_operations SET state = 'indeterminate', settled_at = ?, why = ? WHERE id = ?",
                    (at, LOST, name),
                )

    def _tombstones(self, *, living: bool = False) -> None:
        """Removed ids stay out. `living`: the old content is believed about those that it has and are not removed."""
        tx = self._tx
        if living:
            for (name,) in tx.rows(
                "SELECT key FROM tombstones AS t WHERE kind = ? AND EXISTS (SELECT 1 FROM gateway_instances AS i"
                " WHERE i.instance_id = t.key AND i.state <> 'removed')", (serving.KIND,),
            ):
                tx.execute("DELETE FROM tombstone_references WHERE kind = ? AND key = ?", (serving.KIND, name))
                tx.execute("DELETE FROM tombstones WHERE kind = ? AND key = ?", (serving.KIND, name))
        for row in serving.rows_of(self._ask, "tombstones", f"kind = '{serving.KIND}'"):
            self._brought.tombstones += serving.keep_tombstone(tx, row)

    def _deliveries(self) -> None:
        for row in serving.rows_of(self._ask, "home_deliveries"):
            if serving.find(self._tx, "home_deliveries", row) is None:
                self._put("home_deliveries", row)
        for (to,) in self._ask("SELECT forgotten_to FROM home_horizon"):
            self._tx.execute(
                "INSERT INTO home_horizon (one, forgotten_to) VALUES (1, ?)"
                " ON CONFLICT (one) DO UPDATE SET forgotten_to = max(forgotten_to, excluded.forgotten_to)", (to,),
            )

    def _raise_numbers(self, leap: int) -> None:
        """No number that the old content may have given is given again."""
        given: dict[str, int] = {}
        if not leap:
            given = {str(name): int(to) for name, to in self._ask("SELECT name, seq FROM sqlite_sequence")}
        for name in _NUMBERED:
            there = self._tx.row("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,))
            mine = 0 if there is None else int(there[0]) + leap
            owed.raise_sequence(self._tx, name, max(mine, given.get(name, leap)))

    def _put_all(self, table: str, where: str = "true") -> None:
        for row in self._theirs(table, where):
            self._put(table, row)

    def _theirs(self, table: str, where: str) -> list[owed.Row]:
        """Rows of the old content, which is whole."""
        if table not in self._names:
            self._names[table] = serving.columns(self._ask, table)
        return serving.rows_of(self._ask, table, where, indexed=True, names=self._names[table])

    def _put(self, table: str, row: owed.Row) -> None:
        for number in ("no", "id"):
            if number in row and table in _NUMBERED and self._tx.row(
                f"SELECT 1 FROM {table} WHERE {number} = ?", (row[number],)
            ) is not None:
                row = {name: value for name, value in row.items() if name != number}
        serving.put(self._tx, table, row, into=self._into[table])
