"""The turn of a conversation: one process at a time works on it, gateway and command line alike.

Invariant: the lease is named after the first session of the conversation, so that a compaction in the middle of a turn
changes nothing of who has it. What is written through the turn is committed only while its fence is the newest; a
process that was stopped, and replaced meanwhile, commits nothing more. Whoever waits too long is refused.

Not for: appends without a turn, which need no lease. Going on without one after the wait, as hermes-agent 0.19 does,
was rejected: both then answer the same message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from hermes_state.leases import Lease, Leases
from hermes_state.routing.sessions import conversation

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability

# A session that has a lease of this kind is not deleted (see conversation/removal_steps.py).
KIND = "turn"
# How long a turn lasts unless it writes or is renewed. One whose process died is found out at once.
TERM_SECONDS = 600.0
# How long another turn of the same conversation waits by default; hermes-agent's number.
WAIT_SECONDS = 1800.0

Group = TypeVar("Group")
Result = TypeVar("Result")


class GuardedCore:
    """A store's core whose writes are guarded by a lease; everything else is the core's own."""

    def __init__(self, core: Callable[[], Core], turn: Turn[Any]) -> None:
        self._of = core
        self._turn = turn

    def write(
        self, work: Callable[[Transaction], Result], *, durability: Durability = "process",
        deadline_seconds: float | None = None,
    ) -> Result:
        """As `Core.write`, under the lease. Raises `StaleFence`, `LeaseLost`; nothing is committed then."""
        turn = self._turn

        def guarded(tx: Transaction) -> Result:
            turn.lease.guard(tx)
            return work(tx)

        turn.keep()
        return self._of().write(guarded, durability=durability, deadline_seconds=deadline_seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of(), name)


class Turn(Generic[Group]):
    """One turn. A `with` block ends it; write through `messages` and `write`."""

    def __init__(
        self, core: Callable[[], Core], leases: tuple[Lease, ...], session_id: str, group: Callable[[Core], Group]
    ) -> None:
        self._core = core
        self._leases = leases
        self.session_id = session_id
        # the messages of the store, each write under the lease
        self.messages: Group = group(cast("Core", GuardedCore(core, self)))

    @property
    def lease(self) -> Lease:
        """The lease of the conversation. Its fence is what every write checks."""
        return self._leases[0]

    def write(self, work: Callable[[Transaction], Result], *, durability: Durability = "process") -> Result:
        """Run `work(tx)` in one transaction under the lease. Raises `StaleFence`, `LeaseLost`."""
        return GuardedCore(self._core, self).write(work, durability=durability)

    def renew(self) -> None:
        """Have another whole term, also after it ran out, as long as nobody took it. Raises `LeaseLost`: stop then."""
        for lease in self._leases:
            lease.renew()

    def keep(self) -> None:
        """Renew when less than half of the term is left. Every write does."""
        if any(lease.expires_in_seconds() < lease.term_seconds / 2 for lease in self._leases):
            self.renew()

    def end(self) -> None:
        """Let the next one have it. Safe to call twice."""
        for lease in reversed(self._leases):
            lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<Turn of {self.session_id} {self.lease!r}>"


def begin(
    core: Callable[[], Core], leases: Leases, session_id: str, group: Callable[[Core], Group], *,
    term_seconds: float = TERM_SECONDS, wait_seconds: float = WAIT_SECONDS,
) -> Turn[Group]:
    """Begin a turn of a session's conversation, or raise `LeaseHeld` after `wait_seconds`.

    The session itself has a lease as well where it is not the first of its conversation: none at work is deleted.
    Raises `SessionNotFound`, `SessionDeleted`, and what `Leases.acquire` raises.
    """
    with core().reader() as reader:
        chain = conversation(reader, session_id)
    clock = core().clock
    deadline = clock.monotonic() + wait_seconds
    had: list[Lease] = []
    try:
        for name in dict.fromkeys((chain[-1], chain[0])):
            had.append(leases.acquire(
                f"{KIND}:{name}", term_seconds=term_seconds, wait_seconds=max(0.0, deadline - clock.monotonic())
            ))
    except BaseException:
        for lease in had:
            lease.release()
        raise
    return Turn(core, tuple(had), session_id, group)
