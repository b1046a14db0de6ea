"""What the turn of a chat asks of sessions, in its transaction: a new one, and where one goes on.

Invariant: a session that is made for a chat says which chat that is, as one that a gateway makes does.

Not for: deciding when (see routing/chats.py, which knows nothing of sessions' rows). Sessions that are made in a
transaction of their own were rejected: one that is killed before it is bound would be nobody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hermes_state.conversation import creation, lineage
from hermes_state.conversation.creation import Place, Setup
from hermes_state.conversation.session_rows import required_text

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


class Chat(Protocol):
    """What a chat is known by; "" is none."""

    @property
    def text(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def chat_type(self) -> str: ...
    @property
    def chat_id(self) -> str: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def user_id(self) -> str: ...


def for_chat(tx: Transaction, chat: Chat, *, source: str | None, at: float) -> str:
    """Make a session for a chat, of `source` (by default its platform); its id. Raises as `creation.insert`."""
    place = Place(
        session_key=chat.text, chat_id=chat.chat_id or None, chat_type=chat.chat_type,
        thread_id=chat.thread_id or None, user_id=chat.user_id or None,
    ).known()
    _no, session_id = creation.insert(
        tx, id=None, source=required_text("source", chat.platform if source is None else source), at=at,
        setup=Setup(), place=place,
    )
    return session_id


def tip_id(reader: Reader, session_id: str) -> str:
    """The id of the session that the conversation of a session goes on in; itself where there is none of that id."""
    row = reader.row("SELECT no FROM sessions WHERE id = ?", (session_id,))
    if row is None:
        return session_id
    return str(reader.rows("SELECT id FROM sessions WHERE no = ?", (lineage.tip_no(reader, int(row[0])),))[0][0])
