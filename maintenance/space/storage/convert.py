"""Converting a file to the smaller search layout, in steps that can each be the last before a kill.

Invariant: every commit leaves a file that hermes-agent can open and write without harm: all six trigger names exist,
and the two marks say which rows the indexes hold. Rows of messages and sessions are never written. The steps are those
of hermes-agent's own conversion, so either program can go on where the other stopped.

Not for: the exclusive lock, checks and free pages (`flow`). One transaction for everything was rejected: on a large
file its log would be larger than the file, and a kill near the end would lose hours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from maintenance.quoting import quoted
from maintenance.space.sizes import SHADOWS, TRASH_PREFIX
from maintenance.space.storage.layout import (
    ALL_TRIGGERS,
    HIGH_WATER,
    INDEXES,
    PROGRESS,
    SPENT_KEYS,
    STORAGE_VERSION,
    TRIGRAM,
    TRIGRAM_TABLE,
    TRIGRAM_TRIGGERS,
    TRIGRAM_TRIGGERS_OFF,
    TRIGRAM_VIEW,
    TRIGRAM_VIEW_OFF,
    VERSION,
    VIEWS,
    create_statements,
    cut_at_nul,
    trigger_names,
)

if TYPE_CHECKING:
    from hermes_state.engine import Store, Transaction

# One backfill transaction covers rows until their text reaches this size.
BACKFILL_BYTES = 16_000_000
# Rows looked at to find where such a chunk ends.
BACKFILL_ROWS = 5000
# Rows of a leftover table deleted in one transaction; a row of the largest kind takes a page.
TEARDOWN_ROWS = 8000

# Receives the bytes or rows of each finished step.
Progress = Callable[[int], None]


def stage(store: Store, *, trigram: bool) -> int:
    """Take the old indexes out of use and put empty ones of the new layout in their place; gives the high-water mark.

    One small transaction: the old tables are only renamed, however large they are.
    """
    with store.transaction(durability="power") as tx:
        for name in ALL_TRIGGERS:
            tx.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")
        for index in INDEXES:
            demote(tx, index)
        found = tx.row("SELECT COALESCE(max(id), 0) FROM messages")
        high_water = int(found[0]) if found else 0
        set_meta(tx, HIGH_WATER, high_water)
        set_meta(tx, PROGRESS, 0)
        drop_meta(tx, VERSION, *SPENT_KEYS)
        for statement in create_statements(trigram=trigram):
            tx.execute(statement)
    return high_water


def demote(tx: Transaction, index: str) -> None:
    """Make the tables behind an index ordinary tables that wait to be torn down, and drop its view."""
    if tx.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (index,)) is not None:
        # Dropping the index would free every page of it in this transaction. Removing only its declaration is the way
        # hermes-agent does it, too; the schema is read again before anything else happens.
        tx.rows("PRAGMA writable_schema = ON")
        tx.execute("DELETE FROM sqlite_schema WHERE type = 'table' AND name = ?", (index,))
        tx.rows("PRAGMA writable_schema = RESET")
        # Without this, renaming fails when an unrelated view of the file refers to something that is not there.
        before = tx.rows("PRAGMA legacy_alter_table")[0][0]
        tx.rows("PRAGMA legacy_alter_table = ON")
        for shadow in SHADOWS:
            _rename(tx, f"{index}_{shadow}")
        tx.rows(f"PRAGMA legacy_alter_table = {int(before)}")
    tx.execute(f"DROP VIEW IF EXISTS {quoted(VIEWS[index])}")


def _rename(tx: Transaction, table: str) -> None:
    names = {str(name) for (name,) in tx.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if table not in names:
        return
    target, number = f"{TRASH_PREFIX}{table}", 1
    while target in names:
        number += 1
        target = f"{TRASH_PREFIX}{table}_{number}"
    tx.execute(f"ALTER TABLE {quoted(table)} RENAME TO {quoted(target)}")


def backfill_step(store: Store, *, trigram: bool) -> int | None:
    """Index the next rows; gives the bytes of text they had, or None when all rows up to the mark are indexed."""
    with store.transaction(durability="process") as tx:
        progress, high_water = meta_number(tx, PROGRESS), meta_number(tx, HIGH_WATER)
        if progress is None or high_water is None or progress >= high_water:
            return None
        last, size = _chunk(tx, progress, high_water)
        tx.execute(
            "INSERT INTO messages_fts(rowid, content, tool_name, tool_calls) "
            "SELECT id, content, tool_name, tool_calls FROM messages_fts_src WHERE id > ? AND id <= ?",
            (progress, last),
        )
        if trigram:
            _fill_trigram(tx, "id > ? AND id <= ?", (progress, last))
        set_meta(tx, PROGRESS, last)
    return size


def _chunk(tx: Transaction, after: int, high_water: int) -> tuple[int, int]:
    """The last id of the next chunk, and the bytes of its text."""
    last, size = after, 0
    rows = tx.rows(
        "SELECT id, COALESCE(octet_length(content), 0) + COALESCE(octet_length(tool_calls), 0) FROM messages "
        "WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
        (after, high_water, BACKFILL_ROWS),
    )
    for identity, length in rows:
        last, size = int(identity), size + int(length)
        if size >= BACKFILL_BYTES:
            return last, size
    return (last if len(rows) == BACKFILL_ROWS else high_water), size


def _fill_trigram(tx: Transaction, where: str, params: tuple[int, ...]) -> None:
    tx.execute(
        f"INSERT INTO messages_fts_trigram(rowid, content, tool_name) "
        f"SELECT id, {cut_at_nul('content')}, {cut_at_nul('tool_name')} FROM messages_fts_trigram_src WHERE {where}",
        params,
    )


def finish(store: Store) -> None:
    """Take the two marks away and state the layout: from here on every row takes part."""
    with store.transaction(durability="power") as tx:
        drop_meta(tx, HIGH_WATER, PROGRESS, *SPENT_KEYS)
        set_meta(tx, VERSION, STORAGE_VERSION)


def teardown_step(store: Store) -> int | None:
    """Delete some rows of the first leftover table, or the table when it is empty; None when none is left."""
    found = store.row(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, ?) = ? ORDER BY name LIMIT 1",
        (len(TRASH_PREFIX), TRASH_PREFIX),
    )
    if found is None:
        return None
    table = quoted(str(found[0]))
    with store.transaction(durability="process") as tx:
        keys = sorted((row[5], str(row[1])) for row in tx.rows(f"PRAGMA table_info({table})") if row[5])
        key = ", ".join(quoted(name) for _position, name in keys) or "rowid"
        gone = tx.execute(f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} LIMIT {TEARDOWN_ROWS})")
        if gone < TEARDOWN_ROWS:
            tx.execute(f"DROP TABLE {table}")
    return gone


def trigram_off(store: Store) -> None:
    """Empty the trigram index and make its triggers do nothing; the old tables wait to be torn down."""
    with store.transaction(durability="power") as tx:
        _drop_trigram(tx)
        for statement in (TRIGRAM_VIEW_OFF, TRIGRAM_TABLE, *TRIGRAM_TRIGGERS_OFF):
            tx.execute(statement)


def trigram_on(store: Store) -> None:
    """Bring the trigram index back with every row in it, in one transaction.

    The marks cannot be used for this: they gate the word index as well, which holds all rows already.
    """
    with store.transaction(durability="power") as tx:
        _drop_trigram(tx)
        for statement in (TRIGRAM_VIEW, TRIGRAM_TABLE, *TRIGRAM_TRIGGERS):
            tx.execute(statement)
        _fill_trigram(tx, "1", ())


def _drop_trigram(tx: Transaction) -> None:
    for name in trigger_names(TRIGRAM):
        tx.execute(f"DROP TRIGGER IF EXISTS {quoted(name)}")
    demote(tx, TRIGRAM)


def set_meta(tx: Transaction, key: str, value: int) -> None:
    """Set a key of `state_meta`."""
    tx.execute(
        "INSERT INTO state_meta(key, value) VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        (key, str(value)),
    )


def drop_meta(tx: Transaction, *keys: str) -> None:
    """Remove keys of `state_meta`."""
    for key in keys:
        tx.execute("DELETE FROM state_meta WHERE key = ?", (key,))


def meta_number(tx: Transaction, key: str) -> int | None:
    """A number of `state_meta`, None when it is absent or no number."""
    found = tx.row("SELECT value FROM state_meta WHERE key = ?", (key,))
    try:
        return int(str(found[0])) if found is not None else None
    except ValueError:
        return None
