"""Background work, lanes and replies of a native store: texts that are JSON, and digests that would give a text away.

Invariant: JSON stays JSON, and a lone text in it is searched as it reads. A reply whose final was replaced has the
digest of what its obligation says now; once anything was replaced, one whose text nobody can read any more has random
digests, since the old ones may be of a secret. So declaring such a final again is another final and owes an edit.

Not for: what was sent. Leaving the digests was rejected: whoever guesses the secret could prove it by them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.work import seals
from maintenance.scrub.cells import still_json, unlocked

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

# By table, the columns that are JSON; a result is that of a delegation only.
TEXTS: Mapping[str, tuple[str, ...]] = {
    "background_work": ("described", "result"), "lane_items": ("content", "details"),
}
_NAME: Mapping[str, str] = {"background_work": "key", "lane_items": "no"}
_DIGESTS = ("sealed_digest", "final_digest", "shown_digest")
REPLIES = "reply_seals"
ROWS_A_STEP = 50


def rows(reader: Reader, redactor: Redactor, table: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table with secrets in them as they should become, in portions; nothing where it has no table."""
    if not _there(reader, table):
        return
    names, last = TEXTS[table], -1
    plain = "sort = 'process'" if table == "background_work" else "0"
    while found := reader.rows(
        f"SELECT no, {plain}, {', '.join(names)} FROM {table} WHERE no > ? ORDER BY no LIMIT {ROWS_A_STEP}", (last,)
    ):
        last = found[-1][0]
        portion = []
        for number, is_plain, *values in found:
            new = {
                name: redactor.cell(value) if is_plain and name == "result" else _json(redactor, value)
                for name, value in zip(names, values, strict=True)
            }
            if list(new.values()) != values:
                portion.append({"no": number} | new)
        if portion:
            yield portion


def replace(tx: Transaction, table: str, portion: list[dict[str, Any]], at: float) -> int:
    """Write rows with their new texts; returns how many."""
    with unlocked(tx, table):
        for new in portion:
            said = {name: value for name, value in new.items() if name != "no"}
            sets = ", ".join(f"{name} = ?" for name in said)
            tx.execute(f"UPDATE {table} SET {sets} WHERE no = ?", (*said.values(), new["no"]))
            (key,) = tx.rows(f"SELECT {_NAME[table]} FROM {table} WHERE no = ?", (new["no"],))[0]
            changes.record(tx, table, str(key), "update", at)
    return len(portion)


def follow(tx: Transaction, was: str | None, now: str | None) -> None:
    """Let a reply have the digest of the text that its obligation says now; `was`, `now`: payloads, as JSON."""
    before, after = _final(was), _final(now)
    if before is None or after is None or before[1] == after[1] or not _there(tx, REPLIES):
        return
    old, new = seals.digest_of(before[1]), hashlib.sha256(after[1].encode("utf-8", "surrogatepass")).digest()
    with unlocked(tx, REPLIES):
        _set(tx, before[0], {old: new})


def forget_unreadable(tx: Transaction) -> int:
    """Give replies whose text is not in the outbox any more random digests; returns how many."""
    if not _there(tx, REPLIES):
        return 0
    found = tx.rows(
        f"SELECT turn_id, {', '.join(_DIGESTS)} FROM {REPLIES} AS r WHERE finals > 0 AND NOT EXISTS"
        " (SELECT 1 FROM outbox WHERE kind = 'final' AND lane = 'reply/' || r.turn_id AND payload IS NOT NULL)"
    )
    with unlocked(tx, REPLIES):
        for turn_id, *digests in found:
            _set(tx, turn_id, {bytes(one): secrets.token_bytes(32) for one in {*digests} if one is not None})
    return len(found)


def _set(tx: Transaction, turn_id: str, instead: Mapping[bytes, bytes]) -> None:
    row = tx.row(f"SELECT {', '.join(_DIGESTS)} FROM {REPLIES} WHERE turn_id = ?", (turn_id,))
    if row is not None:
        sets = ", ".join(f"{name} = ?" for name in _DIGESTS)
        values = [one if one is None else instead.get(bytes(one), one) for one in row]
        tx.execute(f"UPDATE {REPLIES} SET {sets} WHERE turn_id = ?", (*values, turn_id))


def _final(payload: str | None) -> tuple[str, str] | None:
    """Turn and text of the payload of a final."""
    try:
        said = json.loads(payload) if payload is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("text"), str) or "final" not in said:
        return None
    return str(said.get("turn_id")), said["text"]


def _json(redactor: Redactor, text: str | None) -> str | None:
    """JSON without secrets, which stays JSON. As an item of a list a lone text is searched without its quotes."""
    if text is None:
        return None
    inside = redactor.text(f"[{text}]")
    new = inside[1:-1] if inside[:1] == "[" and inside[-1:] == "]" else inside
    return text if new == text else still_json(new)


def _there(reader: Reader, table: str) -> bool:
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)) is not None
