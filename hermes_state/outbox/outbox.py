"""`store.outbox`: record what is owed, claim what is due, settle what was claimed.

Invariant: no handler runs inside a transaction, and no claim waits for the handler of another. Settlements are
committed at `power`; so is a claim of anything that may be sent only once.

Not for: sending. A thread of its own that sends was rejected: only the caller knows when its transports are up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.errors import InvalidInput, StaleFence, StateError
from hermes_state.outbox import claims, listing, losing, people, settling, upkeep
from hermes_state.outbox.append import HORIZON_SECONDS, Recorded, append
from hermes_state.outbox.inputs import LATEST, MOST_ID, MOST_REASON, names, seconds, text, whole
from hermes_state.outbox.records import Claim, Obligation, read
from hermes_state.outbox.schedules import Schedule
from hermes_state.outbox.states import Event, Policy, State
from hermes_state.outbox.verdicts import VERDICTS, Failed, Lost, NotSent, Verdict, shown, told
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
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
        with core.reader() as reader:
            lost = self._watch.lost(reader, own=owner, now=boottime, domain=domain)
            if not lost and not claims.anything_due(reader, up, at=at):
                return []
            once = bool(lost) or claims.any_at_most_once(reader, up, at=at)

        def work(tx: Transaction) -> list[Claim]:
            losing.settle_lost(tx, lost, at=at)
            incarnation = tx.row("SELECT incarnation FROM store")
            assert incarnation is not None  # a store without its row does not open
            found = claims.claim(
                tx, transports=up, kinds=wanted, limit=limit, term_seconds=term_seconds, owner=owner,
                incarnation=str(incarnation[0]), domain=domain, boottime=boottime, at=at, without=without,
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
            claims.renew(
                tx, claimed, until=clock.boottime() + seconds_more, domain=clock.domain(),
                lost=lambda one: settling.stale(tx, one, read(tx, one.id)),
            )

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
        at = self._core.clock.now()
        return self._core.write(lambda tx: settling.settle(tx, claimed, verdict, at=at), durability="power")

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
        was `delivered` before. Any other error of writing it carries the verdict as a note.
        """
        return self.deliver_until(
            handler, transports, kinds=kinds, limit=limit, term_seconds=term_seconds, stopped=lambda: False
        )

    def deliver_until(
        self, handler: Callable[[Claim], Verdict | None], transports: Iterable[str], *,
        kinds: Iterable[str] | None, limit: int, term_seconds: float, stopped: Callable[[], bool],
    ) -> list[tuple[Claim, Verdict]]:
        """As `deliver`; nothing more is claimed once `stopped()` is true."""
        up, wanted = names("transports", transports), None if kinds is None else names("kinds", kinds)
        whole("limit", limit, 1, MOST_CLAIMED)
        lasting = term(term_seconds)
        done: list[tuple[Claim, Verdict]] = []
        given: list[int] = []
        while len(done) < limit and not stopped():
            claimed = next(iter(self._claim(up, wanted, 1, lasting, given)), None)
            if claimed is None:
                break
            given += [one.id for one in claimed]
            verdict = self._sent(handler, claimed)
            self._settle_sent(claimed, verdict, done)
            done.append((claimed, verdict))
        return done

    def _sent(self, handler: Callable[[Claim], Verdict | None], claimed: Claim) -> Verdict:
        """What a handler said, in the words of verdicts."""
        try:
            said = handler(claimed)
        except NotSent as error:
            return Failed(why=told(error) or "nothing was sent")
        except BaseException as error:
            try:
                self.settle(claimed, Lost(why=f"{type(error).__name__}: {told(error)}"))
            except StateError as refused:
                error.add_note(f"That it is lost was not written: {refused} {refused.hint}")
            raise
        return said if isinstance(said, VERDICTS) else Failed(why=f"the handler gave no verdict: {shown(said)}")

    def _settle_sent(self, claimed: Claim, verdict: Verdict, done: list[tuple[Claim, Verdict]]) -> None:
        """Settle what a handler has sent, and let no error take its verdict along."""
        try:
            self.settle(claimed, verdict)
        except StaleFence as stale:
            raise StaleFence(
                f"{stale.message} Its handler had said {type(verdict).__name__}.", hint=stale.hint,
                **{**stale.facts, "claim": claimed, "verdict": verdict, "delivered": tuple(done)},
            ) from stale
        except StateError as error:
            which = ", ".join(repr(one.dedupe_id) for one in claimed)
            error.add_note(f"Of {which} the handler had said {shown(verdict)}, which was not written.")
            raise

    # --- people ----------------------------------------------------------------------------------------------

    def get(self, key: int | str) -> Obligation:
        """One obligation by its number or its dedupe id. Raises `NotFound`, `InvalidInput`."""
        with self._core.reader() as reader:
            return people.find(reader, key)

    def page(
        self, *, states: Sequence[State] | None = None, kind: str | None = None, transport: str | None = None,
        limit: int = 50, before: int | None = None,
    ) -> list[Obligation]:
        """Up to `limit` obligations (1 to 1000), newest first; `before` is the id that the last page ended at.

        Raises `InvalidInput`.
        """
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

        The new one has the batch, lane, priority, policy and schedule of the old one. Without `dedupe_id` it gets the
        old id with `#retry-1`, -2, ..., and while one that was made so is not settled, asking again gives that one and
        makes no second. With `dedupe_id`, not the old one, it is made once for each, however often it is asked for.
        What is claimed is refused: somebody sends it. Raises `NotFound`, `Refused`, `InvalidInput`,
        `IdempotencyConflict` (the id is in use for something else).
        """
        one, at = self.get(key), self._core.clock.now()
        return self._core.write(lambda tx: people.retry(tx, one.id, dedupe_id=dedupe_id, at=at), durability="power")

    def drop(self, key: int | str, *, reason: str) -> Obligation:
        """Take a pending one back for good. Settled ones stay as they are; a claimed one is refused.

        `reason` has at most 4,000 characters. Raises `NotFound`, `Refused`, `InvalidInput` (no reason).
        """
        return self._end(key, Event.DROP, reason)

    def suppress(self, key: int | str, *, reason: str) -> Obligation:
        """End a pending one that is not wanted any more. As `drop`, for programs."""
        return self._end(key, Event.SUPPRESS, reason)

    def _end(self, key: int | str, event: Event, reason: str) -> Obligation:
        text("reason", reason, most=MOST_REASON, of="")
        one, at = self.get(key), self._core.clock.now()
        return self._core.write(lambda tx: people.end(tx, one.id, event, reason, at=at), durability="power")

    # --- upkeep ----------------------------------------------------------------------------------------------

    def upkeep(
        self, *, horizon_seconds: float = HORIZON_SECONDS, blank_after_seconds: float = upkeep.BLANK_AFTER_SECONDS,
        most_settled: int = upkeep.MOST_SETTLED, steps: int = 20,
    ) -> upkeep.Tidied:
        """Blank and forget what is settled, in up to `steps` short transactions; says what it did, caps included.

        Payloads go `blank_after_seconds` after the verdict, rows `horizon_seconds` after they were made or, beyond
        `most_settled` of them, the first settled first. Raises `InvalidInput`.
        """
        seconds("horizon_seconds", horizon_seconds, most=LATEST, zero=False)
        seconds("blank_after_seconds", blank_after_seconds, most=LATEST)
        whole("most_settled", most_settled, 0, MOST_ID)
        whole("steps", steps, 1, 1_000_000)
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


def term(value: float) -> float:
    """How long a claim may last."""
    return seconds("term_seconds", value, most=LONGEST_TERM_SECONDS, zero=False)


class _Sooner(Exception):
    """A row that may be sent only once came between the look and the claim."""
