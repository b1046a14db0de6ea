"""`sessions optimize --online` and `--force`: what can be done while other processes use the store.

Invariant: `--online` works in short transactions with pauses between them, never truncates or rewrites, and leaves what
it cannot do said. `--force` runs one in-place VACUUM in normal locking mode and nothing else.

Not for: a store that nobody uses (`optimize`). A TRUNCATE checkpoint beside others was rejected: with a reader it only
waits (measured: busy for the whole timeout beside Litestream), and doing it on a schedule coincided with damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from maintenance.gate import Forced, exclusive, online
from maintenance.output.progress import progress
from maintenance.space.disk import require_room, rooms
from maintenance.space.merge import left_alone, merge_online
from maintenance.space.optimize import (
    VERB,
    OptimizeReport,
    Times,
    check_after,
    index_warnings,
    make_plan,
    merge_index,
    optimize,
    require_store,
)
from maintenance.space.optimize_plan import LEFT_AS_THEY_ARE, Choices, OptimizePlan
from maintenance.space.reclaim import decide_online, in_steps, needs
from maintenance.space.sizes import sizes
from maintenance.space.verify import Verdict, check, require_sound

if TYPE_CHECKING:
    from lockowners import Scan
    from maintenance.context import Context

# Beside holders the file is rewritten whatever its share of free pages, so there must be room for it.
FORCED = Choices(reclaim="always")


def make_forced_plan(ctx: Context, scan: Scan) -> OptimizePlan:
    """What `--force` would do beside these holders."""
    return make_plan(ctx, FORCED, scan).beside_holders()


def optimize_online(
    ctx: Context, choices: Choices, *, announce: Callable[[OptimizePlan], None]
) -> OptimizeReport:
    """Merge search indexes and return free pages in small steps, beside whoever uses the store."""
    plan = make_plan(ctx, choices)
    announce(plan)
    times = Times()
    before, _stamp = check(ctx, quick=choices.quick)
    times.checks_before = before.seconds
    require_sound(ctx.db, before, when="before anything was changed")
    clock = ctx.clock
    with online(ctx, VERB) as opened:
        store = opened.store
        started = clock.monotonic()
        merged = tuple(merge_index(ctx, store, index, before, merge_online) for index in plan.indexes)
        times.merge = clock.monotonic() - started
        started = clock.monotonic()
        found = sizes(store)
        decision = decide_online(found, choices.reclaim, plan.auto_vacuum)
        if decision.runs:
            with progress(found.free_pages, "returning free pages") as bar:
                in_steps(store, clock, bar.advance)
        times.reclaim = clock.monotonic() - started
        started = clock.monotonic()
        store.checkpoint("passive")
        times.checkpoint = clock.monotonic() - started
        after_sizes = sizes(store)
    after = check_after(ctx, times, quick=choices.quick, what="the work")
    return OptimizeReport(
        plan=plan,
        mode="online",
        before=before,
        after=after,
        merged=merged,
        decision=decision,
        copy=None,
        statistics=LEFT_AS_THEY_ARE,
        sizes=after_sizes,
        times=times,
        warnings=index_warnings(before, ctx),
    )


def optimize_forced(ctx: Context, choices: Choices, *, announce: Callable[[OptimizePlan], None]) -> OptimizeReport:
    """Run alone when that is possible after all; beside holders only an in-place VACUUM, with the gate's warning."""
    beside = vacuum_beside_holders(ctx, VERB, announce=announce)
    return beside if beside is not None else optimize(ctx, choices, announce=announce)


def vacuum_beside_holders(
    ctx: Context, verb: str, *, announce: Callable[[OptimizePlan], None]
) -> OptimizeReport | None:
    """What `--force` does beside holders: one VACUUM in place. None when nobody holds the store after all."""
    require_store(ctx)
    with exclusive(ctx, verb, force=True) as opened:
        if not isinstance(opened, Forced):
            return None
        plan = make_forced_plan(ctx, opened.scan)
        before, _stamp = check(ctx, quick=True)
        require_sound(ctx.db, before, when="before anything was changed")
        report = _vacuum_only(ctx, opened, plan, before, announce)
    return replace(report, after=check_after(ctx, report.times, quick=True, what="the work"))


def _vacuum_only(
    ctx: Context, opened: Forced, plan: OptimizePlan, before: Verdict, announce: Callable[[OptimizePlan], None]
) -> OptimizeReport:
    announce(plan)
    times = Times(checks_before=before.seconds)
    found = plan.sizes
    require_room(
        rooms(needs(ctx.db, found, method="vacuum", journal_mode=plan.journal_mode, merge_bytes=0)),
        what="The rewrite",
    )
    started = ctx.clock.monotonic()
    with progress(None, "rewriting the file"):
        opened.store.vacuum()
    times.reclaim = times.locked = ctx.clock.monotonic() - started
    after_sizes = sizes(opened.store)
    return OptimizeReport(
        plan=plan,
        mode="forced",
        before=before,
        after=None,
        merged=tuple(left_alone(index, "other processes have the store open") for index in plan.indexes),
        decision=plan.decision,
        copy=None,
        statistics=plan.statistics,
        sizes=after_sizes,
        times=times,
        warnings=(opened.warning,),
    )
