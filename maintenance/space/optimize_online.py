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

from hermes_state.errors import Corrupt
from maintenance.gate import Forced, exclusive, online
from maintenance.output.progress import progress
from maintenance.space.disk import require_room, rooms
from maintenance.space.merge import Merged, left_alone, merge_online
from maintenance.space.optimize import VERB, OptimizeReport, Times, index_warnings, make_plan, optimize
from maintenance.space.optimize_plan import Choices, OptimizePlan
from maintenance.space.reclaim import INCREMENTAL, STEP_PAGES, Decision, needs
from maintenance.space.segments import IndexState
from maintenance.space.sizes import sizes
from maintenance.space.verify import Verdict, check, require_sound

if TYPE_CHECKING:
    from hermes_state.engine import Store
    from maintenance.context import Context

# Between two steps of the vacuum others get the write lock.
_PAUSE_SECONDS = 0.004


def optimize_online(
    ctx: Context, choices: Choices, *, announce: Callable[[OptimizePlan], None]
) -> OptimizeReport:
    """Merge search indexes and return free pages in small steps, beside whoever uses the store."""
    plan = make_plan(ctx, choices)
    announce(plan)
    times = Times()
    with progress(None, "checking"):
        before, _stamp = check(ctx, quick=choices.quick)
    times.checks_before = before.seconds
    require_sound(ctx.db, before, when="before anything was changed")
    clock = ctx.clock
    with online(ctx, VERB) as opened:
        store = opened.store
        started = clock.monotonic()
        merged = tuple(_merge(ctx, store, index, before) for index in plan.indexes)
        times.merge = clock.monotonic() - started
        started = clock.monotonic()
        decision = _return_pages(ctx, store, plan, choices)
        times.reclaim = clock.monotonic() - started
        started = clock.monotonic()
        store.checkpoint("passive")
        times.checkpoint = clock.monotonic() - started
        after_sizes = sizes(store)
    after = _check_after(ctx, times, quick=choices.quick)
    return OptimizeReport(
        plan=plan,
        mode="online",
        before=before,
        after=after,
        merged=merged,
        decision=decision,
        copy=None,
        statistics="left as they are",
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
    plan = make_plan(ctx, Choices(reclaim="always"))
    before, _stamp = check(ctx, quick=True)
    require_sound(ctx.db, before, when="before anything was changed")
    with exclusive(ctx, verb, force=True) as opened:
        if isinstance(opened, Forced):
            report = _vacuum_only(ctx, opened, plan, before, announce)
        else:
            return None
    after = _check_after(ctx, report.times, quick=True)
    return replace(report, after=after)


def _check_after(ctx: Context, times: Times, *, quick: bool) -> Verdict:
    with progress(None, "checking"):
        after, _stamp = check(ctx, quick=quick)
    times.checks_after = after.seconds
    require_sound(ctx.db, after, when="after the work")
    return after


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
        decision=Decision(
            runs=True,
            free_bytes=found.free_bytes,
            free_share=found.free_share,
            reason="rewritten in place beside other processes, as asked with --force",
        ),
        copy=None,
        statistics="left as they are",
        sizes=after_sizes,
        times=times,
        warnings=(opened.warning,),
    )


def _merge(ctx: Context, store: Store, index: IndexState, before: Verdict) -> Merged:
    if index.name in before.indexes:
        return left_alone(index, "it is damaged")
    if index.problem:
        return left_alone(index, index.problem)
    if index.merged:
        return left_alone(index, "")
    page = store.page_size
    with progress(index.bytes, f"merging {index.name}") as bar:
        try:
            return merge_online(store, index, ctx.clock, lambda pages: bar.advance(pages * page))
        except Corrupt as error:
            if not getattr(error, "search_index", False):
                raise
            return left_alone(index, "it is damaged")


def _return_pages(ctx: Context, store: Store, plan: OptimizePlan, choices: Choices) -> Decision:
    """Give free pages back in steps where the file was made for it."""
    found = sizes(store)
    if choices.reclaim == "never" or plan.auto_vacuum != INCREMENTAL:
        reason = (
            "not returned, as asked with --reclaim never"
            if choices.reclaim == "never"
            else "the file has no incremental vacuum, so its free pages stay until a rewrite with nobody else on it"
        )
        return Decision(runs=False, free_bytes=found.free_bytes, free_share=found.free_share, reason=reason)
    with progress(found.free_pages, "returning free pages") as bar:
        while freed := store.incremental_vacuum(STEP_PAGES):
            bar.advance(freed)
            ctx.clock.sleep(_PAUSE_SECONDS)
    return Decision(
        runs=True,
        free_bytes=found.free_bytes,
        free_share=found.free_share,
        reason="returned in small steps beside other processes",
    )
