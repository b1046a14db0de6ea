"""Rows of `async_delegations`, as delegations: see `hermes_state.work.old_delegations` for what of it is owed.

Invariant: a result goes to the conversation that gave the work, through the platform that its key names; a result of
the API server is shown by it and begins no turn; without a key it is for the terminal that began it.

Not for: who ran it. Telling a person instead of the conversation was rejected: hermes-agent begins a turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput
from hermes_state.routing.records import read
from hermes_state.work.background import Tell
from hermes_state.work.old_delegations import OldDelegation, old_delegation, take_in
from hermes_state.work.states import Mode
from maintenance.interop.convert.records import Ready
from maintenance.interop.typed import BadText, Cell

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.routing import Home

DELEGATIONS = "async_delegations"
_TABLE = "background_work"
_NAMESPACE = "agent:"
_TEXTS = ("delegation_id", "origin_session", "origin_session_id", "origin_ui_session_id", "parent_session_id")
TERMINAL, API_SERVER = "cli", "api_server"


def delegations(home: Home, rows: Sequence[Mapping[str, Cell]]) -> Iterator[Ready | InvalidInput]:
    """Rows of the table."""
    for cells in rows:
        plain = {name: str(cell) if isinstance(cell, BadText) else cell for name, cell in cells.items()}
        try:
            _check_texts(plain)
            yield _ready(home, old_delegation(plain), plain)
        except InvalidInput as error:
            yield error


def _check_texts(plain: Mapping[str, Cell]) -> None:
    for name in _TEXTS:
        if not isinstance(plain.get(name), str | None):
            raise InvalidInput(f"Its {name} is {plain[name]!r:.80}, which is no text.")


def _ready(home: Home, old: OldDelegation, plain: Mapping[str, Cell]) -> Ready:
    was = {name: cell for name, cell in plain.items() if not isinstance(cell, bytes)}

    def write(tx: Transaction, at: float) -> None:
        take_in(tx, home, old, _tell(tx, old, plain), at=at)

    def differs(reader: Reader) -> tuple[str, ...]:
        row = reader.row(f"SELECT state, described, session_key, ended_at FROM {_TABLE} WHERE key = ?", (old.key,))
        if row is None:
            return ("delegation_id",)
        kept = json.loads(row[1]).get("was", {})
        wrong = [name for name, cell in was.items() if kept.get(name) != cell]
        same = {
            "state": row[0] == old.state, "origin_session": row[2] == old.session_key,
            "completed_at": row[3] == old.ended_at,
        }
        return tuple(dict.fromkeys(wrong + [name for name, equal in same.items() if not equal]))

    return Ready(
        table=DELEGATIONS, key=str(plain.get("delegation_id")), into=_TABLE,
        there=lambda reader: reader.row(f"SELECT 1 FROM {_TABLE} WHERE key = ?", (old.key,)) is not None,
        refuse=lambda _reader: None, write=write, differs=differs,
    )


def _tell(reader: Reader, old: OldDelegation, plain: Mapping[str, Cell]) -> Tell:
    """Who is given the result: the chat of the conversation, by its entry or as far as its key says."""
    key = old.session_key or ""
    parts = key.split(":")
    if not key.startswith(_NAMESPACE) or len(parts) < 3 or not parts[2]:
        begun_by = plain.get("origin_ui_session_id") or key
        return Tell(mode=Mode.TURN, transport=TERMINAL, target=str(begun_by or ""))
    route = read(reader, key)
    target = "" if route is None else ":".join(part for part in (route.key.chat_id, route.key.thread_id) if part)
    return Tell(mode=Mode.DISPLAY if parts[2] == API_SERVER else Mode.TURN, transport=parts[2], target=target)
