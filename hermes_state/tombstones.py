"""Ids that were deleted and must not come back, until a horizon has passed and nothing refers to them any more.

Invariant: a tombstone is written in the transaction that deletes, and goes only when its horizon is past and it has no
reference; until then its id is refused, across restarts. Tombstones are bounded by what is deleted within a horizon,
plus what is still referred to.

Not for: telling who deleted what (see `deletions`, which keeps everything for ever). Dropping tombstones when a process
starts was rejected: an id taken again would let old references point at something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hermes_state.errors import Entombed, InvalidInput, NotFound

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Year 9999: the last time that can be shown. A horizon later than this means "for ever".
_LAST_SHOWN = 253_402_300_799.0


@dataclass(frozen=True, kw_only=True)
class Tombstone:
    """A deleted id."""

    kind: str  # what was deleted: session, instance, job, ...
    key: str  # its public id
    made_at: float  # epoch seconds UTC of the deletion
    horizon_at: float  # epoch seconds UTC before which the id never comes back
    actor: str  # who deleted it
    reason: str  # why
    references: int  # how many rows elsewhere still refer to it; above 0 it stays past its horizon


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What `collect` did."""

    freed: tuple[tuple[str, str], ...]  # (kind, key) of ids that may be used again
    more: bool  # True when others are due as well: call again in a transaction of its own


def entomb(
    tx: Transaction,
    kind: str,
    key: str,
    *,
    made_at: float,
    horizon_seconds: float,
    actor: str,
    reason: str,
    references: Iterable[tuple[str, str]] = (),
) -> None:
    """Keep `key` from coming back for `horizon_seconds`, and as long as one of `references` is not let go.

    `references` are (holder kind, holder key) pairs. An id that is entombed already keeps its first record and the
    later of both horizons, so that deleting twice shortens nothing.
    """
    if not horizon_seconds >= 0:
        raise InvalidInput(
            f"The horizon of a tombstone in {tx.path} was {horizon_seconds} seconds.",
            hint="Give the seconds for which the id may not come back; 0 keeps it while something refers to it.",
            path=tx.path, horizon_seconds=horizon_seconds,
        )
    tx.execute(
        "INSERT INTO tombstones (kind, key, made_at, horizon_at, actor, reason) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (kind, key) DO UPDATE SET horizon_at = max(horizon_at, excluded.horizon_at)",
        (kind, key, made_at, made_at + horizon_seconds, actor, reason),
    )
    for holder_kind, holder_key in references:
        hold(tx, kind, key, holder_kind, holder_key)


def hold(tx: Transaction, kind: str, key: str, holder_kind: str, holder_key: str) -> None:
    """Say that a row elsewhere still refers to a deleted id. Saying it again changes nothing.

    Raises `NotFound` when the id has no tombstone.
    """
    if find(tx, kind, key) is None:
        raise NotFound(
            f"There is no tombstone of {kind} {key!r} in {tx.path} for {holder_kind} {holder_key!r} to hold.",
            hint="Entomb the id in the transaction that deletes it.", path=tx.path, kind=kind, key=key,
        )
    tx.execute(
        "INSERT INTO tombstone_references (kind, key, holder_kind, holder_key) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (kind, key, holder_kind, holder_key),
    )


def let_go(tx: Transaction, kind: str, key: str, holder_kind: str, holder_key: str) -> bool:
    """Take one reference back; False when there was none."""
    return bool(
        tx.execute(
            "DELETE FROM tombstone_references WHERE kind = ? AND key = ? AND holder_kind = ? AND holder_key = ?",
            (kind, key, holder_kind, holder_key),
        )
    )


def find(reader: Reader, kind: str, key: str) -> Tombstone | None:
    """The tombstone of an id, or None."""
    row = reader.row(
        "SELECT made_at, horizon_at, actor, reason, (SELECT count(*) FROM tombstone_references AS r"
        " WHERE r.kind = t.kind AND r.key = t.key) FROM tombstones AS t WHERE kind = ? AND key = ?",
        (kind, key),
    )
    if row is None:
        return None
    made_at, horizon_at, actor, reason, references = row
    return Tombstone(
        kind=kind, key=key, made_at=made_at, horizon_at=horizon_at, actor=actor, reason=reason, references=references
    )


def page(reader: Reader, kind: str, *, limit: int = 100, after: str = "") -> list[Tombstone]:
    """Up to `limit` tombstones of a kind, by key; `after` is the key that the last page ended at."""
    return [
        Tombstone(
            kind=kind, key=key, made_at=made_at, horizon_at=horizon_at, actor=actor, reason=reason,
            references=references,
        )
        for key, made_at, horizon_at, actor, reason, references in reader.rows(
            "SELECT key, made_at, horizon_at, actor, reason, (SELECT count(*) FROM tombstone_references AS r"
            " WHERE r.kind = t.kind AND r.key = t.key) FROM tombstones AS t WHERE kind = ? AND key > ?"
            " ORDER BY key LIMIT ?",
            (kind, after, limit),
        )
    ]


def refuse(reader: Reader, kind: str, key: str) -> None:
    """Raise `Entombed` when the id has a tombstone. Called by whatever makes a row with a public id.

    Only `collect` lifts it, so that "past the horizon" is decided in one place.
    """
    found = find(reader, kind, key)
    if found is not None:
        raise entombed(found, reader)


def entombed(found: Tombstone, reader: Reader) -> Entombed:
    """The error that names when the id was deleted and what has to happen before it may come back."""
    until = f"before {_shown(found.horizon_at)}"
    if found.references:
        many = "1 row refers" if found.references == 1 else f"{found.references} rows refer"
        until += f" and while {many} to it"
    return Entombed(
        f"{found.kind} {found.key!r} was deleted from {reader.path} at {_shown(found.made_at)} by {found.actor}"
        f" ({found.reason}); it may not come back {until}.",
        hint="Use another id.",
        path=reader.path, kind=found.kind, key=found.key, horizon_at=found.horizon_at, references=found.references,
    )


def collect(tx: Transaction, now: float, *, limit: int = 500, kind: str | None = None) -> Collected:
    """Free up to `limit` ids whose horizon is not after `now` (epoch seconds UTC) and that nothing refers to.

    `kind`: only ids of this kind.
    """
    due = tx.rows(
        "SELECT kind, key FROM tombstones AS t WHERE horizon_at <= ?1 AND (?2 IS NULL OR kind = ?2) AND NOT EXISTS"
        " (SELECT 1 FROM tombstone_references AS r WHERE r.kind = t.kind AND r.key = t.key) ORDER BY horizon_at"
        " LIMIT ?3",
        (now, kind, limit + 1),
    )
    freed = due[:limit]
    tx.executemany("DELETE FROM tombstones WHERE kind = ? AND key = ?", freed)
    return Collected(freed=tuple((kind, key) for kind, key in freed), more=len(due) > limit)


def _shown(at: Any) -> str:
    """UTC, to the second; what no calendar shows is said in words."""
    if not 0 <= at <= _LAST_SHOWN:
        return "the end of time" if at > _LAST_SHOWN else f"{at} seconds from 1970"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
