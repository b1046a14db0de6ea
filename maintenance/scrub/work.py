"""Finding and replacing in a store of either dialect.

Invariant: looking and replacing go through the same code, so a dry run counts what a run changes. Each portion is one
transaction with secure_delete on, and a run that was killed goes on where it stopped. Ids that other rows point to are
replaced wherever they stand, and a run that would leave a row pointing nowhere is undone.

Not for: what remains outside of rows (see `traces`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_state.errors import Corrupt, StateError
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.serving import KIND
from maintenance.dialects.native.shape import native_identity
from maintenance.scrub import cells, compactions, cron, native, owed, routing, serving, working
from maintenance.space.verify import foreign_key_problems

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Store, Transaction
    from maintenance.scrub.patterns import Redactor

# What these columns and tables say is this program's or hermes-agent's own vocabulary, or an identity.
FIXED_COLUMNS = frozenset({
    "role", "source", "state", "relation", "content_type", "codec", "action", "operation", "table_name", "kind",
    "field", "store_id", "incarnation", "sha256", "schema_version", "title_source", "end_reason",
    "form", "source_digest", "prompt_digest",
})
NATIVE_APART = frozenset({
    "store", "migrations", "messages", "bodies", "shared_texts", "leases", "stream_frames", "outbox",
    routing.TABLE, *serving.TEXTS, *cron.TEXTS,
})
FOREIGN_APART = frozenset({"schema_version"})
_FIXED = {**serving.FIXED, **routing.FIXED, **cron.FIXED}
_CONSTRAINT = 19  # CHECK, UNIQUE, NOT NULL or a foreign key
Advance = Callable[[int], None]
Enter = Callable[[str], None]


def is_native(reader: Reader) -> bool:
    """Whether the store is one of ours."""
    return native_identity(reader) is not None


def _tables(reader: Reader, ours: bool) -> list[cells.Table]:
    """The tables that are searched cell by cell."""
    found = cells.tables_of(reader, NATIVE_APART if ours else FOREIGN_APART, FIXED_COLUMNS)
    if not ours:
        return found
    return [part for one in found for part in _parts(one)]


def _parts(table: cells.Table) -> list[cells.Table]:
    """A table without the columns that say who and which, where only some of its rows have such: as two."""
    def without(names: frozenset[str], where: str) -> cells.Table:
        return dataclasses.replace(
            table, columns=tuple(name for name in table.columns if name not in names), where=where
        )

    if (names := serving.FIXED_OF_INSTANCES.get(table.name)) is not None:
        ours = f"kind IN ('{KIND}', '{cron.KIND}')"
        return [without(names, ours), without(frozenset(), f"NOT ({ours})")]
    return [without(_FIXED.get(table.name, frozenset()), "true")]


def look(
    reader: Reader, redactor: Redactor, advance: Advance = lambda _rows: None, enter: Enter = lambda _table: None
) -> Counter[str]:
    """Rows with secrets in them, by table; `enter` is told each table before it is searched. Changes nothing."""
    found: Counter[str] = Counter()
    ours = is_native(reader)
    codec = cells.codec_of(reader)
    for table in _tables(reader, ours):
        enter(table.name)
        for portion in cells.search(reader, table, redactor, codec):
            found[table.name] += len(portion)
            advance(len(portion))
    if ours:
        enter("messages")
        for rows in native.messages(reader, redactor):
            found["messages"] += len(rows)
            advance(len(rows))
        enter("shared_texts")
        found["shared_texts"] += sum(1 for _text in native.texts(reader, redactor))
        enter("stream_frames")
        found["stream_frames"] += sum(1 for _text in native.streams(reader, redactor))
        enter(owed.TABLE)
        found[owed.TABLE] += sum(len(rows) for rows in owed.obligations(reader, redactor))
        for name in serving.TEXTS:
            enter(name)
            found[name] += sum(len(rows) for rows in serving.rows(reader, redactor, name))
        enter(routing.TABLE)
        found[routing.TABLE] += sum(len(rows) for rows in routing.entries(reader, redactor))
        for name in working.TEXTS:
            found[name] += sum(len(rows) for rows in working.rows(reader, redactor, name))
        for name in cron.TEXTS:
            enter(name)
            found[name] += sum(len(rows) for rows in cron.rows(reader, redactor, name))
    return +found


def replace(store: Store, redactor: Redactor, clock: Clock, advance: Advance = lambda _rows: None) -> Counter[str]:
    """Replace every secret; returns rows changed by table. Raises `Corrupt` when rows would point nowhere."""
    changed: Counter[str] = Counter()
    ours = is_native(store)
    codec = cells.codec_of(store)
    broken = foreign_key_problems(store)
    for table in _tables(store, ours):
        # All portions first: a change may move a row in the order in which it is found.
        portions = list(cells.search(store, table, redactor, codec))
        for portion in portions:
            changed[table.name] += _replace_portion(store, table, portion, ours=ours)
            advance(len(portion))
    if ours:
        changed += _replace_native(store, redactor, clock, advance)
        if +changed:
            with store.transaction(durability="power") as tx:
                working.forget_unreadable(tx)
    if foreign_key_problems(store) > broken:
        raise Corrupt(
            f"Rows of {store.path} point to rows that have another key now.",
            hint=f"Run `hermes-state doctor --db {shell_word(store.path)}` and restore the backup made "
            "before.", path=store.path,
        )
    return +changed


def _replace_portion(store: Store, table: cells.Table, portion: list[cells.Change], *, ours: bool) -> int:
    """Replace a portion in one transaction; returns how many rows were changed.

    A row whose new text the table's own rules refuse stays, and the look afterwards counts it as not gone.
    """
    try:
        with store.transaction(durability="power") as tx:
            with cells.unlocked(tx, table.name):
                cells.replace(tx, table, portion)
            if not ours:
                _touch_index(tx, table, portion)
    except StateError as error:
        if error.sqlite_code != _CONSTRAINT:
            raise
        if len(portion) == 1:
            return 0
        return sum(_replace_portion(store, table, [change], ours=ours) for change in portion)
    return len(portion)


def _replace_native(store: Store, redactor: Redactor, clock: Clock, advance: Advance) -> Counter[str]:
    changed: Counter[str] = Counter()
    marked = False
    for rows in native.messages(store, redactor):
        if not marked:
            compactions.mark(store)
            marked = True
        with store.transaction(durability="power") as tx:
            changed["messages"] += native.replace_messages(tx, rows, clock.now())
        advance(len(rows))
    compactions.settle(store)
    for no, text in list(native.texts(store, redactor)):
        with store.transaction(durability="power") as tx:
            native.replace_text(tx, no, text)
        changed["shared_texts"] += 1
    for stream, field, part, last, text in list(native.streams(store, redactor)):
        with store.transaction(durability="power") as tx:
            native.replace_stream(tx, stream, field, part, last, text)
        changed["stream_frames"] += 1
    for rows in owed.obligations(store, redactor):
        changed[owed.TABLE] += _one_by_one(
            store, rows, lambda tx, some: owed.replace_obligations(tx, some, clock.now())
        )
    for name in serving.TEXTS:
        for rows in list(serving.rows(store, redactor, name)):
            changed[name] += _one_by_one(
                store, rows, lambda tx, some, name=name: serving.replace(tx, name, some, clock.now())  # type: ignore[misc]
            )
    for rows in list(routing.entries(store, redactor)):
        changed[routing.TABLE] += _one_by_one(
            store, rows, lambda tx, some: routing.replace_entries(tx, some, clock.now())
        )
    for name in working.TEXTS:
        for rows in list(working.rows(store, redactor, name)):
            changed[name] += _one_by_one(
                store, rows, lambda tx, some, name=name: working.replace(tx, name, some, clock.now())  # type: ignore[misc]
            )
    for name in cron.TEXTS:
        for rows in list(cron.rows(store, redactor, name)):
            changed[name] += _one_by_one(
                store, rows, lambda tx, some, name=name: cron.replace(tx, name, some, clock.now())  # type: ignore[misc]
            )
    return changed


def _one_by_one(
    store: Store, portion: list[dict[str, Any]], replace_rows: Callable[[Transaction, list[dict[str, Any]]], int]
) -> int:
    """Replace a portion; a row whose new id or name another has stays, and counts as not gone."""
    try:
        with store.transaction(durability="power") as tx:
            return replace_rows(tx, portion)
    except StateError as error:
        if error.sqlite_code != _CONSTRAINT:
            raise
        return 0 if len(portion) == 1 else sum(_one_by_one(store, [row], replace_rows) for row in portion)


def _touch_index(tx: Any, table: cells.Table, portion: list[cells.Change]) -> None:
    """Have hermes-agent's trigger index a message again whose content is as it was: some fire for that column only."""
    if table.name != "messages" or "content" not in table.columns:
        return
    for change in portion:
        if "content" not in change.values:
            tx.execute(f"UPDATE messages SET content = content WHERE {table.key[0]} = ?", change.key)


def rebuild_indexes(store: Store) -> tuple[str, ...]:
    """Build all search indexes in the file anew, so that no old term stays in them; returns their names."""
    names = tuple(name for name in cells.search_indexes(store) if not cells.has_no_texts(store, name))
    for name in names:
        with store.transaction(durability="power") as tx:
            tx.execute(f'INSERT INTO "{name}" ("{name}") VALUES (\'rebuild\')')
    return names
