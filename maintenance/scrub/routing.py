"""Routing entries whose texts say who a chat is with: the key, its parts and where answers go change together.

Invariant: an entry can be read afterwards: its key is that of its parts, its origin is a source, its model override
JSON. The session, the home, the profiles, the platform, the state and the generation stay. A chat whose id was replaced
is another chat from then on: its next message begins anew, and nobody is answered by the old entry.

Not for: other tables of routing: their texts stand alone and go cell by cell (`cells`). Replacing key and parts each by
itself was rejected: a pattern may find one of them only, and the entry could not be read any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.errors import InvalidInput
from hermes_state.routing.identity import Source
from hermes_state.routing.keys import SessionKey
from maintenance.dialects.native import routed
from maintenance.scrub.cells import still_json, unlocked

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

TABLE = routed.ENTRIES
# In tables that are searched cell by cell: what says who and which, and is no text of anybody.
FIXED: Mapping[str, frozenset[str]] = {
    "routing_unserved": frozenset({"platform", "profile", "home"}),
    "pairing_requests": frozenset({"platform", "home", "salt", "code_digest"}),
    "pairing_users": frozenset({"platform", "home"}),
    "pairing_failures": frozenset({"platform"}),
}
_IDS = ("chat_id", "thread_id", "user_id")
_WORDS = ("platform", "chat_type")
_REASONS = ("state_reason", "reset_reason")


def entries(reader: Reader, redactor: Redactor) -> Iterator[list[dict[str, Any]]]:
    """The entries with secrets in them as they should become, each a portion; `was` is the old key."""
    if not routed.has_routing(reader.rows):
        return
    for row in routed.rows_of(reader.rows, TABLE):
        new = row | {name: redactor.cell(row[name]) for name in (*_IDS, *_REASONS)}
        new["origin"] = _origin(redactor, row["origin"])
        new["model_override"] = _override(redactor, row["model_override"])
        found = new != row or redactor.cell(row["session_key"]) != row["session_key"]
        key = SessionKey(
            profile=new["runtime_profile"], platform=new["platform"], chat_type=new["chat_type"],
            chat_id=new["chat_id"], thread_id=new["thread_id"], user_id=new["user_id"],
        )
        if routed.problem_of(row):
            new["session_key"] = redactor.cell(row["session_key"])  # it could not be read before either
        else:
            new["session_key"] = key.text
        if found:
            # Also one that is found only across the parts of a key, and stays: what is left is looked for afterwards.
            yield [new | {"was": row["session_key"]}]


def _origin(redactor: Redactor, text: str) -> str:
    """A source without secrets, which can be read as one."""
    try:
        said = json.loads(text)
        made = {name: value if name in _WORDS else redactor.cell(value) for name, value in said.items()}
        new = text if made == said else json.dumps(made, sort_keys=True)
        Source.from_json(new)
    except (InvalidInput, ValueError, AttributeError, RecursionError):
        return still_json(redactor.text(text))
    return new


def _override(redactor: Redactor, text: str | None) -> str | None:
    """A model override without secrets; one of which nothing is left to be read is taken back."""
    if text is None or (new := redactor.text(text)) == text:
        return text
    try:
        return new if isinstance(json.loads(new), dict) else None
    except (ValueError, RecursionError):
        return None


def replace_entries(tx: Transaction, portion: list[dict[str, Any]], at: float) -> int:
    """Write entries with their new texts; returns how many. The triggers that keep who they are are away."""
    with unlocked(tx, TABLE):
        for new in portion:
            said = {name: value for name, value in new.items() if name != "was"}
            said |= {"version": new["version"] + 1, "updated_at": at}
            sets = ", ".join(f"{name} = ?" for name in said)
            tx.execute(f"UPDATE {TABLE} SET {sets} WHERE session_key = ?", [*said.values(), new["was"]])
            changes.record(tx, TABLE, new["session_key"], "update", at)
    return len(portion)
