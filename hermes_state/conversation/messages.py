"""`store.messages`: everything a program does with messages.

Invariant: each method is one transaction or one snapshot, never both, and holds nothing between calls. Messages never
change once stored; what is seen of them is computed (see `view`).

Not for: sessions themselves, searching, or what the command line prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes_state.conversation import context as contexts
from hermes_state.conversation import history as histories
from hermes_state.conversation.append import Appends
from hermes_state.conversation.records import Message, Page, Rewound, Unsettled, Window
from hermes_state.conversation.session_rows import optional_text, required_text, scrub, session_no, wall_time
from hermes_state.engine.translate import loading
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.conversation.streams import Stream
    from hermes_state.engine.connection import ReadStore
    from hermes_state.engine.store import Durability


class Messages(Appends):
    """Append messages and read them back. Safe for threads."""

    # --- reading ---------------------------------------------------------------------------------------------

    def context(self, session_id: str, *, extras: bool = False) -> list[dict[str, Any]]:
        """The live messages of a session in OpenAI chat shape and insertion order: not what was rewound or compacted.

        Each dict has `role` and `content` (as it was given), and where there is one: `tool_calls` (list),
        `tool_call_id`, `name` (of a tool), `reasoning`. With `extras` the fields of `extra` are there as well, such as
        hermes-agent's `api_content`, byte for byte. A branch begins with what it shares with its parent. A session that
        was compacted begins with the summary, as a user message or before the text of one; see `store.compaction`.

        Every tool result comes right after the message with its call. A result without its call is left out; a call
        without a result gets one that says it was not recorded, unless its message is the last one.
        Raises `SessionNotFound`, `SessionDeleted`, `Corrupt`.
        """
        with self._snapshot() as reader:
            return contexts.context(reader, session_no(reader, session_id), extras=extras)

    def history(
        self, session_id: str, *, before: int | None = None, after: int | None = None, limit: int = 50,
        chain: bool = False, include_rewound: bool = False,
    ) -> Page:
        """One page of a session's messages in insertion order, compacted ones included.

        Without `after`, pages go back: the newest `limit` messages, or the newest before the message id `before`. With
        `after` they go forward from the message after that id; 0 is the beginning. Both give what lies between. Pass
        `Page.next` as the same argument for the next page. `chain` pages through the whole conversation, from the first
        session before any compression to the newest one. Rewound messages are left out unless `include_rewound`.
        Raises `SessionNotFound`, `SessionDeleted`, `InvalidInput`, `Corrupt`.
        """
        with self._snapshot() as reader:
            return histories.page(
                reader, session_no(reader, session_id), before=before, after=after, limit=limit, chain=chain,
                include_rewound=include_rewound,
            )

    def around(
        self, session_id: str, message_id: int, window: int = 5, *, chain: bool = False, include_rewound: bool = False
    ) -> Window:
        """A message with up to `window` neighbours on each side, in insertion order.

        Raises as `history`, and `NotFound` when the message is not to be seen in the session.
        """
        with self._snapshot() as reader:
            return histories.around(
                reader, session_no(reader, session_id), message_id, window=window, chain=chain,
                include_rewound=include_rewound,
            )

    def get(self, message_id: int) -> Message:
        """The message of an id, also one that is hidden (`Message.hidden` says by what). Raises `NotFound`."""
        with self._snapshot() as reader:
            return histories.one(reader, message_id)

    def count(self, session_id: str | None = None, *, live: bool = False) -> int:
        """How many messages a session shows in its history, or with `live` sends to the model.

        Without a session: all messages stored, hidden ones included, which reads a whole index.
        """
        with self._snapshot() as reader:
            if session_id is None:
                return histories.count_all(reader)
            no = session_no(reader, session_id)
            return histories.count(reader, histories.runs_of(reader, no, chain=False, include_rewound=False, live=live))

    def find_platform_id(self, session_id: str, platform_message_id: str | int) -> int | None:
        """The newest message of the conversation with this platform id: of the session or one that it continues.

        Raises `SessionNotFound`, `SessionDeleted`, `InvalidInput`.
        """
        with loading(self._core.path):
            from hermes_state.conversation.repeats import find_platform_id

        key = platform_message_id
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise InvalidInput(
                f"platform_message_id is a text or a whole number, not {type(key).__name__}.",
                argument="platform_message_id",
            )
        with self._snapshot() as reader:
            return find_platform_id(reader, session_no(reader, session_id), scrub(str(key)))

    # --- what is to be seen ----------------------------------------------------------------------------------

    def rewind(
        self, session_id: str, message_id: int, *, reason: str | None = None, durability: Durability = "process"
    ) -> Rewound:
        """Take back a user message and all that follows: hidden from context, history and search, by one row.

        Doing it twice hides nothing twice (`edit_id` is None then). A branch may go back into what it shares; its
        parent is not changed. Raises `NotFound`, `InvalidInput` (not a user message), `SessionReplaced`.
        """
        with loading(self._core.path):
            from hermes_state.conversation.rewind import rewind

        at, why = wall_time(self._core.clock), optional_text("reason", reason)
        return self._core.write(
            lambda tx: rewind(tx, session_id, message_id, reason=why, at=at), durability=durability
        )

    def restore(self, session_id: str, edit_id: int | None = None, *, durability: Durability = "process") -> int:
        """Undo a rewind, the latest one by default; returns how many messages are to be seen again.

        What a compaction hides stays out of the context. 0 when there was nothing to undo. Raises `NotFound`,
        `InvalidInput` (the edit is no rewind), `SessionReplaced`.
        """
        with loading(self._core.path):
            from hermes_state.conversation.rewind import restore

        at = wall_time(self._core.clock)
        return self._core.write(lambda tx: restore(tx, session_id, edit_id, at=at), durability=durability)

    def delete(self, session_id: str, message_ids: Iterable[int], *, reason: str, actor: str) -> int:
        """Delete single messages, all or none, at most 1,000; returns how many.

        The ledger keeps who, when, why and which ids. Branches that share them lose them too. Committed at "power".
        Raises `NotFound`, `InvalidInput` (no reason or actor, too many), `SessionNotFound`, `SessionDeleted`.
        """
        with loading(self._core.path):
            from hermes_state.conversation.single_deletes import checked, delete_messages

        ids, at = checked(message_ids), wall_time(self._core.clock)
        actor, reason = required_text("actor", actor), required_text("reason", reason)
        return self._core.write(
            lambda tx: delete_messages(tx, session_id, ids, reason=reason, actor=actor, at=at), durability="power"
        )

    # --- text that is still arriving -------------------------------------------------------------------------

    def stream(self, session_id: str, *, role: str = "assistant") -> Stream:
        """Begin a message whose text is still arriving. See `Stream`. Raises `InvalidInput`, `SessionReplaced`, ..."""
        with loading(self._core.path):
            from hermes_state.conversation.streams import begin

        return begin(self, self._core, session_id, role)

    def unsettled(self, session_id: str | None = None) -> list[Unsettled]:
        """What is left of streams that were not settled, of one session or all, oldest first.

        Those of killed writers are `dead`; of others this is what is durable so far.
        """
        with loading(self._core.path):
            from hermes_state.conversation.streams import unsettled

        with self._snapshot() as reader:
            return unsettled(self._core, reader, None if session_id is None else session_no(reader, session_id))

    def settle_interrupted(
        self, stream_id: int, *, into: str | None = None, durability: Durability = "power"
    ) -> int:
        """Store what is left of a stream as a message with finish_reason "interrupted"; returns its id.

        `into`: another session, for when a continuation took over the stream's own. Raises `NotFound` when the stream
        was settled, abandoned or written to meanwhile, and as `append`.
        """
        with loading(self._core.path):
            from hermes_state.conversation.streams import settle_interrupted

        return settle_interrupted(self._core, stream_id, into=into, durability=durability)

    @contextmanager
    def _snapshot(self) -> Iterator[ReadStore]:
        with self._core.reader() as reader, reader.snapshot():
            yield reader
