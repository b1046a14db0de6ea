"""Gateway instances and turns of one store in two files: which of two rows stands, and who may still connect.

Invariant: what ended stays ended. A state of an instance that either file has since the later time stands; an id that
was removed keeps its tombstone and its later horizon; a turn, a question, a stop or an operation that is settled in
either file is settled. No digest is taken over beside another one: of credentials and tokens one file is believed as a
whole, or nobody.

Not for: obligations (`owed`), nor connections, which are in the memory of a server. Adding rows one table after the
other by their numbers was rejected: both files may have given one number to different questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native.owed import Row, Writer
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

Ask = Callable[[str], list[tuple[Any, ...]]]

KIND = "instance"  # of tombstones
THREAD = "thread"  # holder kind of references to tombstones
SERVER_LEASE = "gateway server"  # its fence is the epoch of the server
ADMITS = ("gateway_digest_key", "enrollment_tokens", "gateway_credentials")
# By table, what a row is known by in whichever file, and what of it counts the later the higher it is.
KEYS: Mapping[str, tuple[str, ...]] = {
    "gateway_instances": ("instance_id",),
    "gateway_digest_key": ("one",),
    "enrollment_tokens": ("token_digest",),
    "gateway_credentials": ("instance_id",),
    "thread_bindings": ("thread_id",),
    "gateway_links": ("instance_id",),
    "gateway_last_seen": ("instance_id",),
    "gateway_attention": ("instance_id",),
    "gateway_cursors": ("instance_id", "name"),
    "gateway_operations": ("id",),
    "thread_states": ("thread_id",),
    "turns": ("turn_id",),
    "turn_items": ("turn_no", "number"),
    "interactions": ("instance_id", "boot_id", "request_id", "thread_id"),
    "stops": ("stop_id",),
    "home_threads": ("instance_id",),
    "home_deliveries": ("instance_id", "delivery_id"),
    "home_horizon": ("one",),
}
TABLES = frozenset(KEYS)
# Tables that say who may connect: of one that is not whole nobody is believed.
REGISTRY = frozenset({"gateway_instances", *ADMITS})
# What ends once: table, and the columns that say how it ended.
ENDINGS: Mapping[str, tuple[str, ...]] = {
    "turns": ("state", "settled_at", "error"),
    "interactions": ("state", "decision", "answers", "settled_at", "reason", "sent_at"),
    "stops": ("state", "settled_at", "outcome"),
    "gateway_operations": ("state", "settled_at", "outcome", "why"),
}
# The order of the states of an instance, where time does not decide: who may not connect comes last.
_RANK = {"configured": 0, "enrolled": 1, "revoked": 2, "removed": 3}
_LATER = {
    "gateway_credentials": ("issued_at",), "gateway_links": ("changed_at",), "gateway_last_seen": ("seen_at",),
    "gateway_attention": ("since",), "gateway_cursors": ("saved_at",), "thread_states": ("ensures", "rejected"),
    "home_horizon": ("forgotten_to",), "tombstones": ("horizon_at",),
    "routing_entries": ("generation", "version"), "topic_chats": ("updated_at",), "reply_seals": ("changed_at",),
    "dead_targets": ("last_at",), "credentials": ("rotation_fence", "updated_at"), "model_facts": ("declared_at",),
    "provider_registrations": ("registered_at",), "account_usage": ("as_of",),
}
# Of these a version that has ended comes after one that has not: the column that says when.
_ENDED = {"background_work": "ended_at", "lane_items": "settled_at", "login_attempts": "ended_at"}


_NEEDED: Mapping[str, frozenset[str]] = {
    "gateway_instances": frozenset({"state_at", "state"}), "enrollment_tokens": frozenset({"settled_at"}),
    "turns": frozenset({"settled_at", "items"}), "interactions": frozenset({"settled_at", "sent_at", "late"}),
    "stops": frozenset({"settled_at"}), "gateway_operations": frozenset({"settled_at", "state"}),
    **{table: frozenset(names) for table, names in _LATER.items()},
    **{table: frozenset({name}) for table, name in _ENDED.items()},
}
# Unique indexes that a stale row must not be refused by before it is known to be stale.
AFTER_ROWS = frozenset({"gateway_instances_nickname", "enrollment_tokens_pending", "turns_active", "stops_pending"})


@dataclass(kw_only=True)
class Brought:
    """What became of gateway instances and what they do, in rows."""

    instances: int = 0  # changed or added by what the other file knew of them
    revoked: int = 0  # may not connect until they are enrolled again, since nobody knows what became of them
    tokens: int = 0  # enrollment tokens that ended here
    tombstones: int = 0  # removed ids that were kept from coming back, or for longer
    threads: int = 0  # bindings and states of threads, taken from the other file
    settled: int = 0  # turns, questions, stops and operations that had ended in the other file
    lost: int = 0  # turns that ended here, because nobody knows of them any more
    cancelled: int = 0  # questions that ended here without an answer

    def document(self) -> dict[str, int]:
        """The counts."""
        return asdict(self)


def has_instances(ask: Ask) -> bool:
    """Whether a file has all the tables."""
    return {str(name) for (name,) in ask("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= TABLES


def any_instance(ask: Ask) -> bool:
    """Whether there is anything in the tables that must not be lost."""
    tables = ("gateway_instances", "home_deliveries", "home_horizon", "gateway_operations")
    return bool(ask(" UNION ALL ".join(f"SELECT * FROM (SELECT 1 FROM {name} LIMIT 1)" for name in tables)))


def anybody(ask: Ask) -> bool:
    """Whether there is an instance that could connect to a server of this store."""
    return has_instances(ask) and bool(ask("SELECT 1 FROM gateway_instances LIMIT 1"))


def columns(ask: Ask, table: str) -> list[str]:
    """The columns of a table that can be written."""
    return [str(name) for name, hidden in ask(f"SELECT name, hidden FROM pragma_table_xinfo('{table}')") if not hidden]


def rows_of(
    ask: Ask, table: str, where: str = "true", *, indexed: bool = False, names: Sequence[str] = ()
) -> list[Row]:
    """Rows of a table as dictionaries, in the order of their numbers or keys.

    `indexed`: its indexes are sound; `names`: its columns, where they are known.
    """
    names = names or columns(ask, table)
    by = "" if indexed else "NOT INDEXED"
    order = "no" if "no" in names else "id" if "id" in names else ", ".join(KEYS.get(table, names))
    found = ask(f"SELECT {', '.join(map(quoted, names))} FROM {table} {by} WHERE {where} ORDER BY {order}")
    return [dict(zip(names, row, strict=True)) for row in found]


def key_of(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is known by in whichever file."""
    return tuple(row[name] for name in KEYS[table])


def put(tx: Writer, table: str, row: Mapping[str, Any], *, into: Sequence[str]) -> None:
    """Write a row, in the place of one with the same key. `into`: the columns that the table here has."""
    said = {name: value for name, value in row.items() if name in into}
    same = " AND ".join(f"{name} IS ?" for name in KEYS[table])
    key = key_of(table, row)
    if tx.row(f"SELECT 1 FROM {table} WHERE {same}", key) is None:
        marks = ", ".join("?" * len(said))
        tx.execute(f"INSERT INTO {table} ({', '.join(map(quoted, said))}) VALUES ({marks})", list(said.values()))
        return
    said = {name: value for name, value in said.items() if name not in KEYS[table] and name not in ("no", "id")}
    if said:
        sets = ", ".join(f"{quoted(name)} = ?" for name in said)
        tx.execute(f"UPDATE {table} SET {sets} WHERE {same}", [*said.values(), *key])


def tells_later(table: str, names: Sequence[str]) -> bool:
    """Whether of two versions of a row of this table, with these columns, it can be told which is later."""
    return table in _NEEDED and {*names} >= {*_NEEDED[table], *KEYS.get(table, ())}


def later_of(table: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool | None:
    """Whether `two` comes after `one`, two versions of one row; None: they do not say."""
    if table in KEYS and key_of(table, one) != key_of(table, two):
        return None
    if table == "gateway_instances":
        first, second = ((row["state_at"], _RANK.get(str(row["state"]), 3)) for row in (one, two))
        return _above(second, first)
    if table == "enrollment_tokens" or table in ENDINGS:
        if (one["settled_at"] is None) != (two["settled_at"] is None):
            return two["settled_at"] is not None
        if table == "interactions":
            return _above((two["sent_at"] is not None, two["late"]), (one["sent_at"] is not None, one["late"]))
        if table == "turns":
            return _above((two["items"],), (one["items"],))
        if table == "gateway_operations" and {one["state"], two["state"]} == {"completed", "indeterminate"}:
            return bool(two["state"] == "completed")
        return None
    if table in _ENDED:
        first, second = one[_ENDED[table]], two[_ENDED[table]]
        return None if (first is None) == (second is None) else second is not None
    if table in _LATER:
        return _above(tuple(two[name] for name in _LATER[table]), tuple(one[name] for name in _LATER[table]))
    return None


def _above(two: tuple[Any, ...], one: tuple[Any, ...]) -> bool | None:
    """Whether `two` is greater than `one`; None when they are the same, or no numbers."""
    if two == one or not all(isinstance(value, int | float) for value in (*two, *one)):
        return None
    return two > one


@contextmanager
def unguarded(tx: Writer, tables: Sequence[str]) -> Iterator[None]:
    """These tables without their triggers: what came about in order in another file is put here as it ended."""
    marks = ", ".join("?" * len(tables))
    kept = tx.rows(
        f"SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name IN ({marks})", list(tables)
    )
    for name, _sql in kept:
        tx.execute(f"DROP TRIGGER {quoted(name)}")
    yield
    for _name, sql in kept:
        tx.execute(sql)


def free_nickname(tx: Writer, row: Row) -> Row:
    """The row with a nickname that no other living instance has; its id makes it another one."""
    from hermes_state.instances.nicknames import nickname_key

    made, number = row, 1
    while made["state"] != "removed" and tx.row(
        "SELECT 1 FROM gateway_instances WHERE nickname_key = ? AND removed_at IS NULL AND instance_id <> ?",
        (made["nickname_key"], made["instance_id"]),
    ) is not None:
        name = f"{row['nickname']} ({row['instance_id']}{'' if number == 1 else f' {number}'})"
        made, number = row | {"nickname": name, "nickname_key": nickname_key(name)}, number + 1
    return made


def revoke(tx: Writer, instance_id: str, why: str, *, actor: str, at: float) -> int:
    """End what lets an instance in; 1 when it was enrolled, else 0. The caller settles what it was doing."""
    tx.execute("DELETE FROM gateway_credentials WHERE instance_id = ?", (instance_id,))
    before = tx.row("SELECT state FROM gateway_instances WHERE instance_id = ?", (instance_id,))
    tx.execute(
        "UPDATE gateway_instances SET state = 'revoked', state_at = ?, state_actor = ?, state_reason = ?"
        " WHERE instance_id = ? AND state = 'enrolled'",
        (at, actor, why, instance_id),
    )
    return int(before is not None and before[0] == "enrolled")


def forget_tokens(tx: Writer, *, at: float, which: str = "true", values: Sequence[Any] = ()) -> int:
    """End pending enrollment tokens; how many."""
    (count,) = tx.rows(f"SELECT count(*) FROM enrollment_tokens WHERE state = 'pending' AND {which}", list(values))[0]
    tx.execute(
        f"UPDATE enrollment_tokens SET state = 'forgotten', settled_at = ? WHERE state = 'pending' AND {which}",
        [at, *values],
    )
    return int(count)


def keep_tombstone(tx: Writer, row: Mapping[str, Any]) -> int:
    """Keep a removed id from coming back at least as long as this tombstone says; 1 when that changed something."""
    there = tx.row("SELECT horizon_at FROM tombstones WHERE kind = ? AND key = ?", (row["kind"], row["key"]))
    tx.execute(
        "INSERT INTO tombstones (kind, key, made_at, horizon_at, actor, reason) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (kind, key) DO UPDATE SET horizon_at = max(horizon_at, excluded.horizon_at)",
        [row[name] for name in ("kind", "key", "made_at", "horizon_at", "actor", "reason")],
    )
    return int(there is None or there[0] < row["horizon_at"])


def hold_bindings(tx: Writer) -> None:
    """A tombstone refers to each thread that is bound to its instance."""
    tx.execute(
        "INSERT OR IGNORE INTO tombstone_references (kind, key, holder_kind, holder_key)"
        " SELECT ?, t.key, ?, b.thread_id FROM tombstones AS t JOIN thread_bindings AS b ON b.instance_id = t.key"
        " WHERE t.kind = ?",
        (KIND, THREAD, KIND),
    )


def take_endings(tx: Writer, ask: Ask) -> int:
    """Let everything that has ended in the other file, and not here, have ended so here; how many."""
    count = 0
    for table, names in ENDINGS.items():
        for row in rows_of(ask, table, "settled_at IS NOT NULL"):
            same = " AND ".join(f"{name} IS ?" for name in KEYS[table])
            key = key_of(table, row)
            if tx.row(f"SELECT 1 FROM {table} WHERE {same} AND settled_at IS NULL", key) is None:
                continue
            sets = ", ".join(f"{name} = ?" for name in names)
            tx.execute(f"UPDATE {table} SET {sets} WHERE {same}", [*(row[name] for name in names), *key])
            count += 1
    return count


def match_threads(tx: Writer) -> list[str]:
    """Let the status of each thread follow from its active turn and its stops, as the file demands; which changed."""
    wrong = tx.rows(
        "WITH active AS MATERIALIZED (SELECT thread_id, turn_id, state FROM turns WHERE state IN"
        " ('starting', 'running', 'stopping')),"
        " stopping AS MATERIALIZED (SELECT DISTINCT o.thread_id FROM stops AS o JOIN thread_bindings AS b"
        " ON b.thread_id = o.thread_id AND b.session_id = o.session_id WHERE o.state = 'pending')"
        " SELECT s.thread_id, s.status, t.turn_id, t.state, s.turn_ids, o.thread_id IS NOT NULL FROM thread_states AS s"
        " LEFT JOIN active AS t ON t.thread_id = s.thread_id LEFT JOIN stopping AS o ON o.thread_id = s.thread_id"
        " ORDER BY s.thread_id"
    )
    changed = []
    for thread_id, status, turn_id, state, turn_ids, stopping in wrong:
        should = status
        if stopping:
            should = "stop_pending"
        elif state == "running" and turn_ids:
            should = "running"
        elif status == "running":
            should = "ready"
        elif status == "stop_pending":
            should = "stopped"
        active = turn_id if should == "running" else None
        before = tx.rows("SELECT status, active_turn_id FROM thread_states WHERE thread_id = ?", (thread_id,))[0]
        if before != (should, active):
            tx.execute(
                "UPDATE thread_states SET status = ?, active_turn_id = ? WHERE thread_id = ?",
                (should, active, thread_id),
            )
            changed.append(str(thread_id))
    return changed


def instances_lacking(copy: Reader, live: Reader) -> int:
    """How many instances, turns and the like a copy has in a later state than the store, or alone."""
    if not has_instances(copy.rows):
        return 0
    if not has_instances(live.rows):
        return int(copy.rows("SELECT count(*) FROM gateway_instances WHERE state <> 'removed'")[0][0])
    (given,) = live.rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'gateway_instances'")[0]
    count = 0
    for row in rows_of(copy.rows, "gateway_instances"):
        there = find(live, "gateway_instances", row)
        # A number that the store gave and that nothing has any more is of one that was freed.
        count += row["no"] > given if there is None else bool(later_of("gateway_instances", there, row))
    for table in ENDINGS:
        for row in rows_of(copy.rows, table, "settled_at IS NOT NULL"):
            there = find(live, table, row)
            count += there is not None and there["settled_at"] is None
    return count


def find(reader: Reader | Writer, table: str, row: Row, keys: Sequence[str] = ()) -> Row | None:
    """The row of another file that is known by the same as this one. `keys`: for a table that is not in `KEYS`."""
    names, keys = columns(reader.rows, table), keys or KEYS[table]
    same = " AND ".join(f"{name} IS ?" for name in keys)
    found = reader.row(
        f"SELECT {', '.join(map(quoted, names))} FROM {table} WHERE {same}", [row[name] for name in keys]
    )
    return None if found is None else dict(zip(names, found, strict=True))
