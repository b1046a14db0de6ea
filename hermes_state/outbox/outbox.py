"""`store.outbox`: record what is owed, claim what is due, settle what was claimed.

Invariant: no handler runs inside a transaction, and no claim waits for the handler of another. Settlements are
committed at `power`; so is a claim of anything that may be sent only once.

Not for: sending. A thread of its own that sends was rejected: only the caller knows when its transports are up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.errors import InvalidInput
from hermes_state.outbox import claims, delivering, listing, looking, losing, people, settling, upkeep
from hermes_state.outbox.append import HORIZON_SECONDS, Recorded, append
from hermes_state.outbox.inputs import LATEST, MOST_ID, MOST_REASON, names, seconds, text, whole
from hermes_state.outbox.records import Claim, Obligation
from hermes_state.outbox.schedules import Schedule
from hermes_state.outbox.states import Event, Policy, State
from hermes_state.outbox.verdicts import VERDICTS, Verdict, shown
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.leases.rows import LeaseRow
    from hermes_state.owners import OwnerIdentity, Presence

# How long a claim lasts unless it is renewed: longer than any one send, short enough for a person to wait.
TERM_SECONDS = 60.0
# The longest one: what takes longer says so by renewing.
LONGEST_TERM_SECONDS = 86_400.0
# Most obligations in one call; each is a row that is written.
MOST_CLAIMED = 1000


class Outbox:
    """The outbox of one store. Safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another owner than this process of what is claimed here; for tests."""
        self._core = core
        self._presence = presence
        self._watch = losing.Watch(core)
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
        """Claim up to `limit` obligations (1 to 1000) that are due, for the transports that are up.

        Siblings of a batch that are due, of `kinds` and on the same transport come in one claim (at most 50), which may
        go beyond `limit`; one that is not due yet stays. What a dead process was sending, or let run out, is settled
        first: `unknown` where it may be sent only once, else due again and marked `recovered`. Each claim runs out
        `term_seconds` (at most a day) from now, also while it waits for its turn: claim only what is sent at once, or
        use `deliver`. An empty list costs no write when nothing is due. Raises `InvalidInput`, `ReadOnlyStore`,
        `LockTimeout`.
        """
        up, wanted = names("transports", transports), None if kinds is None else names("kinds", kinds)
        whole("limit", limit, 1, MOST_CLAIMED)
        return self._claim(up, wanted, limit, term(term_seconds), ())

    def _claim(
        self, up: Sequence[str], wanted: Sequence[str] | None, limit: int, term_seconds: float, without: Sequence[int]
    ) -> list[Claim]:
        core, clock = self._core, self._core.clock
        owner = self._owner()
        at, boottime, domain = clock.now(), clock.boottime(), clock.domain()
        asked = claims.Wanted(at=at, transports=up, kinds=wanted, limit=limit, without=list(without))
        with core.reader() as reader:
            lost = self._watch.lost(reader, own=owner, now=boottime, domain=domain)
            anything, once = claims.due(reader, asked)
            if not lost and not anything:
                return []
            once = once or bool(lost)

        def work(tx: Transaction) -> list[Claim]:
            losing.settle_lost(tx, lost, at=at)
            incarnation = tx.row("SELECT incarnation FROM store")
            assert incarnation is not None  # a store without its row does not open
            found = claims.claim(
                tx, asked, term_seconds=term_seconds, owner=owner, incarnation=str(incarnation[0]), domain=domain,
                boottime=boottime,
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
        """Have a claim for another term from now, at most a day; for handlers that take long, from any thread.

        Raises `StaleFence` when somebody else decided about it, `InvalidInput`.
        """
        clock, seconds_more = self._core.clock, term(term_seconds)

        def work(tx: Transaction) -> None:
            claims.renew(tx, claimed, until=clock.boottime() + seconds_more, domain=clock.domain())

        self._core.write(work)

    def settle(self, claimed: Claim, verdict: Verdict) -> dict[int, State]:
        """Write the one verdict of a claim; returns the state of each of its obligations.

        It counts while the claim is ours, and after its term as long as nobody took it; also late, when an obligation
        that is sent at least once was taken for lost and nobody has claimed it since. Raises `StaleFence` when one of
        them is not ours any more (nothing is changed then; `facts` has its `state`), `InvalidInput`.
        """
        if not isinstance(verdict, VERDICTS):
            raise InvalidInput(
                f"A verdict is one of {', '.join(kind.__name__ for kind in VERDICTS)}, not {shown(verdict)}.",
                hint="Nothing returned is no acceptance.", argument="verdict",
            )
        return self._settle(claimed, verdict)

    def _settle(self, claimed: Claim, verdict: Verdict, *, deadline_seconds: float | None = None) -> dict[int, State]:
        at = self._core.clock.now()
        return self._core.write(
            lambda tx: settling.settle(tx, claimed, verdict, at=at), durability="power",
            deadline_seconds=deadline_seconds,
        )

    def deliver(
        self, handler: Callable[[Claim], Verdict | None], transports: Iterable[str], *,
        kinds: Iterable[str] | None = None, limit: int = 1, term_seconds: float = TERM_SECONDS,
    ) -> list[tuple[Claim, Verdict]]:
        """Claim, call `handler`, settle by what it says, up to `limit` times; returns what was sent and how it ended.

        Each claim is made right before its handler is called, so none waits for another; a handler that takes longer
        than `term_seconds` calls `renew(claim)`. What was refunded or failed is not tried again in the same call.

        A handler that raises `NotSent` spends an attempt; any other error leaves open whether it went out, so it is
        `unknown` at most once and sent again at least once, and is raised once its claim is settled. One that returns
        no verdict has not accepted: it spends an attempt.

        A verdict that cannot be written any more, since the term ran out and somebody else decided, is not lost: it is
        raised as `StaleFence`, whose `facts` have the `claim`, the `verdict`, the `state` in which the row is, and what
        was `delivered` before. An error of the store that may pass (`retryable`, such as `LockTimeout`) is tried again
        for 30 s; after that, and for any other (`DiskFull`, `IOFailure`), it is raised with the same facts but `state`,
        so that `settle(error.claim, error.verdict)` can be called once the store can write.
        """
        return self.deliver_until(
            handler, transports, kinds=kinds, limit=limit, term_seconds=term_seconds, stopped=lambda: False
        )

    def deliver_until(
        self, handler: Callable[[Claim], Verdict | None], transports: Iterable[str], *,
        kinds: Iterable[str] | None, limit: int, term_seconds: float, stopped: Callable[[], bool],
    ) -> list[tuple[Claim, Verdict]]:
        """As `deliver`; nothing more is claimed once `stopped()` is true, and what was claimed just then is given back:
        certainly nothing of it was sent."""
        up, wanted = names("transports", transports), None if kinds is None else names("kinds", kinds)
        whole("limit", limit, 1, MOST_CLAIMED)
        lasting = term(term_seconds)
        return delivering.deliver(
            handler, claim=lambda given: self._claim(up, wanted, 1, lasting, given), settle=self._settle,
            clock=self._core.clock, limit=limit, stopped=stopped,
        )

    # --- people ----------------------------------------------------------------------------------------------

    def get(self, key: int | str) -> Obligation:
        """One obligation by its number or its dedupe id. Raises `NotFound`, `InvalidInput`."""
        with self._core.reader() as reader:
            return people.find(reader, key)

    def page(
        self, *, states: Sequence[State] | None = None, kind: str | None = None, transport: str | None = None,
        lane: str | None = None, limit: int = 50, before: int | None = None,
    ) -> list[Obligation]:
        """Up to `limit` obligations (1 to 1000), newest first; `before` is the id that the last page ended at.

        Raises `InvalidInput`.
        """
        with self._core.reader() as reader:
            return listing.page(
                reader, states=states, kind=kind, transport=transport, lane=lane, limit=limit, before=before
            )

    def counts(self) -> listing.Counts:
        """How many of each state, what is overdue or blocked, which senders are gone, and what is remembered."""

        def is_left(number: int) -> bool:
            return bool(looking.lost(reader, number, self._watch))

        with self._core.reader() as reader:
            return listing.counts(reader, at=self._core.clock.now(), is_left=is_left)

    def look(self, key: int | str) -> looking.Looked:
        """One obligation, whether its sender lives, what it waits behind, and what repeats it. Raises as `get`."""
        with self._core.reader() as reader:
            return looking.look(reader, people.find(reader, key), self._watch, self._core.clock)

    def look_at(self, obligations: Iterable[Obligation]) -> list[looking.Looked]:
        """As `look`, for a page of them."""
        with self._core.reader() as reader:
            return [looking.look(reader, one, self._watch, self._core.clock) for one in obligations]

    def retry(self, key: int | str, *, dedupe_id: str | None = None) -> Obligation:
        """Send one now: a pending one is due at once; of a settled one a new obligation is made that names it.

        The new one has the batch, lane, priority, policy and schedule of the old one. Without `dedupe_id` it gets the
        old id with `#retry-1`, -2, ..., and while one that was made so is not settled, asking again gives that one and
        makes no second. With `dedupe_id`, not the old one, it is made once for each, however often it is asked for.
        What is claimed is refused: somebody sends it; but a claim whose sender is gone or past its term is settled as
        lost first: what may be sent only once is `unknown` then, and a new one is made of it. Raises `NotFound`,
        `Refused`, `InvalidInput`, `IdempotencyConflict` (the id is in use for something else).
        """
        one, lost, at = *self._for_people(key), self._core.clock.now()

        def work(tx: Transaction) -> Obligation:
            losing.settle_lost(tx, lost, at=at)
            return people.retry(tx, one.id, dedupe_id=dedupe_id, at=at)

        return self._core.write(work, durability="power")

    def drop(self, key: int | str, *, reason: str) -> Obligation:
        """Take a pending one back for good. Settled ones stay as they are; a claimed one is refused, unless its sender
        is gone or past its term: then it is settled as lost first, and what may be sent only once stays `unknown`, as
        the state of what is returned says.

        `reason` has at most 4,000 characters. Raises `NotFound`, `Refused`, `InvalidInput` (no reason).
        """
        return self._end(key, Event.DROP, reason)

    def suppress(self, key: int | str, *, reason: str) -> Obligation:
        """End a pending one that is not wanted any more. As `drop`, for programs."""
        return self._end(key, Event.SUPPRESS, reason)

    def _end(self, key: int | str, event: Event, reason: str) -> Obligation:
        text("reason", reason, most=MOST_REASON, of="")
        one, lost, at = *self._for_people(key), self._core.clock.now()

        def work(tx: Transaction) -> Obligation:
            if losing.settle_lost(tx, lost, at=at):
                now = people.find(tx, one.id)
                if now.state is State.UNKNOWN:
                    return now
            return people.end(tx, one.id, event, reason, at=at)

        return self._core.write(work, durability="power")

    def _for_people(self, key: int | str) -> tuple[Obligation, list[LeaseRow]]:
        """One obligation, and its claim when that lost its sender; judged before the transaction."""
        with self._core.reader() as reader:
            one = people.find(reader, key)
            return one, looking.lost(reader, one.id, self._watch)

    # --- upkeep ----------------------------------------------------------------------------------------------

    def upkeep(
        self, *, horizon_seconds: float = HORIZON_SECONDS, blank_after_seconds: float = upkeep.BLANK_AFTER_SECONDS,
        most_settled: int = upkeep.MOST_SETTLED, steps: int = 20,
    ) -> upkeep.Tidied:
        """Blank and forget what is settled, in up to `steps` short transactions; says what it did, caps included.

        Payloads go `blank_after_seconds` after the verdict, rows `horizon_seconds` after they were made and settled or,
        beyond `most_settled` of them, the first settled first. Between steps the store is left to others for as long as
        one takes. Raises `InvalidInput`.
        """
        seconds("horizon_seconds", horizon_seconds, most=LATEST, zero=False)
        seconds("blank_after_seconds", blank_after_seconds, most=LATEST)
        whole("most_settled", most_settled, 0, MOST_ID)
        whole("steps", steps, 1, 1_000_000)
        clock = self._core.clock
        at = clock.now()
        blanked = forgotten = early = 0
        more = True
        while more and steps > 0:
            began = clock.monotonic()
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
            if more and steps > 0:
                # As long as it was held: who waits for the lock tries again every 4 ms at most.
                clock.sleep(max(upkeep.REST_SECONDS, clock.monotonic() - began))
        return upkeep.Tidied(blanked=blanked, forgotten=forgotten, forgotten_early=early, more=more)


def term(value: float) -> float:
    """How long a claim may last."""
    return seconds("term_seconds", value, most=LONGEST_TERM_SECONDS, zero=False)


class _Sooner(Exception):
    """A row that may be sent only once came between the look and the claim."""
