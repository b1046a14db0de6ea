"""Obligations of a native store: their texts are replaced together with the check of what was recorded.

Invariant: what decides about sending stays: policy, transport, kind, state, schedule, claim. A row gets the size and
the check of what it says now, so that nothing about a secret can be learned from it and nobody takes it for altered;
recording it again with the secret is a conflict, and sends nothing. An id that is replaced cannot be recorded again
either: the horizon rises to when it was made.

Not for: other tables (`cells`). Leaving the check was rejected: it is a SHA-256 of the secret and what stood beside it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from maintenance.dialects.native import owed
from maintenance.scrub import working
from maintenance.scrub.cells import still_json, unlocked

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

TABLE = "outbox"
ROWS_A_STEP = 50
_TEXTS = ("dedupe_id", "target", "lane", "batch", "payload", "verdict")
_JSON = ("payload", "verdict")
_FIELDS = ("id", "made_at", *dict.fromkeys((*_TEXTS, *owed.CHECKED)))


def obligations(reader: Reader, redactor: Redactor) -> Iterator[list[dict[str, Any]]]:
    """The obligations with secrets in them as they should become, in portions; `was` is the old id."""
    if not owed.has_outbox(reader.rows):
        return
    last = -1
    while rows := reader.rows(
        f"SELECT {', '.join(_FIELDS)} FROM outbox WHERE id > ? ORDER BY id LIMIT {ROWS_A_STEP}", (last,)
    ):
        last = rows[-1][0]
        portion = []
        for values in rows:
            row = dict(zip(_FIELDS, values, strict=True))
            new = row | {name: redactor.cell(row[name]) for name in _TEXTS} | {"was": row["dedupe_id"]}
            new |= {name: _json(redactor, row[name]) for name in _JSON}
            if any(new[name] != row[name] for name in _TEXTS):
                portion.append(new)
        if portion:
            yield portion


def _json(redactor: Redactor, text: str | None) -> str | None:
    """JSON without secrets, which stays JSON: a sender that cannot read a row sends nothing any more."""
    if text is None:
        return None
    # As an item of a list, so that a lone text is searched as it reads, without its quotes.
    inside = redactor.text(f"[{text}]")
    new = inside[1:-1] if inside[:1] == "[" and inside[-1:] == "]" else inside
    return text if new == text else still_json(new)


def replace_obligations(tx: Transaction, portion: Sequence[dict[str, Any]], at: float) -> int:
    """Write obligations with their new texts; returns how many. The triggers that keep what is settled are away."""
    with unlocked(tx, TABLE):
        for new in portion:
            blank = new["payload"] is None
            (was,) = tx.rows("SELECT payload FROM outbox WHERE id = ?", (new["id"],))[0]
            working.follow(tx, was, new["payload"])
            # Of a payload that was blanked nothing is known, and the old check may be of a secret.
            check = secrets.token_hex(32) if blank else owed.check_of(new)
            tx.execute(
                "UPDATE outbox SET dedupe_id = ?, target = ?, lane = ?, batch = ?, payload = ?, verdict = ?,"
                " payload_check = ?, payload_bytes = iif(?, payload_bytes, ?) WHERE id = ?",
                (
                    *(new[name] for name in _TEXTS), check, blank,
                    0 if blank else len(new["payload"].encode("utf-8", "surrogatepass")), new["id"],
                ),
            )
            if new["was"] != new["dedupe_id"]:
                owed.raise_horizon(tx, new["made_at"])
            changes.record(tx, TABLE, new["dedupe_id"], "update", at)
    return len(portion)
