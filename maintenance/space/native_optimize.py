"""`sessions optimize` on a native store: compress what is cold, merge the search index, return free pages.

Invariant: everything here runs beside whoever uses the store, in transactions of about 10 ms with rests between them;
each leaves a whole store and is not done again, so a run that was killed goes on where it stopped. Pages are checked
before anything is written and after. `--offline` adds one thing, under the exclusive lock: a VACUUM, when the rows
lie so scattered that incremental vacuum cannot return their room, or when asked for.

Not for: files of hermes-agent (`optimize`). Planner statistics were left out: every statement of the library names the
index that it needs or has only one to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_state import changes, tombstones
from hermes_state.conversation.removal_steps import left_behind, remove_left_behind
from hermes_state.engine.migrate import migrate
from hermes_state.outbox import upkeep
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.owed import has_outbox
from maintenance.dialects.native.scheduled import has_cron
from maintenance.gate import online, preflight, reading
from maintenance.interop.convert.convert import convert
from maintenance.interop.convert.records import Conversion
from maintenance.output.progress import progress
from maintenance.output.text import human_bytes, plural
from maintenance.space import compress as compression
from maintenance.space.compress import Compressed
from maintenance.space.copy_back import copy_back
from maintenance.space.native_plan import NativePlan, Slack, slack
from maintenance.space.native_rewrite import rewrite
from maintenance.space.native_search import SearchWork, tidy_search
from maintenance.space.optimize import VERB, require_alone
from maintenance.space.reclaim import INCREMENTAL, Decision, decide_online, in_steps
from maintenance.space.sizes import Sizes, sizes
from maintenance.space.verify import Verdict, check, require_sound

if TYPE_CHECKING:
    from hermes_state.engine import Store
    from maintenance.context import Context

# Entries of the feed of changes that stay: more than a reader that was away for an evening needs.
FEED_KEPT = 10_000
ROWS_A_STEP = 500


@dataclass(kw_only=True)
class Housekeeping:
    """What was dropped because nobody needs it any more."""

    left_behind: bool = False  # rows of deletions that were interrupted
    changes: int = 0  # entries of the feed of changes
    tombstones: int = 0  # ids that may be used again
    blanked: int = 0  # payloads of obligations that were settled a day ago
    forgotten: int = 0  # settled obligations past their horizon, or too many
    cron: int = 0  # old records of slots and runs, incidents and events of cron

    @property
    def rows(self) -> int:
        """Everything that was dropped."""
        return self.changes + self.tombstones + self.blanked + self.forgotten + self.cron

    def document(self) -> dict[str, int | bool]:
        """The fields of `--json`."""
        return {
            "finished_earlier_deletion": self.left_behind,
            "changes_trimmed": self.changes,
            "tombstones_collected": self.tombstones,
            "obligations_blanked": self.blanked,
            "obligations_forgotten": self.forgotten, "cron_rows_forgotten": self.cron,
        }


@dataclass(frozen=True, kw_only=True)
class NativeReport:
    """What a run did."""

    # What was planned.
    plan: NativePlan
    # Checks before anything was changed, and after; None when they did not run.
    before: Verdict
    after: Verdict
    # Schema steps of this release that the store lacked, by name.
    steps: tuple[str, ...]
    # What adoption kept of hermes-agent's gateway, and what it became.
    converted: Conversion
    # Bodies.
    compressed: Compressed
    # Feed and tombstones.
    housekeeping: Housekeeping
    # The search index; None when the store has none.
    search: SearchWork | None
    # Whether pages were returned.
    decision: Decision
    # Size at the end, and of the search index.
    sizes: Sizes
    search_bytes: int
    # Room inside the pages that holds nothing.
    slack: Slack
    # Whether the file was rewritten as well, under the exclusive lock.
    rewritten: bool = False
    # Seconds of the work, checks apart.
    seconds: float = 0.0
    # Sentences that the user has to know.
    warnings: tuple[str, ...] = field(default=())

    @property
    def already_done(self) -> bool:
        """Whether there was nothing to do."""
        merged = self.search is not None and self.search.changed
        house = self.housekeeping.rows or self.housekeeping.left_behind
        converted = self.converted.rows and not self.converted.already_done and not self.converted.refused
        done = self.steps or self.compressed.rows or merged or house or self.rewritten or converted
        return not (done or self.plan.sizes.free_pages)

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "path": str(self.plan.path),
            "mode": "exclusive" if self.rewritten else "online",
            "already_done": self.already_done,
            "sizes_before": self.plan.sizes.document(),
            "sizes_after": self.sizes.document(),
            "search_bytes_before": self.plan.search_bytes,
            "search_bytes_after": self.search_bytes,
            "compressed": {"mode": self.plan.compress} | self.compressed.document(),
            "search": self.search.document() if self.search else None,
            "reclaim": self.decision.document(),
            "unused_bytes": self.slack.bytes,
            "unused_share": round(self.slack.share, 4),
            "rewritten": self.rewritten,
            "schema_steps_applied": list(self.steps),
            "converted": self.converted.document(),
            "checks_before": self.before.document(),
            "checks_after": self.after.document(),
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
        } | self.housekeeping.document()

    def lines(self) -> tuple[str, ...]:
        """The report for people."""
        before, after, plan = self.plan.sizes, self.sizes, self.plan
        first = f"Optimized {plan.path} in {self.seconds:.1f} s."
        if self.already_done:
            first = f"Nothing to do: {plan.path} is optimized already."
        lines = [
            first,
            f"File: {human_bytes(before.file_bytes)} before, {human_bytes(after.file_bytes)} after; the WAL "
            f"({human_bytes(after.wal_bytes)}) is used again.",
        ]
        if plan.search_bytes or self.search_bytes:
            lines.append(
                f"Search index: {human_bytes(plan.search_bytes)} before, {human_bytes(self.search_bytes)} after."
            )
        done = self.compressed
        if done.rows:
            lines.append(
                f"Compressed {plural(done.rows, 'message')}: {human_bytes(done.raw_bytes)} became "
                f"{human_bytes(done.stored_bytes)}; each was read back and checked."
            )
        dropped = [
            plural(count, *words)
            for count, words in (
                (self.housekeeping.changes, ("old entry of the feed of changes", "old entries of the feed of changes")),
                (self.housekeeping.tombstones, ("tombstone past its time", "tombstones past their time")),
                (self.housekeeping.blanked, ("payload of a settled obligation", "payloads of settled obligations")),
                (self.housekeeping.forgotten, ("settled obligation past its time", "settled obligations past theirs")),
                (self.housekeeping.cron, ("old record of cron", "old records of cron")),
            )
            if count
        ]
        if self.steps:
            lines.append(f"Applied {plural(len(self.steps), 'schema step')}: {', '.join(self.steps)}.")
        lines += self.converted.lines(done=True)
        if dropped:
            last = dropped.pop()
            lines.append(f"Dropped {', '.join(dropped) + ' and ' if dropped else ''}{last}.")
        if self.housekeeping.left_behind:
            lines.append("Removed the rows that an interrupted deletion had left; nobody could see them any more.")
        lines.append(self.decision.line())
        if self.rewritten:
            lines.append("The file was rewritten, alone on it.")
        checks = self.before.seconds + self.after.seconds
        lines.append(f"Checks: pages sound before and after ({checks:.1f} s, without a lock).")
        return tuple(lines)


def optimize_native(
    ctx: Context, plan: NativePlan, *, announce: Callable[[NativePlan], None]
) -> NativeReport:
    """Do what is planned, beside whoever uses the store. Raises Corrupt before anything is written on damage."""
    preflight(ctx, VERB, beside=True)
    announce(plan)
    before, _stamp = check(ctx, quick=True)
    require_sound(ctx.db, before, when="before anything was changed")
    clock = ctx.clock
    started = clock.monotonic()
    with online(ctx, VERB) as opened, progress(None, "optimizing") as bar:
        store = opened.store
        steps = migrate(store, phases=("pre", "post"), clock=clock)
        converted = convert(store, clock)
        compressed = Compressed()
        if plan.cold_before is not None:
            bar.restart(plan.cold_bytes, "compressing")
            compressed = compression.compress(store, plan.cold_before, clock, advance=bar.advance)
        bar.restart(None, "trimming")
        housekeeping = _housekeeping(ctx, store)
        bar.restart(None, "merging the search index")
        search = tidy_search(ctx)
        decision = decide_online(sizes(store), plan.reclaim, plan.auto_vacuum)
        if decision.runs:
            bar.restart(decision.free_bytes // store.page_size, "returning free pages")
            in_steps(store, clock, bar.advance)
        copy_back(store)
        after_sizes = sizes(store)
    seconds = clock.monotonic() - started
    after, _stamp = check(ctx, quick=True)
    require_sound(ctx.db, after, when="after the work")
    with reading(ctx) as reader:
        unused = slack(reader)
    return NativeReport(
        plan=plan,
        before=before,
        after=after,
        steps=tuple(step.name for step in steps),
        converted=converted,
        compressed=compressed,
        housekeeping=housekeeping,
        search=search,
        decision=decision,
        sizes=after_sizes,
        search_bytes=plan.search_size(),
        slack=unused,
        seconds=seconds,
        warnings=_warnings(ctx, compressed, search, unused),
    )


def optimize_native_alone(
    ctx: Context, plan: NativePlan, *, announce: Callable[[NativePlan], None]
) -> NativeReport:
    """The same, and then a rewrite under the exclusive lock when it pays. Refused at once while others hold the "
    "store."""
    require_alone(ctx, VERB)
    report = optimize_native(ctx, plan, announce=announce)
    wanted = report.slack.pays or plan.reclaim == "always" or plan.auto_vacuum != INCREMENTAL
    if plan.reclaim == "never" or not wanted:
        return report
    rewritten = rewrite(ctx)
    with reading(ctx) as reader:
        unused = slack(reader)
    return replace(
        report,
        rewritten=True,
        sizes=rewritten.sizes,
        after=rewritten.after,
        slack=unused,
        seconds=report.seconds + rewritten.seconds,
        warnings=_warnings(ctx, report.compressed, report.search, None),
    )


def _housekeeping(ctx: Context, store: Store) -> Housekeeping:
    """Steps of a few hundred rows, so that a feed nobody trimmed for a year keeps nobody waiting."""
    done = Housekeeping(left_behind=left_behind(store) > 0)
    more = done.left_behind
    while more:
        began = ctx.clock.monotonic()
        with store.transaction() as tx:
            more = remove_left_behind(tx, ROWS_A_STEP)
        ctx.clock.sleep(ctx.clock.monotonic() - began)
    while (have := _feed_length(store)) > FEED_KEPT:
        began = ctx.clock.monotonic()
        with store.transaction() as tx:
            done.changes += changes.trim(tx, max(FEED_KEPT, have - ROWS_A_STEP))
        ctx.clock.sleep(ctx.clock.monotonic() - began)
    more = True
    while more:
        with store.transaction(durability="power") as tx:
            collected = tombstones.collect(tx, ctx.clock.now(), limit=ROWS_A_STEP)
        done.tombstones += len(collected.freed)
        more = collected.more
    more = has_outbox(store.rows)
    while more:
        began = ctx.clock.monotonic()
        with store.transaction() as tx:
            tidied = upkeep.step(tx, at=ctx.clock.now(), limit=ROWS_A_STEP)
        done.blanked += tidied.blanked
        done.forgotten += tidied.forgotten + tidied.forgotten_early
        more = tidied.more
        ctx.clock.sleep(ctx.clock.monotonic() - began)
    if has_cron(store.rows):
        done.cron = _cron_history(ctx, store)
    return done


def _cron_history(ctx: Context, store: Store) -> int:
    """What `cron gc` lets go of by default; how many rows."""
    from cron_store import retention

    before, count, after = ctx.clock.now() - retention.KEEP_DAYS * retention.DAY, 0, ""
    while jobs := retention.jobs(store, after=after, limit=50):
        for job_id in jobs:
            more = True
            while more:
                began = ctx.clock.monotonic()
                with store.transaction() as tx:
                    gone = retention.step(tx, job_id, before=before)
                count, more = count + gone.slots + gone.runs, gone.more
                ctx.clock.sleep(ctx.clock.monotonic() - began)
        after = jobs[-1]
    with store.transaction() as tx:
        return count + retention.last_step(tx, before=before)


def _feed_length(store: Store) -> int:
    """Entries of the feed; its ids follow each other without holes."""
    row = store.row("SELECT max(id) - min(id) + 1 FROM changes")
    return int(row[0] or 0) if row else 0


def _warnings(
    ctx: Context, compressed: Compressed, search: SearchWork | None, unused: Slack | None
) -> tuple[str, ...]:
    said = []
    if compressed.failed:
        which = ", ".join(map(str, compressed.left_alone[:5]))
        said.append(
            f"{plural(compressed.failed, 'message')} did not match the check that was made when it was written, and "
            f"stayed as it is ({which}): run `hermes-state doctor --deep --db {shell_word(ctx.db)}`."
        )
    if search is not None and search.problem:
        said.append(f"The search index was not merged: {search.problem}. Searches work without it.")
    if unused is not None and unused.pays:
        said.append(
            f"{unused.share:.0%} of the room inside the pages is unused, because rows lie scattered. Only a rewrite "
            "returns it: "
            f"stop what uses the store and run `hermes-state sessions optimize --offline --db {shell_word(ctx.db)}`."
        )
    return tuple(said)
