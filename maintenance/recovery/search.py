"""Search indexes of the file being filled: made empty first, filled by their own triggers, checked at the end.

Invariant: the index is built from the rows that are in the file, with the statements of the source's own schema, so
that hermes-agent finds the layout that it left. What cannot be made is left out whole, triggers included: hermes-agent
builds an index when it starts on a file that has none.

Not for: native stores, whose index is a file of its own. Copying the index of the source was rejected: it is as damaged
as the rest, and it knows rows that are lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.engine.salvage import Building
from hermes_state.errors import StateError
from maintenance.quoting import quoted
from maintenance.space.sizes import is_fulltext

if TYPE_CHECKING:
    from maintenance.recovery.schema import Entry, Schema

PREFIX = "messages_fts"


def create_search(building: Building, schema: Schema) -> list[dict[str, Any]]:
    """Make search indexes with their views and triggers; what had to be decided."""
    indexes = [entry for entry in schema.entries if entry.kind == "table" and is_fulltext(entry.sql)]
    if not indexes:
        return []
    names = tuple(entry.name for entry in indexes)
    views = [entry for entry in schema.entries if entry.kind == "view" and entry.name.startswith(names)]
    triggers = [entry for entry in schema.entries if entry.kind == "trigger" and is_search_trigger(entry, names)]
    try:
        for entry in (*views, *indexes, *triggers):
            if entry.sql:
                building.execute(entry.sql)
    except StateError as error:
        if error.retryable:
            raise
        drop_search(building)
        return [{
            "what": "search_left_out",
            "sentence": "The search index could not be made and was left out; hermes-agent builds it at its start.",
            "why": str(error),
        }]
    return []


def own_texts(entries: Sequence[Entry]) -> dict[str, str]:
    """Tables of text behind search indexes that no trigger fills, with the index: nothing else has what is in them."""
    names = {entry.name for entry in entries if entry.kind == "table"}
    triggers = [entry for entry in entries if entry.kind == "trigger"]
    return {
        f"{entry.name}_content": entry.name
        for entry in entries
        if entry.kind == "table" and is_fulltext(entry.sql) and f"{entry.name}_content" in names
        and not entry.name.startswith(PREFIX)
        and not any(trigger.sql is None or entry.name in trigger.sql for trigger in triggers)
    }


def rebuild_own(building: Building, texts: Mapping[str, str]) -> None:
    """Build the search indexes whose tables of text were recovered row by row."""
    have = {str(name) for name, sql in building.rows("SELECT name, sql FROM sqlite_schema") if is_fulltext(sql)}
    for name in sorted(have & set(texts.values())):
        building.execute(f"INSERT INTO {quoted(name)}({quoted(name)}) VALUES ('rebuild')")


def is_search_trigger(entry: Entry, names: Sequence[str]) -> bool:
    """Whether a trigger fills a search index."""
    return entry.name.startswith((*names, PREFIX)) or any(f"INTO {name}(" in (entry.sql or "") for name in names)


def drop_search(building: Building) -> None:
    """Take search indexes out, with their triggers and views."""
    rows = building.rows("SELECT type, name, sql FROM sqlite_schema WHERE type IN ('trigger', 'view', 'table')")
    from maintenance.recovery.schema import Entry

    entries = [Entry(kind=kind, name=name, table="", root=0, sql=sql) for kind, name, sql in rows]
    own = own_texts(entries).values()
    names = [
        entry.name for entry in entries
        if entry.kind == "table" and is_fulltext(entry.sql) and entry.name not in own
    ]
    for entry in entries:
        kind, name = entry.kind, entry.name
        if (kind == "trigger" and is_search_trigger(entry, names or [PREFIX])) or (
            kind == "view" and str(name).startswith(PREFIX)
        ):
            building.execute(f"DROP {kind.upper()} {quoted(name)}")
    for name in names:
        building.execute(f"DROP TABLE {quoted(name)}")


def search_problem(building: Building) -> str:
    """What the check of the search indexes says against them; "" when they are right or there are none."""
    rows = building.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
    for name, sql in rows:
        if not is_fulltext(sql):
            continue
        try:
            building.execute(f"INSERT INTO {quoted(name)}({quoted(name)}, rank) VALUES ('integrity-check', 1)")
        except StateError as error:
            if error.retryable:
                raise
            return f"{name}: {error}"
    return ""
