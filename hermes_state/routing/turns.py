"""The turn of a conversation: one process at a time works on it, gateway and command line alike.

Invariant: the lease is named after the first session of the conversation, so that a compaction in the middle of a turn
changes nothing of who has it; which session that is is looked at again once the lease is had, and no session of a
conversation at work is deleted (see conversation/removal.py). What is written through the turn is committed only while
its fence is the newest and the home is in use; a process that was stopped, and replaced meanwhile, commits nothing
more. An open turn is kept (see `keeping`). Whoever waits too long is refused.

Not for: appends without a turn, which need no lease; the turn of a chat (see `chats`). Going on without one after the
wait, as hermes-agent 0.19 does, was rejected: both then answer the same message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, cast

from hermes_state.errors import LeaseLost, StateError
from hermes_state.leases import Lease, Leases
from hermes_state.routing import keeping
from hermes_state.routing.homes import Home, guard, home_of, refuse_gone
from hermes_state.routing.sessions import conversation

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability

# A session that has a lease of this kind is not deleted (see conversation/removal_steps.py).
KIND = "turn"
# How long a turn lasts unless it is renewed. One whose process died is found out at once; this is for those that cannot
# be judged from here, and those whose process was stopped.
TERM_SECONDS = 600.0
# How long an open turn is kept after it was begun, written through or renewed by whoever has it: one that hangs in a
# process that lives is over then.
KEEP_SECONDS = 3600.0
# How long another turn of the same conversation waits by default; hermes-agent's number.
WAIT_SECONDS = 1800.0


class Times(TypedDict):
    """How long a turn lasts, another one waits, and it is kept, in seconds."""

    term_seconds: float
    wait_seconds: float
    keep_seconds: float


def times(term_seconds: float | None, wait_seconds: float | None, keep_seconds: float | None) -> Times:
    """These, with the defaults for None."""
    return {
        "term_seconds": TERM_SECONDS if term_seconds is None else term_seconds,
        "wait_seconds": WAIT_SECONDS if wait_seconds is None else wait_seconds,
        "keep_seconds": KEEP_SECONDS if keep_seconds is None else keep_seconds,
    }


Group = TypeVar("Group")
Result = TypeVar("Result")


class GuardedCore:
    """A store's core whose writes are guarded by a turn; everything else is the core's own."""

    def __init__(self, core: Callable[[], Core], turn: Turn[Any]) -> None:
        self._of = core
        self._turn = turn

    def write(
        self, work: Callable[[Transaction], Result], *, durability: Durability = "process",
        deadline_seconds: float | None = None,
    ) -> Result:
        """As `Core.write`, in the turn. Raises `StaleFence`, `LeaseLost`, `HomeRemoved`; nothing is committed then."""
        turn, core = self._turn, self._of()

        def guarded(tx: Transaction) -> Result:
            turn.guard(tx)
            return work(tx)

        refuse_gone(core, turn.home)
        turn.keep()
        return core.write(guarded, durability=durability, deadline_seconds=deadline_seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of(), name)


class Turn(Generic[Group]):
    """One turn. A `with` block ends it; write through `messages` and `write`."""

    def __init__(
        self, core: Callable[[], Core], leases: tuple[Lease, ...], session_id: str, group: Callable[[Core], Group], *,
        home: Home, keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        self._core = core
        self._leases = leases
        self._clock = core().clock
        self._keep_seconds = keep_seconds
        self.term_seconds = leases[0].term_seconds
        self.home = home  # for which it writes
        self.session_id = session_id
        # What the newest renewal by itself failed with; None when it did not. The next write says it by itself.
        self.trouble: StateError | None = None
        # the messages of the store, each write under the lease
        self.messages: Group = group(cast("Core", GuardedCore(core, self)))
        self._renewed()
        self._used_at = self._clock.monotonic()
        if keep_seconds > 0:
            keeping.KEEPER.add(self)

    @property
    def lease(self) -> Lease:
        """The lease of the conversation. Its fence is what every write checks."""
        return self._leases[0]

    def write(self, work: Callable[[Transaction], Result], *, durability: Durability = "process") -> Result:
        """Run `work(tx)` in one transaction in the turn. Raises `StaleFence`, `LeaseLost`, `HomeRemoved`."""
        return GuardedCore(self._core, self).write(work, durability=durability)

    def guard(self, tx: Transaction) -> None:
        """First thing in a transaction of this turn; `write` and `messages` do it. Raises as `write`."""
        self.lease.guard(tx)
        guard(tx, self.home)

    def renew(self) -> None:
        """Have another whole term, also after it ran out, as long as nobody took it. Raises `LeaseLost`: stop then."""
        for lease in self._leases:
            lease.renew()
        self._renewed()
        self._used_at = self._clock.monotonic()

    def keep(self) -> None:
        """Renew when less than half of the term is left. Every write does."""
        self._used_at = self._clock.monotonic()
        if any(lease.expires_in_seconds() < lease.term_seconds / 2 for lease in self._leases):
            self.renew()

    @property
    def is_kept(self) -> bool:
        """Whether it renews itself: while it is open, is ours and was used not longer ago than it is to be kept."""
        return (
            not isinstance(self.trouble, LeaseLost) and self._clock.boottime() < self._expires
            and self._clock.monotonic() < self._used_at + self._keep_seconds
        )

    def renew_in_time(self) -> bool:
        """Have another whole term; False, and nothing is done, when it ran out already. For who keeps it."""
        self._core()  # not after the store was closed
        if any(lease.expires_in_seconds() <= 0 for lease in self._leases):
            return False
        for lease in self._leases:
            lease.renew()
        self._renewed()
        return True

    def _renewed(self) -> None:
        self._expires = self._clock.boottime() + self.term_seconds
        self.trouble = None

    def end(self) -> None:
        """Let the next one have it. Safe to call twice."""
        keeping.KEEPER.remove(self)
        _release(self._leases)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.end()
        except StateError as lost:
            if error is None:
                raise
            # What the block raised is what the caller must see.
            error.add_note(f"The turn was not given back, and lasts until its term is over: {lost}")

    def __repr__(self) -> str:
        return f"<Turn of {self.session_id} {self.lease!r}>"


def begin(
    core: Callable[[], Core], leases: Leases, session_id: str, group: Callable[[Core], Group], *,
    term_seconds: float = TERM_SECONDS, wait_seconds: float = WAIT_SECONDS, keep_seconds: float = KEEP_SECONDS,
    given_up: Callable[[], bool] = bool,
) -> Turn[Group]:
    """Begin a turn of a session's conversation, or raise `LeaseHeld` after `wait_seconds` or once it is `given_up`.

    The session itself has a lease as well where it is not the first of its conversation. Raises `SessionNotFound`,
    `SessionDeleted`, `HomeRemoved`, and what `Leases.acquire` raises.
    """
    home = home_of(core())
    had = acquire(
        core, leases, session_id, home, term_seconds=term_seconds, deadline=core().clock.monotonic() + wait_seconds,
        given_up=given_up,
    )
    with giving_back(had):
        return Turn(core, had, session_id, group, home=home, keep_seconds=keep_seconds)


def acquire(
    core: Callable[[], Core], leases: Leases, session_id: str, home: Home, *, term_seconds: float, deadline: float,
    given_up: Callable[[], bool],
) -> tuple[Lease, ...]:
    """The leases of the turn of a session's conversation, the conversation's first. `deadline`: by the store's clock.

    Which session is the first may change until the lease is had, when one that it continues is deleted.
    """
    while True:
        names = _names(core(), session_id, home)
        had: list[Lease] = []
        with giving_back(had):
            for name in names:
                had.append(leases.acquire(
                    f"{KIND}:{name}", term_seconds=term_seconds,
                    wait_seconds=max(0.0, deadline - core().clock.monotonic()), given_up=given_up,
                ))
            if _names(core(), session_id, home) == names:
                return tuple(had)
        _release(had)


def _names(core: Core, session_id: str, home: Home) -> list[str]:
    """The sessions whose leases a turn has: the first of the conversation, and the one itself."""
    with core.reader() as reader:
        if not core.read_only:  # else the store may be from before routing, and no lease is had anyway
            guard(reader, home)
        chain = conversation(reader, session_id)
    return list(dict.fromkeys((chain[-1], chain[0])))


@contextlib.contextmanager
def giving_back(leases: list[Lease] | tuple[Lease, ...]) -> Iterator[None]:
    """What was had is given back when the block fails."""
    try:
        yield
    except BaseException:
        _release(leases)
        raise


def _release(leases: list[Lease] | tuple[Lease, ...]) -> None:
    """Every one of them, also when one cannot be."""
    with contextlib.ExitStack() as ends:
        for lease in leases:
            ends.callback(lease.release)
