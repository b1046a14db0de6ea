"""`store.instances`: add, enroll, name, revoke and remove gateway instances, and bind threads to them.

Invariant: each change is one transaction, at `power`; adding an instance and its first token is one as well, so there
is never one that nobody asked for. Times are read inside, after the wait for the lock.

Not for: sockets and who is connected (see `connections`), turns. A lock of this object's own was rejected: the write
lock of the store is short, and one instance never waits for what another one does outside of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_state import tombstones
from hermes_state.errors import InvalidInput, NicknameConflict
from hermes_state.instances import bindings, credentials, enrollment, importing, nicknames, registry, removal
from hermes_state.instances.records import (
    Binding,
    Changed,
    Enrollment,
    Freed,
    Instance,
    Issued,
    Minted,
    Removed,
    Swept,
)
from hermes_state.instances.states import Event, State
from hermes_state.outbox.inputs import MOST_ID, whole

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core

Result = TypeVar("Result")
# What is told with an instance's end, in its transaction: see `Instances`.
Ended = Callable[["Transaction", str, float], object]


class Instances:
    """The gateway instances of one store. Safe for threads."""

    def __init__(self, core: Core, *, ended: Ended | None = None, unbinding: Ended | None = None) -> None:
        """`ended(tx, instance_id, at)` takes part in the transaction that revokes or removes an instance.

        `unbinding(tx, thread_id, at)` takes part in one that deletes a binding, before that; what it raises refuses it.
        """
        self._core = core
        self._ended = ended
        self._unbinding = unbinding

    # --- who there is ----------------------------------------------------------------------------------------

    def get(self, instance_id: str) -> Instance:
        """One instance, a removed one included as long as it has a tombstone. Raises `InstanceNotFound`."""
        with self._core.reader() as reader:
            return registry.get(reader, instance_id)

    def by_nickname(self, nickname: str) -> Instance | None:
        """The living instance that has a nickname, however that is written."""
        with self._core.reader() as reader:
            return registry.holder(reader, nickname)

    def page(self, *, states: Iterable[State] | None = None, limit: int = 100, after: int = 0) -> list[Instance]:
        """Up to `limit` instances, the oldest first; removed ones only when `states` asks for them.

        `after`: the number that the last page ended at. This is what pickers read; there is no other source. Raises
        `InvalidInput`.
        """
        _refuse_limit(limit)
        wanted = None if states is None else [_state(one) for one in _listed(states)]
        with self._core.reader() as reader:
            return registry.page(reader, states=wanted, limit=limit, after=whole("after", after, 0, MOST_ID))

    # --- adding and enrolling --------------------------------------------------------------------------------

    def add(self, instance_id: str, *, nickname: str, connector_url: str | None = None, actor: str) -> Instance:
        """Add an instance without enrolling it.

        Raises `InvalidInput`, `InvalidConnectorUrl`, `InstanceExists`, `InstanceRemoved`, `NicknameConflict`.
        """
        who = nicknames.words("actor", actor)
        return self._write(
            lambda tx, at: registry.add(
                tx, instance_id, nickname=nickname, connector_url=connector_url, actor=who, at=at
            )
        )

    def enroll(
        self, instance_id: str, *, nickname: str | None = None, connector_url: str | None = None, actor: str,
        ttl_seconds: float = enrollment.TTL_SECONDS,
    ) -> Minted:
        """Mint a token; an instance that is not there is added by the same transaction, and needs a nickname then.

        From its commit on, earlier tokens and the credential of the instance are dead: close its socket (4001). What
        is given of nickname and connector is changed as well. Raises `InvalidInput`, `InvalidConnectorUrl`,
        `InstanceNotFound` (not there, and no nickname), `InstanceRemoved`, `NicknameConflict`.
        """
        who = nicknames.words("actor", actor)

        def work(tx: Transaction, at: float) -> Minted:
            registry.refuse_entombed(tx, instance_id)
            before = registry.find(tx, instance_id)
            added = nickname is not None and (before is None or before.state is State.REMOVED)
            if nickname is not None and added:
                registry.add(tx, instance_id, nickname=nickname, connector_url=connector_url, actor=who, at=at)
            elif nickname is not None or connector_url is not None:
                registry.change(tx, instance_id, nickname=nickname, connector_url=connector_url, at=at)
            token, expires_at = enrollment.mint(tx, instance_id, at=at, ttl_seconds=ttl_seconds)
            return Minted(
                instance=registry.get(tx, instance_id), expires_at=expires_at, added=added, token=token
            )

        return self._write(work)

    def preview(
        self, instance_id: str, event: Event | None = None, *, nickname: str | None = None,
        connector_url: str | None = None,
    ) -> Instance | None:
        """What an event would find, changing nothing; None where it would add the instance.

        `event` None is adding one that is not there. Raises what the event would raise.
        """
        with self._core.reader() as reader:
            found = registry.find(reader, instance_id)
            registry.refuse_entombed(reader, instance_id)
            if event is None or (event is Event.MINT and found is None and nickname is not None):
                registry.refuse_add(reader, instance_id, nickname=nickname or "", connector_url=connector_url)
                return None
            found = registry.allowed(reader, instance_id, event)
            if nickname is not None or connector_url is not None:
                registry.refuse_change(reader, instance_id, nickname=nickname, connector_url=connector_url)
            return found

    def preview_removal(self, instance_id: str) -> Instance:
        """The instance that `remove` would remove, or has removed. Raises what it raises."""
        with self._core.reader() as reader:
            return registry.allowed(reader, instance_id, Event.REMOVE)

    def check_token(self, token: str) -> Enrollment:
        """What a token stands for, if it is good now; spends nothing. Raises `EnrollmentExpired`.

        What takes time before a plugin is let in is done after this and before `redeem`, outside of any transaction.
        """
        with self._core.reader() as reader:
            return enrollment.check(reader, token, at=self._core.clock.now())

    def redeem(self, token: str, *, actor: str) -> Issued:
        """Spend a token: the instance is enrolled and its new credential is given, once. Raises `EnrollmentExpired`."""
        who = nicknames.words("actor", actor)
        return self._write(lambda tx, at: enrollment.consume(tx, token, at=at, actor=who))

    def take_back(self, token: str, issued: Issued) -> bool:
        """Undo `redeem` whose result nobody got: the credential is none, and the token is good again.

        False, and nothing changed, when that credential is not the instance's any more.
        """
        return self._write(lambda tx, at: enrollment.take_back(tx, token, issued, at=at))

    def authenticate(self, instance_id: str, credential: str) -> Instance:
        """The instance whose credential this is; writes nothing. Raises `InvalidAuthentication`, `InstanceRevoked`."""
        with self._core.reader() as reader:
            return credentials.authenticate(reader, instance_id, credential)

    def sweep(self, *, steps: int = 100) -> Swept:
        """Take tokens out whose time is over, in up to `steps` short transactions of 500 rows."""
        expired = settled = 0
        more = True
        while more and steps > 0:
            done = self._write(lambda tx, at: enrollment.sweep(tx, at=at))
            expired, settled, more, steps = expired + done.expired, settled + done.settled, done.more, steps - 1
        return Swept(expired=expired, settled=settled, more=more)

    # --- naming, revoking, removing --------------------------------------------------------------------------

    def change(
        self, instance_id: str, *, nickname: str | None = None, connector_url: str | None = None
    ) -> Changed:
        """Give an instance another nickname or connector; what is not given stays.

        Raises `InvalidInput`, `InvalidConnectorUrl`, `InstanceNotFound`, `InstanceRemoved`, `NicknameConflict`.
        """
        return self._write(
            lambda tx, at: registry.change(tx, instance_id, nickname=nickname, connector_url=connector_url, at=at)
        )

    def rename(self, instance_id: str, nickname: str) -> Changed:
        """Give an instance another nickname. As `change`."""
        return self.change(instance_id, nickname=nickname)

    def revoke(self, instance_id: str, *, actor: str, reason: str) -> Changed:
        """End what lets an instance in, now and after a restart; then close its socket (4003).

        Raises `InstanceNotFound`, `InstanceRemoved`, `InvalidInput`.
        """
        who, why = nicknames.words("actor", actor), nicknames.words("reason", reason)

        def work(tx: Transaction, at: float) -> Changed:
            done = removal.revoke(tx, instance_id, actor=who, reason=why, at=at)
            if self._ended is not None:
                self._ended(tx, instance_id, at)
            return done

        return self._write(work)

    def remove(
        self, instance_id: str, *, actor: str, reason: str, horizon_seconds: float = removal.HORIZON_SECONDS
    ) -> Removed:
        """Remove an instance that is revoked, or was never enrolled; its id stays out until `gc` frees it.

        Raises `InstanceNotFound`, `InstanceNotRevoked`, `InvalidInput`.
        """
        who, why = nicknames.words("actor", actor), nicknames.words("reason", reason)

        def work(tx: Transaction, at: float) -> Removed:
            done = removal.remove(tx, instance_id, actor=who, reason=why, at=at, horizon_seconds=horizon_seconds)
            if self._ended is not None:
                self._ended(tx, instance_id, at)
            return done

        return self._write(work)

    def tombstones(self, *, limit: int = 100, after: str = "") -> list[tombstones.Tombstone]:
        """Up to `limit` tombstones of instances by id; `after` is the id that the last page ended at."""
        _refuse_limit(limit)
        with self._core.reader() as reader:
            return tombstones.page(reader, registry.KIND, limit=limit, after=after)

    def gc(self, *, steps: int = 100) -> Freed:
        """Free removed ids whose horizon has passed and that no binding refers to, in up to `steps` transactions."""
        freed: list[str] = []
        more = True
        while more and steps > 0:
            done = self._write(lambda tx, at: removal.collect(tx, at=at))
            freed += done.instance_ids
            more, steps = done.more, steps - 1
        return Freed(instance_ids=tuple(freed), more=more)

    def due(self, *, limit: int = 1000) -> tuple[str, ...]:
        """Up to `limit` ids that `gc` would free now; changes nothing."""
        with self._core.reader() as reader:
            return removal.due(reader, at=self._core.clock.now(), limit=limit)

    # --- threads ---------------------------------------------------------------------------------------------

    def bind(self, thread_id: str, instance_id: str, session_id: str) -> Binding:
        """Bind a thread to an enrolled instance. Raises as `bindings.bind`."""
        return self._write(lambda tx, at: bindings.bind(tx, thread_id, instance_id, session_id, at=at))

    def unbind(self, thread_id: str) -> bool:
        """Delete the binding of a thread; False when there was none.

        What its gateway is owed for it is taken back, but for stops. Raises `TurnActive` while a turn runs in it: stop
        it first.
        """

        def work(tx: Transaction, at: float) -> bool:
            if self._unbinding is not None:
                self._unbinding(tx, thread_id, at)
            return bindings.unbind(tx, thread_id, at=at)

        return self._write(work)

    def binding(self, thread_id: str) -> Binding | None:
        """The binding of a thread."""
        with self._core.reader() as reader:
            return bindings.find(reader, thread_id)

    def bound(self, instance_id: str, *, limit: int = 100, after: str = "") -> list[Binding]:
        """Up to `limit` bindings of an instance by thread id; `after` is the thread that the last page ended at."""
        _refuse_limit(limit)
        with self._core.reader() as reader:
            return bindings.page(reader, instance_id, limit=limit, after=after)

    def bound_count(self, instance_id: str) -> int:
        """How many threads are bound to an instance."""
        with self._core.reader() as reader:
            return bindings.count(reader, instance_id)

    # --- older files -----------------------------------------------------------------------------------------

    def bring_in(
        self, folder: str | os.PathLike[str], *, actor: str, horizon_seconds: float = removal.HORIZON_SECONDS,
        dry_run: bool = False,
    ) -> importing.Imported:
        """Bring in what older servers kept as files in `folder`, which stay as they are. Raises `NotFound`.

        `dry_run`: only say what would be brought in.
        """
        who = nicknames.words("actor", actor)
        found, problems = importing.read_folder(Path(folder))
        added: list[tuple[str, State]] = []
        present: list[str] = []
        for older in found:
            def work(
                tx: Transaction, at: float, older: importing.Older = older
            ) -> tuple[State | None, tuple[str, ...]]:
                return importing.bring_in(tx, older, actor=who, at=at, horizon_seconds=horizon_seconds)

            try:
                if dry_run:
                    with self._core.reader() as reader:
                        state = importing.refuse_or_state(reader, older)
                        without = importing.with_free_name(reader, older).without
                else:
                    state, without = self._write(work)
            except NicknameConflict as error:
                problems.append((older.instance_id, error.message))
                continue
            if state is None:
                present.append(older.instance_id)
            else:
                added.append((older.instance_id, state))
                problems += [(older.instance_id, why) for why in without]
        return importing.Imported(added=tuple(added), present=tuple(present), problems=tuple(problems))

    def _write(self, work: Callable[[Transaction, float], Result]) -> Result:
        """One transaction at `power`, with the time read inside."""
        return self._core.write(lambda tx: work(tx, self._core.clock.now()), durability="power")


def _listed(states: Any) -> list[Any]:
    if isinstance(states, (str, bytes)) or not isinstance(states, Iterable):
        raise InvalidInput(f"states is a list of states, not {states!r:.80}.", argument="states")
    return list(states)


def _state(value: Any) -> State:
    try:
        return State(value)
    except ValueError:
        raise InvalidInput(
            f"{value!r:.80} is no state of an instance.", hint=f"Known are {', '.join(State)}.", argument="states"
        ) from None


def _refuse_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise InvalidInput(f"limit is a whole number from 1 to 1000, not {limit!r}.", argument="limit")
