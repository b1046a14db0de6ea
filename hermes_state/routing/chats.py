"""The turn of a chat: from a message that came to its answer, one at a time, in the session that the chat has then.

Invariant: one message of a chat is worked on at a time, whatever session it is in: the turn has a lease of the chat and
the turn of its conversation. Which session that is is decided under the lease, in one transaction: bound to a new one,
reset to a new one where the old one is not to go on or was deleted, followed to what continues it; and looked at again
once the conversation's turn is had, so that a message that waited while the chat was reset goes into the new session.
A mark to resume stays until a turn of the chat ended well: one that is killed is taken up again.

Not for: sending answers, and resets that a person asks for (`Routing.reset`, which waits for no turn). Binding before
the turn was rejected: of two first messages one was lost, and what waited went where the chat no longer was.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hermes_state.errors import RouteNotFound, SessionDeleted, SessionNotFound, SessionReplaced
from hermes_state.leases import Lease, Leases
from hermes_state.routing import changing, sessions
from hermes_state.routing.homes import Home, guard, home_of, refuse_other_home
from hermes_state.routing.identity import Inbound
from hermes_state.routing.keys import KeyRules, SessionKey, key_of
from hermes_state.routing.records import Route, read
from hermes_state.routing.states import State
from hermes_state.routing.turns import KEEP_SECONDS, TERM_SECONDS, WAIT_SECONDS, Turn, acquire, giving_back

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

KIND = "chat"
_DIGITS = 32  # of 64 hexadecimal digits: the ids of people and chats are in no lease

Group = TypeVar("Group")


@dataclass(frozen=True, kw_only=True)
class Making:
    """What a chat's turn asks of sessions, each in its transaction."""

    make: Callable[[Transaction, SessionKey, float], str]  # a new session for the chat; its id
    tip: Callable[[Reader, str], str]  # the id of the session that one goes on in; itself where nothing continues it


class ChatTurn(Turn[Group]):
    """A turn of a chat. A `with` block that does not fail ends it well: a mark to resume is over then."""

    def __init__(
        self, core: Callable[[], Core], leases: tuple[Lease, ...], route: Route, group: Callable[[Core], Group], *,
        home: Home, keep_seconds: float, making: Making,
    ) -> None:
        # The entry as the turn began: `fresh` and `state` say whether it is the first one, and whether it takes one up.
        self.route = route
        self._making = making
        super().__init__(core, leases, route.session_id, group, home=home, keep_seconds=keep_seconds)

    @property
    def resumes(self) -> bool:
        """Whether the last turn of the chat was interrupted and is to be taken up."""
        return self.route.state is State.RESUMING

    def ended_well(self) -> Route | None:
        """The answer is there: end the mark to resume, and go on in what continues the session. A block does it.

        None when the chat has another conversation by now. Raises as `write`.
        """
        with self._core().reader() as reader, reader.snapshot():
            guard(reader, self.home)
            now = read(reader, self.route.session_key)
            if now is not None and now.state is State.ACTIVE and not now.fresh and now.generation == (
                self.route.generation
            ) and self._making.tip(reader, now.session_id) == now.session_id:
                return now

        def work(tx: Transaction) -> Route | None:
            now = read(tx, self.route.session_key)
            tip = "" if now is None else self._making.tip(tx, now.session_id)
            return changing.turn_ended(tx, self.home, self.route, tip, at=self._clock.now())

        return self.write(work)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self.ended_well()
            except BaseException as failed:  # the next one has the chat also then
                super().__exit__(type(failed), failed, failed.__traceback__)
                raise
        super().__exit__(kind, error, trace)


def begin_chat(
    core: Callable[[], Core], leases: Leases, of: Inbound | Route, group: Callable[[Core], Group], *, making: Making,
    rules: KeyRules | None = None, term_seconds: float = TERM_SECONDS, wait_seconds: float = WAIT_SECONDS,
    keep_seconds: float = KEEP_SECONDS, given_up: Callable[[], bool] = bool,
) -> ChatTurn[Group]:
    """See `Store.chat_turn`."""
    home, key = home_of(core()), of.key if isinstance(of, Route) else key_of(of, rules or KeyRules())
    if isinstance(of, Inbound):
        home = of.identity.runtime_home
    refuse_other_home(core(), home)
    clock = core().clock
    deadline = clock.monotonic() + wait_seconds
    with core().reader() as reader:
        if not core().read_only:
            guard(reader, home)
    chat = leases.acquire(
        lease_name(core(), key), term_seconds=term_seconds, wait_seconds=wait_seconds, given_up=given_up
    )
    with giving_back((chat,)):
        while True:
            route = _placed(core(), home, of, key, making)
            had = acquire(
                core, leases, route.session_id, home, term_seconds=term_seconds, deadline=deadline, given_up=given_up
            )
            with giving_back(had):
                now = _placed(core(), home, of, key, making)
                if now.session_id == route.session_id:
                    return ChatTurn(
                        core, (*had, chat), now, group, home=home, keep_seconds=keep_seconds, making=making
                    )
            for lease in had:  # reset while this waited
                lease.release()


def lease_name(core: Core, key: SessionKey) -> str:
    """The name of a chat's lease: a digest of its key, keyed with the store's id."""
    digest = hmac.new(core.store_id.encode(), key.text.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"{KIND}:{digest.hexdigest()[:_DIGITS]}"


def _placed(core: Core, home: Home, of: Inbound | Route, key: SessionKey, making: Making) -> Route:
    """The entry of the chat in a session that it can go on in, made so where it is not."""
    at = core.clock.now()
    with core.reader() as reader, reader.snapshot():
        there = read(reader, key.text)
        plain = there is not None and there.goes_on and _trouble(reader, there.session_id) is None
    return core.write(
        lambda tx: _place(tx, home, of, key, making, at), durability="process" if plain else "power"
    )


def _place(tx: Transaction, home: Home, of: Inbound | Route, key: SessionKey, making: Making, at: float) -> Route:
    guard(tx, home)
    inbound = None if isinstance(of, Route) else of
    there = read(tx, key.text)
    if there is None:
        if inbound is None:
            raise RouteNotFound(
                f"There is no routing entry {key.text!r} in {tx.path} any more.", hint="Bind the chat anew.",
                path=tx.path, session_key=key.text,
            )
        return changing.bind(tx, inbound, making.make(tx, key, at), key=key, at=at)
    if there.key != key:
        raise changing.collision(tx.path, there.key, key)
    why = "" if there.goes_on else there.state_reason or str(there.state)
    trouble = _trouble(tx, there.session_id)
    tip = making.tip(tx, there.session_id) if isinstance(trouble, SessionReplaced) else there.session_id
    if not why and trouble is not None and (tip == there.session_id or _trouble(tx, tip) is not None):
        why = "its session was deleted" if not isinstance(trouble, SessionReplaced) else (
            "what continued its session was deleted"
        )
    if why:
        return changing.reset(tx, home, there, making.make(tx, key, at), reason=why, at=at, inbound=inbound)
    if tip != there.session_id:
        there = changing.follow(tx, home, there, tip, at=at)
    return there if inbound is None else changing.receive(tx, there, inbound, at=at)


def _trouble(reader: Reader, session_id: str) -> SessionNotFound | SessionDeleted | SessionReplaced | None:
    """Why a chat cannot go on in a session."""
    try:
        sessions.refuse_unusable(reader, session_id)
    except (SessionNotFound, SessionDeleted, SessionReplaced) as trouble:
        return trouble
    return None
