"""`store.outbox`: record what is owed, claim what is due, settle what was claimed.

Invariant: no handler runs inside a transaction. Settlements are committed at `power`; so is a claim of anything that
may be sent only once.

Not for: sending. A thread of its own that sends was rejected: only the caller knows when its transports are up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.errors import InvalidInput, NotFound, Refused
from hermes_state.leases.judging import Judging
from hermes_state.outbox import claims, listing, settling, upkeep
from hermes_state.outbox.append import HORIZON_SECONDS, Recorded, append
from hermes_state.outbox.records import Claim, Obligation, read, read_by_dedupe_id
from hermes_state.outbox.schedules import Schedule
from hermes_state.outbox.states import TERMINAL, Event, Policy, State
from hermes_state.outbox.verdicts import VERDICTS, Failed, Lost, NotAdmitted, NotSent, Verdict
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.owners import OwnerIdentity, Presence

# How long a claim lasts unless it is renewed: longer than any one send, short enough for a person to wait.
TERM_SECONDS = 60.0


class Outbox:
    """The outbox of one store. Safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another owner than this process of what is claimed here; for tests."""
        self._core = core
        self._presence = presence
        self._judging = Judging(core)
        self._alive: dict[str, float] = {}
        self._told: tuple[OwnerIdentity, str] | None = None

    # --- recording -------------------------------------------------------------------------------------------

    def append(
        self, *, dedupe_id: str, kind: str, transport: str, payload: Any,
        policy: Policy | Literal["at_most_once", "at_least_once"], target: str = "", lane: str | None = None,
        batch: str | None = None, priority: int = 0, schedule: Schedule | None = None, made_at: float | None = None,
        due_at: float | None = None,
    ) -> Recorded:
        """Record one obligation in a transaction of its own, at `power`.

        What owes something because of a change calls `hermes_state.outbox.append(tx, ...)` in the transaction of that
        change instead. Raises `InvalidInput`, `TooOld`, `IdempotencyConflict`.
        """
        at = self._core.clock.now()
        return self._core.write(
            lambda tx: append(
                tx, dedupe_id=dedupe_id, kind=kind, transport=transport, payload=payload, policy=policy, target=target,
                lane=lane, batch=batch, priority=priority, schedule=schedule, made_at=made_at, due_at=due_at, at=at,
            ),
            durability="power",
        )

    # --- sending ---------------------------------------------------------------------------------------------

    def claim(
        self, transports: Iterable[str], *, kinds: Iterable[str] | None = None, limit: int = 1,
        term_seconds: float = TERM_SECONDS,
    ) -> list[Claim]:
        """Claim up to `limit` obligations that are due, for the transports that are up; siblings come in one claim.

        What a dead process was sending is settled first: `unknown` where it may be sent only once, else due again and
        marked `recovered`. An empty list costs no write. Raises `InvalidInput`, `ReadOnlyStore`, `LockTimeout`.
        """
        up, wanted = list(dict.fromkeys(transports)), None if kinds is None else list(kinds)
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
            raise InvalidInput(f"limit is a whole number from 1 to 1000, not {limit!r}.", argument="limit")
        if not 0 < term_seconds < math.inf:
            raise InvalidInput(f"term_seconds is above 0 and finite, not {term_seconds!r}.", argument="term_seconds")
        core, clock = self._core, self._core.clock
        owner = self._owner()
        at, boottime, domain = clock.now(), clock.boottime(), clock.domain()
        with core.reader() as reader:
            lost = claims.lost_claims(reader, self._judging, own=owner, now=boottime, domain=domain, alive=self._alive)
            if not lost and not claims.anything_due(reader, up, at=at):
                return []
            once = bool(lost) or claims.any_at_most_once(reader, up, at=at)

        def work(tx: Transaction) -> list[Claim]:
            claims.settle_lost(tx, lost, at=at)
            incarnation = tx.row("SELECT incarnation FROM store")
            assert incarnation is not None  # a store without its row does not open
            found = claims.claim(
                tx, transports=up, kinds=wanted, limit=limit, term_seconds=term_seconds, owner=owner,
                incarnation=str(incarnation[0]), domain=domain, boottime=boottime, at=at,
            )
            if not once and any(one.policy is Policy.AT_MOST_ONCE for claimed in found for one in claimed):
                raise _Sooner()  # recorded since the look: the commit has to be of the other kind
            return found

        try:
            return core.write(work, durability="power" if once else "process")
        except _Sooner:
            once = True
            return core.write(work, durability="power")

    def _owner(self) -> str:
        """Who claims here, as JSON. The text of an identity is made once, the identity is looked up each time: a
        forked process is another owner."""
        identity = (self._presence or presence_of(self._core.path.parent, clock=self._core.clock)).identity
        if self._told is None or self._told[0] is not identity:
            self._told = identity, identity.to_json()
        return self._told[1]

    def renew(self, claimed: Claim, *, term_seconds: float = TERM_SECONDS) -> None:
        """Have a claim for another term from now. Raises `StaleFence` when somebody else decided about it."""
        clock = self._core.clock

        def work(tx: Transaction) -> None:
            claims.renew(
                tx, claimed, until=clock.boottime() + term_seconds, domain=clock.domain(),
                lost=lambda one: settling.stale(tx, one, read(tx, one.id)),
            )

        self._core.write(work)

    def settle(self, claimed: Claim, verdict: Verdict) -> dict[int, State]:
        """Write the one verdict of a claim; returns the state of each of its obligations.

        Raises `StaleFence` when one of them is not ours any more (nothing is changed then), `InvalidInput`.
        """
        if not isinstance(verdict, VERDICTS):
            raise InvalidInput(
                f"A verdict is one of {', '.join(kind.__name__ for kind in VERDICTS)}, not {verdict!r:.80}.",
                hint="Nothing returned is no acceptance.", argument="verdict",
            )
        at = self._core.clock.now()
        return self._core.write(lambda tx: settling.settle(tx, claimed, verdict, at=at), durability="power")

    def deliver(
        self, handler: Callable[[Claim], Verdict | None], transports: Iterable[str], *,
        kinds: Iterable[str] | None = None, limit: int = 1, term_seconds: float = TERM_SECONDS,
    ) -> list[tuple[Claim, Verdict]]:
        """Claim, call `handler` for each claim, settle by what it says; returns what was sent and how it ended.

        A handler that raises `NotSent` spends an attempt; any other error leaves open whether it went out, so it is
        `unknown` at most once and sent again at least once, and is raised once its claim is settled. One that returns
        no verdict has not accepted: it spends an attempt.
        """
        done: list[tuple[Claim, Verdict]] = []
        waiting = self.claim(transports, kinds=kinds, limit=limit, term_seconds=term_seconds)
        try:
            while waiting:
                claimed = waiting.pop(0)
                verdict = self._sent(handler, claimed)
                self.settle(claimed, verdict)
                done.append((claimed, verdict))
        finally:
            for claimed in waiting:  # certainly not sent: somebody raised before their turn came
                self.settle(claimed, NotAdmitted(why="its sender stopped before its turn came", retry_after=0.0))
        return done

    def _sent(self, handler: Callable[[Claim], Verdict | None], claimed: Claim) -> Verdict:
        """What a handler said, in the words of verdicts."""
        try:
            said = handler(claimed)
        except NotSent as error:
            return Failed(why=str(error) or "nothing was sent")
        except BaseException as error:
            self.settle(claimed, Lost(why=f"{type(error).__name__}: {error}"))
            raise
        return said if isinstance(said, VERDICTS) else Failed(why=f"the handler gave no verdict: {said!r:.80}")

    # --- people ----------------------------------------------------------------------------------------------

    def get(self, key: int | str) -> Obligation:
        """One obligation by its number or its dedupe id. Raises `NotFound`."""
        with self._core.reader() as reader:
            found = read(reader, key) if isinstance(key, int) else read_by_dedupe_id(reader, key)
        if found is None:
            raise NotFound(
                f"There is no obligation {key!r} in {self._core.path}.", hint="`hermes outbox list` shows them.",
                path=self._core.path, key=key,
            )
        return found

    def page(
        self, *, states: Sequence[State] | None = None, kind: str | None = None, transport: str | None = None,
        limit: int = 50, before: int | None = None,
    ) -> list[Obligation]:
        """Up to `limit` obligations, newest first; `before` is the id that the last page ended at."""
        with self._core.reader() as reader:
            return listing.page(
                reader, states=states, kind=kind, transport=transport, limit=limit, before=before
            )

    def counts(self) -> listing.Counts:
        """How many of each state, what is overdue, and what is remembered."""
        with self._core.reader() as reader:
            return listing.counts(reader, at=self._core.clock.now())

    def retry(self, key: int | str, *, dedupe_id: str | None = None) -> Obligation:
        """Send one now: a pending one is due at once; of a settled one a new obligation is made that names it.

        `dedupe_id`: of the new one; by default the old one with the number of the retry. What is claimed is refused:
        somebody sends it. Raises `NotFound`, `Refused`.
        """
        one = self.get(key)
        at = self._core.clock.now()

        def work(tx: Transaction) -> Obligation:
            now = read(tx, one.id)
            if now is None or now.state is State.CLAIMED:
                raise Refused(
                    f"Obligation {one.dedupe_id!r} in {tx.path} is being sent.", hint="Wait for its verdict.",
                    path=tx.path, dedupe_id=one.dedupe_id,
                )
            if now.state is State.PENDING:
                tx.execute("UPDATE outbox SET due_at = min(due_at, ?) WHERE id = ?", (at, now.id))
                found = read(tx, now.id)
                assert found is not None
                return found
            if now.payload is None:
                raise Refused(
                    f"The payload of obligation {one.dedupe_id!r} in {tx.path} was blanked after it was settled.",
                    hint="Record it anew from its source.", path=tx.path, dedupe_id=one.dedupe_id,
                )
            (before,) = tx.rows("SELECT count(*) FROM outbox WHERE retry_of = ?", (now.id,))[0]
            return append(
                tx, dedupe_id=dedupe_id or f"{now.dedupe_id}#retry-{before + 1}", kind=now.kind,
                transport=now.transport, payload=now.payload, policy=now.policy, target=now.target, lane=now.lane,
                priority=now.priority, schedule=now.schedule, at=at, retry_of=now.id,
            ).obligation

        return self._core.write(work, durability="power")

    def drop(self, key: int | str, *, reason: str) -> Obligation:
        """Take a pending one back for good. Settled ones stay as they are; a claimed one is refused.

        Raises `NotFound`, `Refused`, `InvalidInput` (no reason).
        """
        return self._end(key, Event.DROP, reason)

    def suppress(self, key: int | str, *, reason: str) -> Obligation:
        """End a pending one that is not wanted any more. As `drop`, for programs."""
        return self._end(key, Event.SUPPRESS, reason)

    def _end(self, key: int | str, event: Event, reason: str) -> Obligation:
        if not reason.strip():
            raise InvalidInput("Say why it is not to be sent.", argument="reason")
        one = self.get(key)
        at = self._core.clock.now()

        def work(tx: Transaction) -> Obligation:
            now = read(tx, one.id)
            if now is None or now.state in TERMINAL or now.state is State.CLAIMED:
                stands = "gone" if now is None else str(now.state)
                raise Refused(
                    f"Obligation {one.dedupe_id!r} in {tx.path} is {stands}: only a pending one can be taken back.",
                    hint="What is claimed is being sent; what is settled stays as it is.", path=tx.path,
                    dedupe_id=one.dedupe_id,
                )
            settling.end_pending(tx, now, event, reason, at=at)
            found = read(tx, now.id)
            assert found is not None
            return found

        return self._core.write(work, durability="power")

    # --- upkeep ----------------------------------------------------------------------------------------------

    def upkeep(
        self, *, horizon_seconds: float = HORIZON_SECONDS, blank_after_seconds: float = upkeep.BLANK_AFTER_SECONDS,
        most_settled: int = upkeep.MOST_SETTLED, steps: int = 20,
    ) -> upkeep.Tidied:
        """Blank and forget what is settled, in up to `steps` short transactions; says what it did, caps included."""
        at = self._core.clock.now()
        blanked = forgotten = early = 0
        more = True
        while more and steps > 0:
            done = self._core.write(
                lambda tx: upkeep.step(
                    tx, at=at, horizon_seconds=horizon_seconds, blank_after_seconds=blank_after_seconds,
                    most_settled=most_settled,
                )
            )
            blanked, forgotten, early = (
                blanked + done.blanked, forgotten + done.forgotten, early + done.forgotten_early
            )
            more, steps = done.more, steps - 1
        return upkeep.Tidied(blanked=blanked, forgotten=forgotten, forgotten_early=early, more=more)


class _Sooner(Exception):
    """A row that may be sent only once came between the look and the claim."""
