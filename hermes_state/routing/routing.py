"""`store.routing`: which session a chat goes on in, who may answer it, and what is not served.

Invariant: each method is one transaction or one snapshot. Every write names its home, by the identity of an event or as
`home`, and is refused when the store is another home's, or the home was removed. Nothing here reads the environment.

Not for: sending, and taking messages in: `intake` and `delivery` say which connection does. A home that is taken from
the store itself was rejected: a caller that has the wrong store open would never be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_state.changes.records import record
from hermes_state.outbox.inputs import text
from hermes_state.routing import attention, changing, records, taking_in
from hermes_state.routing.homes import Home, guard, home_of, refuse_gone, refuse_other_home, valid_home
from hermes_state.routing.identity import Inbound, Unserved
from hermes_state.routing.keys import KeyRules, SessionKey, key_of
from hermes_state.routing.pairing import Pairing
from hermes_state.routing.records import Route
from hermes_state.routing.states import Act, State
from hermes_state.routing.topics import Topics

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability

Result = TypeVar("Result")


class Routing:
    """The routing of one store. Safe for threads."""

    def __init__(self, core: Core, *, profile: str | None = None) -> None:
        """`profile`: the name of the home's profile as it was addressed; None: that of its folder."""
        self._core = core
        self._profile = profile
        self._unserved = attention.Unserveds(core)

    @property
    def home(self) -> Home:
        """The home of this store. Take it when work for the home begins, and name it when that work writes."""
        return home_of(self._core, profile=self._profile)

    @property
    def pairing(self) -> Pairing:
        """Who may talk to the bots of this home."""
        return Pairing(self._core)

    @property
    def topics(self) -> Topics:
        """Direct chats of this home whose topics are conversations of their own."""
        return Topics(self._core)

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, session_key: str) -> Route | None:
        """The entry of a key, None when its chat has none."""
        text("session_key", session_key, most=4_000, of="")
        with self._core.reader() as reader:
            return records.read(reader, session_key) if records.has_routing(reader) else None

    def find(self, inbound: Inbound, *, rules: KeyRules | None = None) -> Route | None:
        """The entry of an event's chat. Raises `WrongHome`, `KeyCollision` (it is another chat's)."""
        refuse_other_home(self._core, inbound.identity.runtime_home)
        key = _key(inbound, rules)
        found = self.get(key.text)
        if found is not None and found.key != key:
            raise changing.collision(self._core.path, found.key, key)
        return found

    def page(
        self, *, states: Sequence[State] | None = None, platform: str | None = None, session_id: str | None = None,
        limit: int = 50, after: str | None = None,
    ) -> list[Route]:
        """Up to `limit` entries (1 to 1000) in the order of their keys; `after` is the key that the last page ended at.

        Raises `InvalidInput`.
        """
        with self._core.reader() as reader:
            if not records.has_routing(reader):
                return []
            return records.page(
                reader, states=states, platform=platform, session_id=session_id, limit=limit, after=after
            )

    # --- the conversation of a chat ----------------------------------------------------------------------------

    def bind(self, inbound: Inbound, session_id: str, *, rules: KeyRules | None = None) -> Route:
        """Let the chat of an event go on in a session of this store; its first entry, or the one that says the same.

        Raises `WrongHome`, `HomeRemoved`, `SessionNotFound`, `SessionDeleted`, `SessionReplaced`, `KeyCollision`,
        `RouteStopped`, and `RouteMoved`, whose `route` is what somebody bound meanwhile.
        """
        refuse_other_home(self._core, inbound.identity.runtime_home)
        key, at = _key(inbound, rules), self._core.clock.now()
        return self._core.write(
            lambda tx: changing.bind(tx, inbound, session_id, key=key, at=at), durability="power"
        )

    def go_on(self, route: Route, inbound: Inbound) -> Route:
        """A message came, or a turn ended well: ends a mark to resume, and keeps who received it. Mostly no write.

        Raises `RouteStopped` (make a new session and `reset`), `RouteMoved`, `RouteNotFound`, `WrongHome`,
        `HomeRemoved`, and `InvalidInput` for an event of another chat.
        """
        home = inbound.identity.runtime_home
        refuse_other_home(self._core, home)
        if _says_the_same(route, inbound):
            with self._core.reader() as reader, reader.snapshot():
                guard(reader, home)  # also where nothing is to be written
                if records.read(reader, route.session_key) == route:
                    return route
        return self._write(lambda tx, at: changing.go_on(tx, route, inbound, at=at))

    def receive(self, route: Route, inbound: Inbound) -> Route:
        """A message came, and its turn begins: keeps who received it. A mark to resume stays until `go_on`.

        Raises as `go_on`, and `InvalidInput` for an event of another chat.
        """
        refuse_other_home(self._core, inbound.identity.runtime_home)
        return self._write(lambda tx, at: changing.receive(tx, route, inbound, at=at))

    def resume_later(self, route: Route, home: Home, *, reason: str) -> Route:
        """A turn was interrupted and is to be taken up again. The first mark stays. Raises as `go_on`."""
        return self._mark(route, home, Act.RESUME_LATER, reason)

    def suspend(self, route: Route, home: Home, *, reason: str) -> Route:
        """The session is not to go on, whatever comes: the next message needs a new one. Raises as `go_on`."""
        return self._mark(route, home, Act.SUSPEND, reason)

    def expire(self, route: Route, home: Home, *, reason: str) -> Route:
        """The session was too old and was seen off; only who gets a higher `version` back saw it off."""
        return self._mark(route, home, Act.EXPIRE, reason)

    def reset(
        self, route: Route, home: Home, session_id: str, *, reason: str, inbound: Inbound | None = None
    ) -> Route:
        """Go on in another session of this store: the next generation of the conversation, at `power`.

        `inbound`: the event that it is for, whose receiver answers from here on; None: nobody wrote, and the bot stays.
        Raises `RouteMoved`, `RouteNotFound`, `WrongHome`, `HomeRemoved`, and those of `bind` about the session.
        """
        self._refuse(home)
        changing.checked_reason(reason)
        return self._write(
            lambda tx, at: changing.reset(tx, home, route, session_id, reason=reason, at=at, inbound=inbound),
            durability="power",
        )

    def follow(self, route: Route, home: Home, session_id: str) -> Route:
        """Go on in the session that continues this one: the same generation. Raises as `reset`, and `InvalidInput`."""
        self._refuse(home)
        return self._write(lambda tx, at: changing.follow(tx, home, route, session_id, at=at))

    def choose_model(self, route: Route, home: Home, override: Mapping[str, str] | None) -> Route:
        """Keep the model that a person chose for this chat: `model`, `provider`, `base_url` and nothing else of it.

        Keys and headers are not kept; of a URL neither user nor query. None takes it back. Raises as `go_on`.
        """
        self._refuse(home)
        return self._write(lambda tx, at: changing.choose_model(tx, home, route, override, at=at))

    def forget(self, route: Route, home: Home, *, actor: str, reason: str) -> None:
        """Delete the entry, at `power`, with a line in the ledger of deletions; its session stays."""
        self._refuse(home)
        self._write(
            lambda tx, at: changing.forget(tx, home, route, actor=actor, reason=reason, at=at), durability="power"
        )

    def take_in(self, entry: Mapping[str, Any], home: Home) -> Route:
        """Keep an entry of hermes-agent's session index; a key that is here already stays as it is.

        An entry that does not say whose bot received it does not say so here either. Its session must be in this store
        (see `hermes-state sessions import`). Raises `InvalidInput`, `SessionNotFound`, `SessionDeleted`, `WrongHome`,
        `HomeRemoved`, `KeyCollision`.
        """
        self._refuse(home)
        old = taking_in.old_entry(entry, profile=home.profile)
        return self._write(lambda tx, at: taking_in.take_in(tx, home, old, at=at))

    # --- what is not served ------------------------------------------------------------------------------------

    def drop(self, unserved: Unserved, home: Home | None = None) -> attention.Noted:
        """Drop an event that nobody may take in; `warning` of what is returned is to be logged, and is there once.

        `home`: whose store this is, where one store of the process notes all of it; by default that of the bot that
        received it, which nobody knows where none did. Raises `WrongHome`, `HomeRemoved`, `InvalidInput`.
        """
        asked = valid_home("home", home or unserved.home)
        return self._unserved.note(unserved.source.platform, unserved.profile, unserved.reason, asked, dropped=1)

    def refuse(self, platform: str, profile: str, home: Home, *, reason: str) -> attention.Noted:
        """A profile wants a platform that this process does not serve for it. As `drop`, without an event."""
        return self._unserved.note(platform, profile, reason, home, dropped=0)

    def connected(self, platform: str, profile: str, home: Home) -> attention.Attention | None:
        """A bot of that profile connected: nothing needs attention any more. None when nothing did."""
        return self._unserved.served(platform, profile, home)

    def serves(self, platform: str, profiles: Iterable[str], home: Home) -> list[attention.Attention]:
        """These profiles are served on that platform from now on, by bots of their own or by routes.

        As `connected` for each of them that is marked in this store, whoever's bot it was dropped for. Call it at the
        start, and whenever more is served; leave out what was refused.
        """
        self._refuse(home)
        marked = {one.profile for one in self.attention() if one.platform == platform}
        found = [self.connected(platform, profile, home) for profile in profiles if profile in marked]
        return [one for one in found if one is not None]

    def attention(self, *, served_too: bool = False) -> list[attention.Attention]:
        """What is not served, by platform and profile; with `served_too` also what was not once."""
        with self._core.reader() as reader:
            return attention.listed(reader, served_too=served_too)

    # --- the home ----------------------------------------------------------------------------------------------

    def guard(self, tx: Transaction, home: Home) -> None:
        """First thing in any transaction that writes for `home`, of any table. Raises `WrongHome`, `HomeRemoved`."""
        guard(tx, home)

    def write(
        self, home: Home, work: Callable[[Transaction], Result], *, durability: Durability = "process"
    ) -> Result:
        """Run `work(tx)` for `home`, guarded: the one way for work that runs outside of any turn."""
        self._refuse(home)

        def guarded(tx: Transaction) -> Result:
            guard(tx, home)
            return work(tx)

        return self._core.write(guarded, durability=durability)

    def remove_home(self, home: Home, *, actor: str, reason: str) -> None:
        """Say, at `power`, that this home is being removed: from here on writes for it are refused.

        Do it before the folder goes, so that nobody writes in between; once it is gone, its store's being gone says it.
        """
        self._refuse(home)
        for name, value in (("actor", actor), ("reason", reason)):
            text(name, value, most=4_000, of="")
        at = self._core.clock.now()

        def work(tx: Transaction) -> None:
            guard(tx, home)
            tx.execute(
                "INSERT INTO routing_home (one, removed_at, removed_by, removed_because) VALUES (1, ?1, ?2, ?3)"
                " ON CONFLICT (one) DO UPDATE SET removed_at = ?1, removed_by = ?2, removed_because = ?3",
                (at, actor, reason),
            )
            record(tx, "routing_home", home.store_id, "delete", at)

        self._core.write(work, durability="power")

    # --- inside ------------------------------------------------------------------------------------------------

    def _refuse(self, home: Home) -> None:
        refuse_other_home(self._core, valid_home("home", home))

    def _mark(self, route: Route, home: Home, act: Act, reason: str) -> Route:
        self._refuse(home)
        changing.checked_reason(reason)
        return self._write(lambda tx, at: changing.mark(tx, home, route, act, reason=reason, at=at))

    def _write(
        self, work: Callable[[Transaction, float], Result], *, durability: Durability = "process"
    ) -> Result:
        refuse_gone(self._core)
        at = self._core.clock.now()
        return self._core.write(lambda tx: work(tx, at), durability=durability)


def _key(inbound: Inbound, rules: KeyRules | None) -> SessionKey:
    return key_of(inbound) if rules is None else key_of(inbound, rules)


def _says_the_same(route: Route, inbound: Inbound) -> bool:
    """Whether going on would change nothing of the row as it was read."""
    identity = inbound.identity
    same = identity.restored or (
        route.transport_profile == identity.transport_profile and route.origin.to_json() == inbound.source.to_json()
    )
    return same and route.state is State.ACTIVE and not route.fresh
