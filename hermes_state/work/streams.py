"""`store.work.streams`: one reply a turn, sealed once, corrected by editing.

Invariant: what a sender is told to do is read from rows each time: edit where a message of the platform is known, send
only where none is, and say so when something may be shown already. That the platform has a final, and which message it
is, commits with the settlement of its obligation, so no restart sends a second one beside an editable first.

Not for: frames (see `frames`), or sending. A thread that sends was rejected, as for the outbox: only the caller knows
when its transports are up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox import Claim, Obligation, Outbox, State, Suppressed, Verdict
from hermes_state.outbox.inputs import LATEST, names, seconds, whole
from hermes_state.outbox.outbox import TERM_SECONDS
from hermes_state.outbox.settling import settle as settle_claim
from hermes_state.routing.homes import Home
from hermes_state.work import callbacks, seals
from hermes_state.work.frames import Frames
from hermes_state.work.reply_media import MEDIA
from hermes_state.work.reply_states import Door, ReplyState, door
from hermes_state.work.seals import FINAL, Finished, Reply
from hermes_state.work.timed import Timed

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

# How long a reply is remembered after its last change: twice as long as the outbox knows its ids.
KEPT_SECONDS = 14 * 86_400.0
LEAST_KEPT_SECONDS = 8 * 86_400.0
MOST_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Sending:
    """One part of a reply that is to go out now."""

    claim: Claim  # for `store.work.streams.renew`
    obligation: Obligation  # its `recovered` is true when its sender was lost
    turn_id: str
    text: str | None  # the whole final; None: it is media
    media: Any  # what `finish` was given; None: it is the text
    details: Any  # what `finish` was given
    edit: str | None  # the platform's message to edit; None: none is known, so a message of its own is sent
    # whether something of it may be with the receiver already: without `edit` the text has to say so
    may_be_shown: bool


Handler = Callable[[Sending], Verdict | None]


class Streams(Timed):
    """The replies of one store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._sealing = _Sealing(core)

    def frames(self) -> Frames:
        """The frames of one reply, in memory: `extend` gives what is new, and refuses what goes on from nothing."""
        return Frames()

    # --- the turn ----------------------------------------------------------------------------------------------

    def begin(
        self, turn_id: str, home: Home, *, transport: str, target: str, message_id: str | None = None
    ) -> Reply:
        """A reply begins to be streamed. Call it before the platform is asked for a message, and `message` after it.

        `turn_id` has at most 400 characters. Begun again before its final it is found. Raises `ReplyEnded`,
        `WrongHome`, `HomeRemoved`, `InvalidInput`.
        """
        return self._write_at(home, lambda tx, at: seals.begin(
            tx, turn_id, home, transport=transport, target=target, at=at, message_id=message_id
        ))

    def message(self, turn_id: str, home: Home, message_id: str | None) -> Reply:
        """Keep which message of the platform has the reply. None: it is gone or cannot be edited, so the next is sent.

        Raises `ReplyNotFound`, `WrongHome`, `HomeRemoved`, `InvalidInput`.
        """
        return self._write_at(home, lambda tx, at: seals.message(tx, turn_id, home, message_id, at=at))

    def door(self, turn_id: str, *, interim: bool = False) -> Door:
        """What a send of that turn is: a message of its own, its final (`finish` it), or a correction (`finish` it).

        Every way out asks. `interim`: commentary, the flush of a segment; such a send passes and seals nothing.
        """
        with self._core.reader() as reader:
            found = seals.find(reader, turn_id) if has_streams(reader) else None
        return door(None if found is None else found.state, interim=interim)

    def finish(
        self, turn_id: str, final: str, home: Home, *, transport: str | None = None, target: str | None = None,
        media: Sequence[Any] = (), details: Any = None,
    ) -> Finished:
        """Declare the final of a turn in a transaction of its own, at `power`; see `hermes_state.work.seals.finish`.

        What settles the turn calls that with its own `tx` instead, so that both are there or neither.
        """
        return self._write_at(home, lambda tx, at: seals.finish(
            tx, turn_id, final, home, at=at, transport=transport, target=target, media=media, details=details
        ))

    def abandon(self, turn_id: str, home: Home) -> Reply:
        """End a reply without a final. Raises `ReplyEnded` once it is sealed, `ReplyNotFound`."""
        return self._write_at(home, lambda tx, at: seals.abandon(tx, turn_id, home, at=at))

    # --- the sender --------------------------------------------------------------------------------------------

    def deliver(
        self, handler: Handler, transports: Iterable[str], *, limit: int = 1, term_seconds: float = TERM_SECONDS
    ) -> list[tuple[Claim, Verdict]]:
        """Send what is owed of replies, up to `limit` parts: as `store.outbox.deliver`, for kinds "final" and "media".

        The handler edits the message `edit` where there is one, and sends where there is none; it returns
        `Accepted(result={"message_id": ...})` with the message that has the text now. A final that was corrected before
        it went out is not given to it. A plain function only; for asyncio, in a thread of the pool. Raises as
        `store.outbox.deliver`.
        """
        callbacks.plain("handler", handler)

        def send(claim: Claim) -> Verdict | None:
            sending = self._sending(claim)
            return Suppressed(why=sending) if isinstance(sending, str) else handler(sending)

        return self._outbox().deliver(
            send, names("transports", transports), kinds=(FINAL, MEDIA), limit=limit, term_seconds=term_seconds
        )

    def renew(self, claim: Claim, *, term_seconds: float = TERM_SECONDS) -> None:
        """As `store.outbox.renew`."""
        self._outbox().renew(claim, term_seconds=term_seconds)

    def settle(self, claim: Claim, verdict: Verdict) -> dict[int, State]:
        """As `store.outbox.settle`, and keeps what it says of the reply, in one transaction."""
        return self._outbox().settle(claim, verdict)

    # --- reading -----------------------------------------------------------------------------------------------

    def get(self, turn_id: str) -> Reply | None:
        """The reply of a turn, None when none was begun."""
        with self._core.reader() as reader:
            return seals.find(reader, turn_id) if has_streams(reader) else None

    def page(self, *, state: ReplyState | None = None, limit: int = 50) -> list[Reply]:
        """Up to `limit` replies (1 to 1000) of a state, or of all that stream or are owed, oldest first.

        What is `streaming` after a restart was interrupted: finish it, or abandon it.
        """
        whole("limit", limit, 1, MOST_PAGE)
        states = [str(state)] if state is not None else [
            str(one) for one in (ReplyState.STREAMING, ReplyState.SEALING, ReplyState.RECONCILING)
        ]
        with self._core.reader() as reader:
            if not has_streams(reader):
                return []
            return [
                seals.reply_of(row) for row in reader.rows(
                    f"SELECT {seals.COLUMNS} FROM reply_seals WHERE state IN ({', '.join('?' * len(states))})"
                    " ORDER BY changed_at, turn_id LIMIT ?", (*states, limit),
                )
            ]

    def forget(self, *, kept_seconds: float = KEPT_SECONDS, limit: int = 500) -> int:
        """Forget up to `limit` replies of which nothing is owed, `kept_seconds` after they last changed; says how many.

        Raises `InvalidInput` for less than 8 days: the outbox knows its ids for 7.
        """
        if seconds("kept_seconds", kept_seconds, most=LATEST) < LEAST_KEPT_SECONDS:
            raise InvalidInput(
                f"Replies are kept for 8 days at least, not {kept_seconds:.0f} s.", argument="kept_seconds"
            )
        whole("limit", limit, 1, MOST_PAGE)
        at = self._core.clock.now()

        def work(tx: Transaction) -> int:
            rows = [
                one for state in ReplyState for (one,) in tx.rows(
                    "SELECT turn_id FROM reply_seals WHERE state = ? AND changed_at <= ? AND NOT EXISTS"
                    " (SELECT 1 FROM outbox WHERE settled_at IS NULL AND lane = 'reply/' || turn_id)"
                    " ORDER BY changed_at LIMIT ?", (str(state), at - kept_seconds, limit),
                )
            ][:limit]
            for turn_id in rows:
                tx.execute("DELETE FROM reply_seals WHERE turn_id = ?", (turn_id,))
                record(tx, "reply_seals", turn_id, "delete", at)
            return len(rows)

        return self._core.write(work)

    # --- inside ------------------------------------------------------------------------------------------------

    def _outbox(self) -> _Sealing:
        """The outbox that keeps what verdicts say of replies; it refuses once this group does."""
        self._sealing._core = self._core
        return self._sealing

    def _sending(self, claim: Claim) -> Sending | str:
        """What is to be sent of a claim; a text: why it is not wanted any more."""
        one = claim.primary
        payload = one.payload if isinstance(one.payload, dict) else {}
        turn_id = str(payload.get("turn_id"))
        with self._core.reader() as reader, reader.snapshot():
            reply = seals.find(reader, turn_id)
            if reply is not None and payload.get("final") != reply.finals and one.kind == FINAL:
                return "a newer final counts"
            if reply is not None and reply.state is ReplyState.GIVEN_UP and one.kind == MEDIA and one.retry_of is None:
                return "the text that it goes with was given up"
            is_text = one.kind == FINAL
            edit = seals.known_message(reader, reply) if reply is not None and is_text else None
            may = one.recovered or one.retry_of is not None or (
                reply is not None and is_text and seals.may_be_shown(reader, reply)
            )
        return Sending(
            claim=claim, obligation=one, turn_id=turn_id, text=payload.get("text") if is_text else None,
            media=None if is_text else payload.get("media"), details=payload.get("details"), edit=edit,
            may_be_shown=may,
        )


class _Sealing(Outbox):
    """The outbox whose verdicts about replies are kept with the replies."""

    def _settle(self, claimed: Claim, verdict: Verdict, *, deadline_seconds: float | None = None) -> dict[int, State]:
        at = self._core.clock.now()

        def work(tx: Transaction) -> dict[int, State]:
            states = settle_claim(tx, claimed, verdict, at=at)
            seals.shown(tx, claimed, verdict, at=at)
            return states

        return self._core.write(work, durability="power", deadline_seconds=deadline_seconds)


def has_streams(reader: Reader) -> bool:
    """Whether the store has the tables: they come with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'reply_seals'") is not None
