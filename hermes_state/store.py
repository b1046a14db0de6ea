"""`open_store`: the library's way to a native store, and what it gives.

Invariant: a `Store` is safe for threads, shares one writer and one bounded pool of readers with every other `Store` of
the same file in the process, and holds no transaction between calls. Its groups (`sessions`, `messages`, ...) are
loaded when they are first used.

Not for: files of hermes-agent, which are refused with the command that adopts them. One object with every method was
rejected: nobody finds anything in it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from hermes_state.clock import Clock, clock_from_environment
from hermes_state.engine.core import acquire, release
from hermes_state.engine.files import closed_here
from hermes_state.errors import InvalidInput, NotFound
from hermes_state.location import STORE_NAME, home_folder

if TYPE_CHECKING:
    from hermes_state.aio import AsyncStore
    from hermes_state.changes import Changes
    from hermes_state.compaction.group import Compaction
    from hermes_state.conversation.messages import Messages
    from hermes_state.conversation.search import Search
    from hermes_state.conversation.sessions import Sessions
    from hermes_state.conversation.spooling import Spooling, TurnSpool
    from hermes_state.conversation.titles import Titles
    from hermes_state.conversation.usage import Usage
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability
    from hermes_state.gateway import Gateway
    from hermes_state.instances import Instances
    from hermes_state.leases import Leases
    from hermes_state.outbox import Outbox
    from hermes_state.routing import ChatTurn, Home, Inbound, KeyRules, Route, Routing, Turn
    from hermes_state.turns.turns import Turns
    from hermes_state.work import Work


def open_store(
    home: str | os.PathLike[str] | None = None, *, path: str | os.PathLike[str] | None = None, read_only: bool = False,
    durability: Durability | None = None, clock: Clock | None = None,
) -> Store:
    """Open the store of a home, or the store at `path`; one that is not there is made, unless `read_only`.

    `home`: the folder that holds `state.db`; by default what HERMES_HOME, the sticky profile and ~/.hermes say now.
    `durability`: None lets each operation choose ("process" for messages of a turn, "power" for what settles
    something); "power" makes every commit survive a power cut; "process" leaves that out everywhere.
    Raises `NotFound`, `ForeignStore` (a file of hermes-agent), `SchemaTooNew`, `SchemaTooOld`, `NotAStore`, `Refused`,
    `CannotOpen`, `LockTimeout`, `SecondSQLite`, `IdentityConflict`, `InvalidInput` (for arguments of no meaning).
    """
    if durability not in (None, "process", "power"):
        raise InvalidInput(f"durability is 'process' or 'power', not {durability!r}.", durability=durability)
    given = _store_path(home, path)
    core = acquire(
        given, read_only=read_only, create=not read_only, clock=clock or clock_from_environment(),
        durability=durability,
    )
    return Store(core, durability, folder=given.parent)


def open_home(home: Home, *, durability: Durability | None = None, clock: Clock | None = None) -> Store:
    """Open the store of a home for work that was begun for it. Nothing is ever made: a home that is gone stays gone.

    Raises `HomeRemoved` when its store is not there, or was marked as removed; `WrongHome` when another store is there
    by now, and what `open_store` raises.
    """
    from hermes_state.routing import guard, removed_home
    from hermes_state.routing.homes import refuse_other_home

    path = home.path / STORE_NAME
    if not path.is_file():
        raise removed_home(home)
    try:
        core = acquire(
            path, read_only=False, create=False, clock=clock or clock_from_environment(), durability=durability
        )
    except NotFound as error:
        raise removed_home(home) from error
    try:
        refuse_other_home(core, home)
        with core.reader() as reader:
            guard(reader, home)
    except BaseException:
        release(core, durability)
        raise
    return Store(core, durability, profile=home.profile)


def open_spool(
    home: str | os.PathLike[str] | None = None, *, path: str | os.PathLike[str] | None = None,
    clock: Clock | None = None,
) -> TurnSpool:
    """The spool of a store that `open_store` refuses now: turns are kept there until `store.spool` gives them to it.

    Arguments as for `open_store`; nothing is opened or made before the first `save`. Raises `InvalidInput`.
    """
    from hermes_state.conversation.spooling import TurnSpool

    return TurnSpool(_store_path(home, path), clock=clock or clock_from_environment())


def _store_path(home: str | os.PathLike[str] | None, path: str | os.PathLike[str] | None) -> Path:
    if home is not None and path is not None:
        raise InvalidInput("home names a folder and path names a file: give only one of them.")
    for name, given in (("home", home), ("path", path)):
        if given is not None and "\0" in os.fsdecode(given):
            raise InvalidInput(f"{name} has a NUL character, which no file name can have.", argument=name)
    if path is not None:
        return Path(path)
    folder, _profile = home_folder(None if home is None else os.fspath(home), None, os.environ)
    return folder / STORE_NAME


class Store:
    """An open native store: a context manager, safe for threads."""

    def __init__(
        self, core: Core, durability: Durability | None = None, *, folder: Path | None = None,
        profile: str | None = None,
    ) -> None:
        self._core: Core | None = core
        # As it was addressed: routing has the name of its profile from it.
        self._folder, self._profile = folder, profile
        self._durability = durability
        self._lock = threading.Lock()
        # The store's file, its random id for life, and the id that changes with every adopt, restore and repair.
        self.path: Path = core.path
        self.store_id: str = core.store_id
        self.incarnation: str = core.incarnation

    @property
    def core(self) -> Core:
        """The engine's side of this store. Raises `StateError` once it is closed."""
        if self._core is None:
            raise closed_here(self.path)
        return self._core

    @functools.cached_property
    def sessions(self) -> Sessions:
        """Create, find, list, end, archive and delete sessions."""
        from hermes_state.conversation.sessions import Sessions

        return Sessions(self.core)

    @functools.cached_property
    def messages(self) -> Messages:
        """Append messages and read them back."""
        from hermes_state.conversation.messages import Messages

        return Messages(self.core)

    @functools.cached_property
    def search(self) -> Search:
        """Find messages: call it with a query."""
        from hermes_state.conversation.search import Search

        return Search(self.core)

    @functools.cached_property
    def usage(self) -> Usage:
        """Tokens and money by model, task and day."""
        from hermes_state.conversation.usage import Usage

        return Usage(self.core)

    @functools.cached_property
    def titles(self) -> Titles:
        """Titles of sessions."""
        from hermes_state.conversation.titles import Titles

        return Titles(self.core)

    @functools.cached_property
    def spool(self) -> Spooling:
        """Save whole turns whatever happens to the store, and give it what waits."""
        from hermes_state.conversation.spooling import Spooling

        return Spooling(self.core)

    @functools.cached_property
    def changes(self) -> Changes:
        """What changed since a position, and waiting for more."""
        from hermes_state.changes import Changes

        return Changes(self.core)

    @functools.cached_property
    def leases(self) -> Leases:
        """Leases with fences."""
        from hermes_state.leases import Leases

        return Leases(self.core)

    @functools.cached_property
    def compaction(self) -> Compaction:
        """Fit a session into a small window: plan, compact, see it through any generation."""
        from hermes_state.compaction.group import Compaction

        return Compaction(self.core)

    @functools.cached_property
    def outbox(self) -> Outbox:
        """What is owed: record it, claim it, settle it."""
        from hermes_state.outbox import Outbox

        return Outbox(self.core)

    @functools.cached_property
    def instances(self) -> Instances:
        """Gateway instances: add, enroll, name, revoke, remove; which threads they serve."""
        from hermes_state.gateway.ending import ended, unbinding
        from hermes_state.instances import Instances

        return Instances(self.core, ended=ended, unbinding=unbinding)

    @functools.cached_property
    def turns(self) -> Turns:
        """Turns of threads on gateways, questions to people, stops, recovery, and deliveries home."""
        from hermes_state.instances.sanitising import sanitised
        from hermes_state.turns.turns import Turns

        return Turns(self.core, sanitise=sanitised)

    @functools.cached_property
    def gateway(self) -> Gateway:
        """A gateway server on this store: who is connected, what they are owed, who has the store."""
        from hermes_state.gateway import Gateway

        return Gateway(self.core)

    @functools.cached_property
    def routing(self) -> Routing:
        """Which session a chat goes on in, who may answer it, what is not served."""
        from hermes_state.routing import Routing
        from hermes_state.routing.homes import addressed_profile

        name = self._profile if self._folder is None else addressed_profile(self._folder)
        return Routing(self.core, profile=name)

    @functools.cached_property
    def work(self) -> Work:
        """Background work, streams, lanes, logins, credentials, facts about models."""
        from hermes_state.work import Work

        return Work(self.core)

    def turn(
        self, session_id: str, *, term_seconds: float | None = None, wait_seconds: float | None = None,
        keep_seconds: float | None = None, given_up: Callable[[], bool] = bool,
    ) -> Turn[Messages]:
        """Begin a turn of a session's conversation; one process at a time has it, whichever program it is.

        It renews itself while it is open, up to `keep_seconds` (default 3600) after it was written through or renewed
        last, and lasts `term_seconds` (default 600) from then on, or from when its process was stopped. Another one
        waits `wait_seconds` (default 1800), or until it is `given_up`. What is written through the turn (`messages`,
        `write`) is committed only while it is ours. Raises `LeaseHeld` (75, names the holder), `SessionNotFound`,
        `SessionDeleted`, `HomeRemoved`, `InvalidInput`.
        """
        from hermes_state.conversation.messages import Messages
        from hermes_state.routing import turns

        times = turns.times(term_seconds, wait_seconds, keep_seconds)
        return turns.begin(lambda: self.core, self.leases, session_id, Messages, given_up=given_up, **times)

    def chat_turn(
        self, of: Inbound | Route, *, source: str | None = None, rules: KeyRules | None = None,
        term_seconds: float | None = None, wait_seconds: float | None = None, keep_seconds: float | None = None,
        given_up: Callable[[], bool] = bool,
    ) -> ChatTurn[Messages]:
        """The turn of an event's chat, in the session that the chat goes on in: the one call for a message that came.

        A chat without an entry is bound to a new session (of `source`, by default the event's platform); one whose
        session is suspended, expired or deleted is reset to a new one; one whose session was compacted follows it. It
        is answered by who received the event. `route`, `session_id` and `resumes` of the turn say what came of it; a
        mark to resume is over when its block ends without an error. `of` is a `Route` for a turn without a message,
        such as one that was interrupted by a restart. Times, waiting and errors as `turn`; also `WrongHome`,
        `KeyCollision`, and `RouteNotFound` for a `Route` that was forgotten.
        """
        from hermes_state.conversation.chats import for_chat, tip_id
        from hermes_state.conversation.messages import Messages
        from hermes_state.routing import chats, turns

        times = turns.times(term_seconds, wait_seconds, keep_seconds)
        making = chats.Making(make=lambda tx, key, at: for_chat(tx, key, source=source, at=at), tip=tip_id)
        return chats.begin_chat(
            lambda: self.core, self.leases, of, Messages, making=making, rules=rules, given_up=given_up, **times
        )

    @functools.cached_property
    def aio(self) -> AsyncStore:
        """The same groups for asyncio: every method is awaited and runs in a thread of its own pool."""
        from hermes_state.aio import AsyncStore

        return AsyncStore(self)

    def close(self) -> None:
        """Give the store back. Safe to call twice; the last user in the process closes the connections.

        Raises `StateError`, and changes nothing, inside a function that is writing to the store.
        """
        if self._core is not None:
            self._core.refuse_close_inside()
        with self._lock:
            core, self._core = self._core, None
        if core is None:
            return
        changes, aio = self.__dict__.get("changes"), self.__dict__.get("aio")
        if changes is not None:
            changes.stop()  # an endless wait would keep the threads of aio from ending
        if aio is not None:
            aio.shut_down()
        try:
            with contextlib.ExitStack() as ends:
                for name in ("search", "gateway"):  # the servers first: they write
                    if name in self.__dict__:
                        ends.callback(self.__dict__[name].close)
        finally:
            # Others in the process may go on using the core: a group that somebody kept must not.
            for name in (
                "sessions", "messages", "search", "usage", "titles", "spool", "changes", "leases", "compaction",
                "outbox", "turns", "instances", "gateway", "routing", "work",
            ):
                if name in self.__dict__:
                    self.__dict__[name]._core = _Closed(self.path)
            release(core, self._durability)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._core is None else "open"
        return f"<Store {self.path} {state}>"


class _Closed:
    """What a group has in place of the core once its store is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise closed_here(self._path)
