"""Rows of `gateway_routing` and of the topics of Telegram, as routing entries and chats with topics.

Invariant: what an entry says is kept by `hermes_state.routing.taking_in`, and nothing is made up for it. Of several
scopes with one key the entry that was written last counts. A topic is an entry whose key has it as its thread; one
whose entry goes on in another session stays, and says so.

Not for: `managed_mode` and `linked_at` of a topic, which nothing here asks for: they stay in the kept row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput, Refused
from hermes_state.routing import sessions, taking_in, topics
from hermes_state.routing.records import read
from maintenance.interop.adopt.survey import sane_time
from maintenance.interop.convert.records import Ready
from maintenance.interop.typed import BadText, Cell

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.routing import Home

ROUTING, BINDINGS, MODES = "gateway_routing", "telegram_dm_topic_bindings", "telegram_dm_topic_mode"
_ENTRIES = "routing_entries"
_DETAILS = (
    "has_topics_enabled", "allows_users_to_create_topics", "capability_checked_at", "intro_message_id",
    "pinned_message_id",
)
Cells = Mapping[str, Cell]


def entries(home: Home, rows: Sequence[Cells]) -> Iterator[Ready | InvalidInput]:
    """Rows of `gateway_routing`; an error in the place of one that cannot be read."""
    newest: dict[Cell, Cells] = {}
    for cells in rows:
        there = newest.get(cells.get("session_key"))
        if there is None or (sane_time(cells.get("updated_at")) or 0) > (sane_time(there.get("updated_at")) or 0):
            newest[cells.get("session_key")] = cells
    for cells in rows:
        if newest[cells.get("session_key")] is not cells:
            yield InvalidInput("Another scope has an entry of this key that was written later.")
            continue
        try:
            said = _object(cells.get("entry_json"))
            key = cells.get("session_key")
            if said.setdefault("session_key", key) != key:
                raise InvalidInput(f"Its text is the entry of another key, {said['session_key']!r:.200}.")
            yield _entry(home, ROUTING, str(key), said)
        except InvalidInput as error:
            yield error


def bindings(home: Home, rows: Sequence[Cells]) -> Iterator[Ready | InvalidInput]:
    """Rows of `telegram_dm_topic_bindings`."""
    for cells in rows:
        said = {name: _id(cells.get(name)) for name in ("chat_id", "thread_id", "user_id", "session_key")}
        origin = {"platform": "telegram", "chat_type": "dm"} | {
            name: said[name] for name in ("chat_id", "thread_id", "user_id")
        }
        entry = {"session_key": said["session_key"], "session_id": cells.get("session_id"), "origin": origin}
        try:
            yield _entry(home, BINDINGS, f"{said['chat_id']}/{said['thread_id']}", entry)
        except InvalidInput as error:
            yield error


def modes(home: Home, rows: Sequence[Cells]) -> Iterator[Ready | InvalidInput]:
    """Rows of `telegram_dm_topic_mode`."""
    for cells in rows:
        yield _mode(home, cells)


def _entry(home: Home, table: str, key: str, said: Mapping[str, Any]) -> Ready:
    old = taking_in.old_entry(said, profile=home.profile)
    session_key = old.key.text

    def there(reader: Reader) -> bool:
        found = read(reader, session_key)
        return found is not None and (table == ROUTING or found.session_id == old.session_id)

    def refuse(reader: Reader) -> None:
        found = read(reader, session_key)
        if found is not None and found.session_id != old.session_id:
            raise Refused(f"Its topic goes on in session {found.session_id!r}.")
        if found is None:
            sessions.conversation(reader, old.session_id)

    def differs(reader: Reader) -> tuple[str, ...]:
        found = read(reader, session_key)
        if found is None:
            return ("session_key",)
        same = {
            "session_id": found.session_id == old.session_id, "origin": found.origin == old.origin,
            "transport_profile": found.transport_profile == old.transport_profile,
            "state": found.state == old.state,
        }
        return tuple(name for name, equal in same.items() if not equal)

    return Ready(
        table=table, key=key, into=_ENTRIES, there=there, refuse=refuse,
        write=lambda tx, at: _done(taking_in.take_in(tx, home, old, at=at)), differs=differs,
    )


def _mode(home: Home, cells: Cells) -> Ready:
    chat_id, user_id = _id(cells.get("chat_id")), _id(cells.get("user_id"))
    details = {name: _plain(cells.get(name)) for name in _DETAILS if cells.get(name) is not None}
    enabled, activated = cells.get("enabled") not in (0, None), sane_time(cells.get("activated_at"))

    def differs(reader: Reader) -> tuple[str, ...]:
        found = topics.find(reader, "telegram", chat_id)
        if found is None:
            return ("chat_id",)
        same = {
            "user_id": found.user_id == user_id, "enabled": found.enabled == enabled,
            **{name: found.details.get(name) == details.get(name) for name in _DETAILS},
        }
        return tuple(name for name, equal in same.items() if not equal)

    return Ready(
        table=MODES, key=chat_id, into=topics.TABLE,
        there=lambda reader: topics.find(reader, "telegram", chat_id) is not None,
        refuse=lambda _reader: None,
        write=lambda tx, at: _done(topics.keep(
            tx, "telegram", chat_id, home, user_id=user_id, enabled=enabled, details=details,
            activated_at=at if activated is None else activated, at=at,
        )),
        differs=differs,
    )


def _done(_row: object) -> None:
    """What is written is read again when all is compared."""


def _object(text: Cell) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("Its text is no JSON object.")
    return found


def _plain(cell: Cell) -> Any:
    """A cell as JSON can say it."""
    if isinstance(cell, BadText):
        return str(cell)
    return cell.hex() if isinstance(cell, bytes) else cell


def _id(cell: Cell) -> str:
    """An id of a platform, which is a number in one file and a text in another."""
    return "" if cell is None else str(_plain(cell))
