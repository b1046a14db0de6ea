"""Running a choice: alone or beside others, then returning the space.

Invariant: the store comes from the gate. Alone, one exclusive lock covers all units that need one tokenizer; units with
NUL text follow under a second one, because a connection has one tokenizer. What was deleted until an error is in the
`Removed` that the caller gave. Free pages are returned only after every delete has committed.

Not for: choosing and asking. Deleting everything with the slow tokenizer was rejected: it reads text in Python.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hermes_state.engine import NulRule
from maintenance.gate import exclusive, online
from maintenance.lineage import KeptUnit
from maintenance.output.progress import Progress, progress
from maintenance.output.text import plural
from maintenance.removal.executor import Removed, Remover
from maintenance.removal.leftovers import Settled, settle_interrupted
from maintenance.removal.pacing import Pace
from maintenance.removal.record import Record
from maintenance.space import reclaim
from maintenance.space.copy_back import copy_back
from maintenance.space.disk import rooms
from maintenance.space.litestream import litestream
from maintenance.space.reclaim import DEFAULT_ABOVE_PERCENT, Decision, Policy
from maintenance.space.sizes import Sizes, pragma, sizes
from maintenance.space.verify import Stamp, check, require_sound, stamp

if TYPE_CHECKING:
    from hermes_state.engine import ExclusiveStore, Store
    from maintenance.context import Context
    from maintenance.lineage import Unit
    from maintenance.removal.choice import Choice


# Deleting touches a search index all over; SQLite's 2 MiB of cache make it read the same pages again and again
# (measured on 450 MB: 10.4 s with this, 12 to 18 s without).
CACHE_KIB = 64 * 1024


# A rewrite of damaged pages is how rows get lost, so one that was not checked does not happen.
UNCHECKED = (
    "not returned: another program wrote to the store between its page check and the lock; "
    "`hermes-state sessions optimize` checks again and returns them"
)

UNREADABLE_INDEX = "its entries in a search index are damaged; `hermes-state doctor` says more"


@dataclass
class SweepReport:
    """What a run did; it grows while the run goes on."""

    # Rows, sessions and files that went.
    removed: Removed = field(default_factory=Removed)
    # What earlier interrupted runs had left behind.
    settled: Settled = field(default_factory=Settled)
    # The state of the store whose pages are known to be sound; None when they were not checked, or it moved on since.
    sound: Stamp | None = None
    # Whether free pages were returned, and why; None until it was decided.
    decision: Decision | None = None
    # Size at the end; None until then.
    sizes: Sizes | None = None

    @property
    def files_left(self) -> tuple[str, ...]:
        """Files beside the store that could not be removed, with the reason."""
        return (*self.settled.files_left, *self.removed.files_left)


def sweep(
    ctx: Context,
    verb: str,
    choice: Choice,
    record: Record,
    report: SweepReport,
    *,
    beside: bool,
    policy: Policy,
    between: Callable[[], None] | None = None,
) -> None:
    """Delete what was chosen. Raises what the gate and the engine raise; `report` then says how far it came.

    All pages are checked first, without a lock; damage raises Corrupt before any delete. Deleting writes to pages of
    the whole file, the free ones first: in a damaged file they may be somebody else's rows.
    """
    report.sound = require_sound_pages(ctx)
    removed = report.removed
    # Without a choice there are only the rows that an interrupted deletion left.
    parts = deque((rule, units, False) for rule, units in choice.parts or ((NulRule.NATIVE, ()),))
    first = True
    with progress(choice.message_count + len(choice.ids), "deleting") as bar:
        while parts:
            rule, units, second_try = parts.popleft()
            run = _Run(ctx, choice, record, report, bar, between, first=first, policy="never" if parts else policy)
            first = False
            (run.beside if beside else run.alone)(verb, rule, units)
            if removed.unindexed and not second_try:
                # An index that programs with different SQLite versions wrote follows both rules, row by row.
                other = NulRule.CUT if rule is NulRule.NATIVE else NulRule.NATIVE
                parts.append((other, tuple(removed.unindexed), True))
                removed.unindexed = []
    for unit in removed.unindexed:
        record.kept(unit.ids, UNREADABLE_INDEX)
        removed.kept.append(KeptUnit(unit=unit, session_id=unit.ids[0], reason=UNREADABLE_INDEX))
    record.close(f"finished: {plural(len(removed.ids), 'session')}, {plural(removed.counts.messages, 'message')}")


def require_sound_pages(ctx: Context) -> Stamp:
    """The state of the store whose pages were just found sound; Corrupt when they are not."""
    verdict, checked = check(ctx, quick=True)
    require_sound(ctx.db, verdict, when="before anything was deleted")
    return checked


class _Run:
    """The units of one tokenizer."""

    def __init__(
        self,
        ctx: Context,
        choice: Choice,
        record: Record,
        report: SweepReport,
        bar: Progress,
        between: Callable[[], None] | None,
        *,
        first: bool,
        policy: Policy,
    ) -> None:
        self._ctx = ctx
        self._choice = choice
        self._record = record
        self._report = report
        self._bar = bar
        self._between = between
        self._first = first
        self._policy = policy

    def beside(self, verb: str, rule: NulRule, units: tuple[Unit, ...]) -> None:
        """In short transactions, beside whoever uses the store."""
        with online(self._ctx, verb, nul_rule=rule) as opened:
            self._remove(opened.store, units, Pace.online())
            self._report.decision = self._return_online(opened.store, self._policy)
            self._report.sizes = sizes(opened.store)

    def alone(self, verb: str, rule: NulRule, units: tuple[Unit, ...]) -> None:
        """Under the exclusive lock."""
        with exclusive(self._ctx, verb, nul_rule=rule) as opened:
            opened.store.tune(cache_size=-CACHE_KIB)
            opened.store.keep_wal = self._choice.litestream.found or litestream(opened.store).found
            if self._report.sound is not None and stamp(opened.store) != self._report.sound:
                self._report.sound = None
            self._remove(opened.store, units, Pace.alone())
            self._report.decision = self._return_alone(opened.store, self._policy)
            opened.store.checkpoint("truncate")
            self._report.sizes = sizes(opened.store)
            if self._report.sound is not None:
                # What SQLite wrote to sound pages under this lock is sound; the next part starts from here.
                self._report.sound = stamp(opened.store)

    def _remove(self, store: Store, units: tuple[Unit, ...], pace: Pace) -> None:
        if self._first:
            self._report.settled = settle_interrupted(store, self._choice.dialect, self._ctx.clock)
        remover = Remover(
            store=store,
            dialect=self._choice.dialect,
            snapshot=self._choice.snapshot,
            record=self._record,
            pace=pace,
            clock=self._ctx.clock,
            removed=self._report.removed,
            on_rows=self._bar.advance,
            between=self._between,
        )
        remover.remove(units)

    def _return_alone(self, store: ExclusiveStore, policy: Policy) -> Decision:
        found = sizes(store)
        decision = reclaim.decide(found, policy, DEFAULT_ABOVE_PERCENT)
        if not decision.runs:
            return decision
        if self._report.sound is None:
            return replace(decision, runs=False, reason=UNCHECKED)
        wanted = reclaim.needs(
            store.path, found, method="vacuum", journal_mode=store.journal_mode, merge_bytes=0
        )
        full = next((room for room in rooms(wanted) if not room.enough), None)
        if full is not None:
            # The rows are gone either way; a rewrite that would fill the disk is left for later.
            return replace(
                decision, runs=False, reason=f"not returned: {full.directory} has too little room for a rewrite"
            )
        self._bar.restart(None, "returning free pages")
        reclaim.in_place(store, found)
        return decision

    def _return_online(self, store: Store, policy: Policy) -> Decision:
        found = sizes(store)
        decision = reclaim.decide_online(found, policy, pragma(store, "auto_vacuum"))
        if decision.runs:
            self._bar.restart(found.free_pages, "returning free pages")
            reclaim.in_steps(store, self._ctx.clock, self._bar.advance)
            # The file gets shorter only once the log is copied into it; this waits for nobody.
            copy_back(store)
        return decision
