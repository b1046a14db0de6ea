"""What happened to cron itself: clock steps, runs that were let go by the rule, notices, edits.

Invariant: an event is written in the transaction of what it tells, and only appended; the newest `KEPT` stay.

Not for: what became of slots and runs, which their own rows tell.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cron_store.records import Event

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

KEPT = 1000


def record(tx: Transaction, kind: str, *, at: float, job_id: str | None = None, **detail: Any) -> None:
    """Append one event; `detail` is anything JSON can say."""
    tx.execute(
        "INSERT INTO cron_events (at, kind, job_id, detail) VALUES (?, ?, ?, ?)",
        (at, kind, job_id, json.dumps(detail, ensure_ascii=True, separators=(",", ":"))),
    )


def page(reader: Reader, *, kind: str | None, limit: int, before: int | None) -> list[Event]:
    """Up to `limit` events, newest first; `before` is the id that the last page ended at."""
    return [
        Event(id=number, at=at, kind=name, job_id=job_id, detail=json.loads(detail))
        for number, at, name, job_id, detail in reader.rows(
            "SELECT id, at, kind, job_id, detail FROM cron_events WHERE (?1 IS NULL OR id < ?1)"
            " AND (?2 IS NULL OR kind = ?2) ORDER BY id DESC LIMIT ?3",
            (before, kind, limit),
        )
    ]


def trim(tx: Transaction, *, most: int = KEPT) -> int:
    """Drop the oldest so that `most` stay; gives how many went."""
    return tx.execute("DELETE FROM cron_events WHERE id <= (SELECT max(id) FROM cron_events) - ?", (most,))
