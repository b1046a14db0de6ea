"""`sessions optimize`: merge search indexes, return free pages when that pays, check before and after.

Invariant: nothing is rewritten unless the page check passed on exactly the state that the exclusive lock then found;
each step leaves a whole store, so a kill at any point loses nothing; the schema of the file is not changed. Checks run
without the exclusive lock and are timed apart.

Not for: work beside other processes (`optimize_online`). Skipping the check when a file looks small was rejected: a
rewrite of a damaged file is how rows get lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_state.engine import NulRule
from hermes_state.errors import Corrupt, LockTimeout
from hermes_state.shell_words import shell_word
from maintenance.dialects.detect import dialect_of
from maintenance.gate import Alone, exclusive, reading
from maintenance.output.progress import progress
from maintenance.output.text import human_bytes, plural
from maintenance.space import reclaim
from maintenance.space.disk import require_room
from maintenance.space.litestream import WAL_KEPT
from maintenance.space.merge import Merge, Merged, left_alone, merge_alone
from maintenance.space.optimize_plan import Choices, OptimizePlan, look, room_for
from maintenance.space.reclaim import CopyReport, Decision, decide
from maintenance.space.segments import IndexState
from maintenance.space.sizes import Sizes, sizes
from maintenance.space.verify import (
    Stamp,
    Verdict,
    check,
    require_same_counts,
    require_sound,
    row_counts,
    row_tables,
    stamp,
)

if TYPE_CHECKING:
    from hermes_state.engine import ExclusiveStore, Store
    from lockowners import Scan
    from maintenance.context import Context

VERB = "sessions optimize"
# How often a store that changes between its check and the lock is checked again.
TRIES = 3
# A VACUUM calls back about once for so many bytes of content that it copies (measured: 39 calls for 195 MB).
BYTES_A_CALL = 5_000_000


@dataclass(kw_only=True)
class Times:
    """Seconds by phase; checks are apart because the exclusive lock is not held for them."""

    # Checks before the lock.
    checks_before: float = 0.0
    # Merging search indexes.
    merge: float = 0.0
    # Returning free pages, the copy and its checks included.
    reclaim: float = 0.0
    # Copying the WAL into the file and emptying it.
    checkpoint: float = 0.0
    # Checks after the lock.
    checks_after: float = 0.0
    # From taking the exclusive lock to giving it back.
    locked: float = 0.0

    def document(self) -> dict[str, float]:
        """The fields of `--json`."""
        return {name: round(value, 3) for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class OptimizeReport:
    """What a run did."""

    # What was planned.
    plan: OptimizePlan
    # How it ran: "exclusive", "online" or "forced".
    mode: str
    # Checks before anything was changed; None when they did not run.
    before: Verdict | None
    # Checks after; None when nothing was written.
    after: Verdict | None
    # Each search index.
    merged: tuple[Merged, ...]
    # Whether pages were returned, decided after the merge.
    decision: Decision
    # What was compared, when the file was rewritten by way of a copy.
    copy: CopyReport | None
    # "refreshed", or why planner statistics were left alone.
    statistics: str
    # Size at the end.
    sizes: Sizes
    # Seconds by phase.
    times: Times
    # Sentences that the user has to know.
    warnings: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "path": str(self.plan.path),
            "mode": self.mode,
            "already_done": self.already_done,
            "sizes_before": self.plan.sizes.document(),
            "sizes_after": self.sizes.document(),
            "indexes": [merged.document() for merged in self.merged],
            "reclaim": self.decision.document() | {"method": self.plan.method, "copy": self._copy()},
            "statistics": self.statistics,
            "checks_before": self.before.document() if self.before else None,
            "checks_after": self.after.document() if self.after else None,
            "litestream": self.plan.litestream.document(),
            "seconds": self.times.document(),
            "warnings": list(self.warnings),
        }

    @property
    def changed(self) -> bool:
        """Whether an index was merged or pages were returned."""
        return self.decision.runs or any(merged.segments_before != merged.segments_after for merged in self.merged)

    @property
    def already_done(self) -> bool:
        """Whether there was nothing to do; an index that had to be left alone is not done."""
        return not self.changed and not any(merged.skipped for merged in self.merged)

    def lines(self) -> tuple[str, ...]:
        """The report for people."""
        before, after = self.plan.sizes, self.sizes
        if self.already_done:
            first = f"Nothing to do: {self.plan.path} is optimized already."
        elif not self.changed:
            first = f"Nothing could be done for {self.plan.path}."
        else:
            work = self.times.merge + self.times.reclaim + self.times.checkpoint
            first = f"Optimized {self.plan.path} in {work:.1f} s."
            if self.mode == "forced":
                first = f"Rewrote {self.plan.path} in place in {work:.1f} s, and did nothing else."
        lines = [
            first,
            f"Size: {human_bytes(before.file_bytes + before.wal_bytes)} before, "
            f"{human_bytes(after.file_bytes + after.wal_bytes)} after (WAL included).",
        ]
        if self.plan.litestream.found and after.wal_bytes and self.mode == "exclusive":
            lines.append(WAL_KEPT)
        lines.extend(_merged_line(merged) for merged in self.merged)
        lines.append(self.decision.line())
        if self.copy is not None:
            lines.append(
                f"The copy was compared row by row: {plural(self.copy.rows, 'row')} in "
                f"{plural(self.copy.tables, 'table')}."
            )
        checks = self.times.checks_before + self.times.checks_after
        lines.append(f"Checks: {self._checks_line()} ({checks:.1f} s, without the lock).")
        return tuple(lines)

    def _checks_line(self) -> str:
        pages = "pages sound before and after" if self.after is not None else "pages sound before"
        if self.before is None or not self.before.indexes_checked:
            return f"{pages}; search indexes not checked"
        damaged = len(self.before.indexes)
        said = f"{plural(damaged, 'search index', 'search indexes')} damaged" if damaged else "search indexes sound"
        return f"{pages}; {said}"

    def _copy(self) -> dict[str, int] | None:
        return self.copy.document() if self.copy else None


def make_plan(ctx: Context, choices: Choices, scan: Scan | None = None) -> OptimizePlan:
    """Read the store and say what would be done. NotAStore when the file is none."""
    with reading(ctx) as reader:
        dialect_of(reader)
        return look(reader, choices, scan)


def require_store(ctx: Context) -> None:
    """Raise NotAStore when the file is none, before it is opened in any other way: it belongs to another program."""
    with reading(ctx) as reader:
        dialect_of(reader)


def optimize(ctx: Context, choices: Choices, *, announce: Callable[[OptimizePlan], None]) -> OptimizeReport:
    """Do it, alone on the store. `announce` gets the plan before anything is checked or changed."""
    require_store(ctx)
    require_alone(ctx, VERB)
    plan = make_plan(ctx, choices)
    announce(plan)
    times = Times()
    with checked_and_alone(ctx, VERB, times, quick=choices.quick) as (alone, before):
        started = ctx.clock.monotonic()
        work = _Work(ctx, alone.store, choices, before, times)
        work.run()
    times.locked = ctx.clock.monotonic() - started
    after = check_after(ctx, times, quick=choices.quick, what="the rewrite") if work.changed else None
    return OptimizeReport(
        plan=plan,
        mode="exclusive",
        before=before,
        after=after,
        merged=tuple(work.merged),
        decision=work.decision,
        copy=work.copy,
        statistics=work.statistics,
        sizes=work.sizes,
        times=times,
        warnings=index_warnings(before, ctx),
    )


def check_after(ctx: Context, times: Times, *, quick: bool, what: str) -> Verdict:
    """Check what `what` left; raises Corrupt when it is not sound."""
    after, _stamp = check(ctx, quick=quick)
    times.checks_after = after.seconds
    require_sound(ctx.db, after, when=f"after {what}")
    return after


def require_alone(ctx: Context, verb: str) -> None:
    """Be refused now when the store is in use: nobody should wait for the check of a large file to learn that."""
    with exclusive(ctx, verb):
        pass


@contextmanager
def checked_and_alone(
    ctx: Context, verb: str, times: Times, *, quick: bool, nul_rule: NulRule = NulRule.NATIVE
) -> Iterator[tuple[Alone, Verdict]]:
    """The store under its exclusive lock, in the very state that was checked just before."""
    for _ in range(TRIES):
        verdict, checked = check(ctx, quick=quick)
        times.checks_before += verdict.seconds
        require_sound(ctx.db, verdict, when="before anything was changed")
        with exclusive(ctx, verb, nul_rule=nul_rule) as alone:
            if _same(alone, checked):
                yield alone, verdict
                return
    raise LockTimeout(
        f"{ctx.db} was written to between its check and the exclusive lock, {TRIES} times in a row. "
        "Nothing was changed.",
        hint="Stop the programs that use it, and run it again.",
        path=ctx.db,
        holders=(),
        waited_seconds=0.0,
    )


def _same(alone: Alone, checked: Stamp) -> bool:
    return stamp(alone.store) == checked


class _Work:
    """The steps under the lock, and what they left."""

    def __init__(self, ctx: Context, store: ExclusiveStore, choices: Choices, before: Verdict, times: Times) -> None:
        self._ctx = ctx
        self._store = store
        self._choices = choices
        self._before = before
        self._times = times
        self.merged: list[Merged] = []
        self.copy: CopyReport | None = None

    def run(self) -> None:
        """All steps, in order."""
        clock = self._ctx.clock
        plan = look(self._store, self._choices)
        self._store.keep_wal = plan.litestream.found
        require_room(plan.rooms, what="Optimizing this store")
        tables = row_tables(self._store)
        rows = row_counts(self._store, tables)
        started = clock.monotonic()
        for index in plan.indexes:
            self.merged.append(merge_index(self._ctx, self._store, index, self._before, merge_alone))
        self._times.merge = clock.monotonic() - started
        started = clock.monotonic()
        self._return_pages()
        self._times.reclaim = clock.monotonic() - started
        self.statistics = plan.statistics
        if plan.statistics == "refresh":
            self._store.statement("ANALYZE", doing="refreshing the planner statistics of")
            self.statistics = "refreshed"
        started = clock.monotonic()
        self._store.checkpoint("truncate")
        self._times.checkpoint = clock.monotonic() - started
        require_same_counts(self._store.path, rows, row_counts(self._store, tables))
        self.sizes = sizes(self._store)

    @property
    def changed(self) -> bool:
        """Whether anything was written, so that there is something to check again."""
        merged = any(index.transactions for index in self.merged)
        return merged or self.decision.runs or self.statistics == "refreshed"

    def _return_pages(self) -> None:
        found = sizes(self._store)
        self.decision = decide(found, self._choices.reclaim, self._choices.above_percent)
        if not self.decision.runs:
            return
        mode = self._store.journal_mode
        require_room(
            room_for(self._store.path, found, self._choices, runs=True, journal_mode=mode, merge_bytes=0),
            what="Returning the free pages",
        )
        with progress(found.used_bytes, "returning free pages") as bar:
            if self._choices.method == "copy":
                self.copy = reclaim.via_copy(
                    self._store,
                    self._ctx.clock,
                    lambda _step: bar.advance(BYTES_A_CALL),
                    phase=lambda name: bar.restart(None, name),
                )
            else:
                way = reclaim.in_place if self._choices.reclaim == "auto" else reclaim.vacuum
                way(self._store, found, lambda _step: bar.advance(BYTES_A_CALL))


def merge_index(ctx: Context, store: Store, index: IndexState, before: Verdict, merge: Merge) -> Merged:
    """Merge one index, or say why it is left alone."""
    if index.name in before.indexes:
        return left_alone(index, "it is damaged")
    if index.problem or index.merged:
        return left_alone(index, index.problem)
    page = store.page_size
    with progress(index.bytes, f"merging {index.name}") as bar:
        try:
            return merge(store, index, ctx.clock, lambda pages: bar.advance(pages * page))
        except Corrupt as error:
            if not error.facts.get("search_index"):
                raise
            return left_alone(index, "it is damaged")


def _merged_line(merged: Merged) -> str:
    if merged.skipped:
        return f"{merged.name}: not merged, because {merged.skipped}."
    if merged.segments_before == merged.segments_after:
        return f"{merged.name}: merged already."
    return f"{merged.name}: {merged.segments_before} segments merged into {merged.segments_after}."


def index_warnings(verdict: Verdict | None, ctx: Context) -> tuple[str, ...]:
    """What to say about damaged search indexes."""
    if verdict is None:
        return ()
    return tuple(
        f"The search index {name} is damaged and was not merged: run `hermes-state doctor --db {shell_word(ctx.db)}`."
        for name in sorted(verdict.indexes)
    )
