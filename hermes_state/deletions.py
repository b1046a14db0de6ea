"""The ledger of deletions: who deleted what, when, why, and how many rows. And whether the home itself is removed.

Invariant: a deletion and its entry are one transaction, and an entry is never changed or taken away (triggers of the
schema abort it). Ids only rise, so a reader goes on from the last one it has seen.

Not for: keeping ids from coming back (see `tombstones`). A ledger file beside the store, as for hermes-agent's files,
was rejected here: a crash between the two would leave one without the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import HomeRemoved, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.engine import Reader, Transaction

_COLUMNS = "id, made_at, actor, reason, kind, keys, rows, detail"


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """One entry of the ledger."""

    id: int  # rises with each entry
    made_at: float  # epoch seconds UTC
    actor: str  # program and person or process
    reason: str  # why, in words
    kind: str  # what was deleted: session, message, ...
    keys: tuple[str, ...]  # public ids of what was deleted
    rows: int  # rows deleted, those of dependent tables included
    detail: Mapping[str, Any]  # counts by table, or whatever the deleting code noted


def record(
    tx: Transaction,
    *,
    actor: str,
    reason: str,
    kind: str,
    keys: Iterable[str],
    rows: int,
    at: float,
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Write one entry in the transaction that deletes; gives its id.

    `keys` are public ids, `at` epoch seconds UTC, `detail` anything JSON can say. Raises `InvalidInput` when actor,
    reason or kind is empty: an entry that does not say who and why is no record.
    """
    for name, said in (("actor", actor), ("reason", reason), ("kind", kind)):
        if not said.strip():
            raise InvalidInput(
                f"A deletion in {tx.path} was to be recorded without its {name}.",
                hint="Say who deletes, why, and what.", path=tx.path, argument=name,
            )
    tx.execute(
        "INSERT INTO deletions (made_at, actor, reason, kind, keys, rows, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (at, actor, reason, kind, _to_json(list(keys)), rows, None if detail is None else _to_json(dict(detail))),
    )
    return tx.last_insert_rowid()


def page(reader: Reader, *, limit: int = 100, before: int | None = None, kind: str | None = None) -> list[Deletion]:
    """Up to `limit` entries, newest first; `before` is the id that the last page ended at."""
    found = reader.rows(
        f"SELECT {_COLUMNS} FROM deletions WHERE (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR kind = ?2)"
        " ORDER BY id DESC LIMIT ?3",
        (before, kind, limit),
    )
    return [_entry(row) for row in found]


def since(reader: Reader, after: int, *, limit: int = 500) -> list[Deletion]:
    """Up to `limit` entries with a higher id than `after`, oldest first."""
    found = reader.rows(f"SELECT {_COLUMNS} FROM deletions WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [_entry(row) for row in found]


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _entry(row: tuple[Any, ...]) -> Deletion:
    number, made_at, actor, reason, kind, keys, rows, detail = row
    return Deletion(
        id=number, made_at=made_at, actor=actor, reason=reason, kind=kind, keys=tuple(json.loads(keys)), rows=rows,
        detail={} if detail is None else json.loads(detail),
    )


# --- homes -------------------------------------------------------------------------------------------------------


def home_removed_at(reader: Reader) -> float | None:
    """Since when this home is being removed (epoch seconds UTC); None while it is in use."""
    row = reader.row("SELECT removed_at FROM routing_home")
    return None if row is None else row[0]


def refuse_removed_home(tx: Transaction) -> None:
    """In a transaction that adds to conversations. Raises `HomeRemoved` once the home was marked as removed."""
    if home_removed_at(tx) is not None:
        raise removed_here(tx)


def removed_here(tx: Transaction) -> HomeRemoved:
    """The error for an addition to a store whose home was marked as removed."""
    return home_removed(tx.path, tx.path.parent, home_removed_at(tx))


def home_removed(path: Path, home: object, since: float | None) -> HomeRemoved:
    """The error for a write to a home that was removed; `since` None: its store is not there."""
    why = "its store is not there any more" if since is None else "it was marked as removed"
    return HomeRemoved(
        f"A write for {home} came too late: {why} ({path}).",
        hint="Nothing was written and no folder was made. Stop the work that was begun for it.",
        path=path, home=home, since=since,
    )
