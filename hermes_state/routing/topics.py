"""Direct chats whose topics are conversations of their own, such as those of Telegram after `/topic`.

Invariant: a row says that a person asked for it, or took it back; a chat without a row never had topics. Which session
a topic goes on in is a routing entry whose key has the topic as its thread, and is kept nowhere else.

Not for: what a platform calls a topic. Telling it from the entries was rejected: a chat whose person asked for topics
and has begun none would go on as one conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import levels, text, whole
from hermes_state.routing.homes import Home, guard, refuse_other_home, valid_home

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

TABLE = "topic_chats"
MOST_PAGE = 1000
MOST_DETAILS = 10_000  # characters of JSON: flags and ids of messages
_COLUMNS = "platform, chat_id, home, user_id, enabled, details, activated_at, updated_at"


@dataclass(frozen=True, kw_only=True)
class TopicChat:
    """One chat that has topics, or had."""

    platform: str
    chat_id: str
    home: str  # store_id
    user_id: str  # who asked for it
    enabled: bool
    details: Mapping[str, Any]  # the adapter's: what the platform allows there, ids of messages it pinned
    activated_at: float  # epoch seconds UTC
    updated_at: float  # epoch seconds UTC


class Topics:
    """The chats with topics of one home. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def get(self, platform: str, chat_id: str) -> TopicChat | None:
        """The chat, None when nobody ever asked for topics in it."""
        key = _key(platform, chat_id)
        with self._core.reader() as reader:
            return find(reader, *key) if has_topics(reader) else None

    def page(self, *, limit: int = 50, after: tuple[str, str] | None = None) -> list[TopicChat]:
        """Up to `limit` chats (1 to 1000) by platform and id; `after`: those of the last of the page before."""
        whole("limit", limit, 1, MOST_PAGE)
        with self._core.reader() as reader:
            return [
                _chat(row) for row in reader.rows(
                    f"SELECT {_COLUMNS} FROM {TABLE} WHERE (platform, chat_id) > (?, ?)"
                    " ORDER BY platform, chat_id LIMIT ?", (*(after or ("", "")), limit),
                )
            ] if has_topics(reader) else []

    def set(
        self, platform: str, chat_id: str, home: Home, *, user_id: str, enabled: bool,
        details: Mapping[str, Any] | None = None,
    ) -> TopicChat:
        """Let the topics of a chat be conversations, or not any more. `details` None: those that are there.

        Raises `InvalidInput`, `WrongHome`, `HomeRemoved`.
        """
        refuse_other_home(self._core, valid_home("home", home))
        at = self._core.clock.now()
        return self._core.write(lambda tx: keep(
            tx, platform, chat_id, home, user_id=user_id, enabled=enabled, details=details, activated_at=at, at=at
        ))


def keep(
    tx: Transaction, platform: str, chat_id: str, home: Home, *, user_id: str, enabled: bool,
    details: Mapping[str, Any] | None, activated_at: float, at: float,
) -> TopicChat:
    """As `Topics.set`, in the caller's transaction; what says the same writes nothing."""
    guard(tx, home)
    key = _key(platform, chat_id)
    there = find(tx, *key)
    said = (text("user_id", user_id, empty=True, of=" of a chat"), bool(enabled), _json(details, there))
    if there is not None and said == (there.user_id, there.enabled, _json(there.details, None)):
        return there
    tx.execute(
        f"INSERT INTO {TABLE} (platform, chat_id, home, user_id, enabled, details, activated_at, updated_at)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (platform, chat_id) DO UPDATE SET home = ?3,"
        " user_id = ?4, activated_at = iif(?5 > enabled, ?7, activated_at), enabled = ?5, details = ?6,"
        " updated_at = ?8",
        (*key, home.store_id, said[0], int(said[1]), said[2], activated_at, at),
    )
    record(tx, TABLE, "/".join(key), "insert" if there is None else "update", at)
    found = find(tx, *key)
    assert found is not None
    return found


def find(reader: Reader, platform: str, chat_id: str) -> TopicChat | None:
    """The row of a chat."""
    row = reader.row(f"SELECT {_COLUMNS} FROM {TABLE} WHERE platform = ? AND chat_id = ?", (platform, chat_id))
    return None if row is None else _chat(row)


def has_topics(reader: Reader) -> bool:
    """Whether the store has the table: it comes with a schema step that a read-only open does not make."""
    return reader.row(f"SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{TABLE}'") is not None


def _key(platform: str, chat_id: str) -> tuple[str, str]:
    return text("platform", platform, of=" of a chat"), text("chat_id", chat_id, of=" of a chat")


def _json(details: Mapping[str, Any] | None, there: TopicChat | None) -> str:
    if details is None:
        details = {} if there is None else there.details
    if not isinstance(details, Mapping):
        raise InvalidInput("details of a chat is an object.", argument="details")
    levels("details", dict(details), of="a chat")
    said = json.dumps(dict(details), sort_keys=True)
    if len(said) > MOST_DETAILS:
        raise InvalidInput(f"details of a chat is JSON of at most {MOST_DETAILS:,} characters.", argument="details")
    return said


def _chat(row: tuple[Any, ...]) -> TopicChat:
    platform, chat_id, home, user_id, enabled, details, activated_at, updated_at = row
    return TopicChat(
        platform=platform, chat_id=chat_id, home=home, user_id=user_id, enabled=bool(enabled),
        details=json.loads(details), activated_at=activated_at, updated_at=updated_at,
    )
