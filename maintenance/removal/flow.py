"""What every deleting verb does between its options and its work: plan, refuse, ask, run, report.

Invariant: the order. A dry run stops after the plan; no holder refuses it, but damage or a full disk that would stop
the run is said. Holders refuse before the question, so nobody answers in vain; a sweep over more than half of the store
needs a second, typed answer, and `--yes` alone is not one. When the work stops half way, what was
done is said before the error.

Not for: choosing or deleting.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hermes_state.errors import Refused
from maintenance.gate import preflight, readable_wal
from maintenance.ledger import ledger_path
from maintenance.output.documents import print_json
from maintenance.output.text import human_bytes, plural, safe_text
from maintenance.plan import Plan, ask, confirm
from maintenance.removal.describe import kept_facts, make_plan
from maintenance.removal.record import Record
from maintenance.removal.room import require_room_to_delete
from maintenance.removal.sweep import SweepReport, require_sound_pages, sweep
from maintenance.space.litestream import WAL_KEPT

if TYPE_CHECKING:
    from maintenance.context import Context
    from maintenance.removal.choice import Choice
    from maintenance.space.reclaim import Policy


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a deleting verb was asked to work."""

    # The verb, as in `maintenance.verbs`.
    verb: str
    # Why, for the ledger.
    reason: str
    # Stop after the plan.
    dry_run: bool
    # No question.
    yes: bool
    # Beside other programs.
    online: bool
    # `--yes` also covers a sweep over more than half of the store.
    allow_large: bool
    # Whether free pages are returned afterwards.
    reclaim: Policy
    # A sweep asks again when it is large; named sessions do not.
    sweeps: bool


def run(ctx: Context, choice: Choice, manner: Manner) -> int:
    """Everything after the choice; gives the exit status."""
    plan = make_plan(
        choice,
        ctx.clock,
        online=manner.online,
        everything=manner.dry_run,
        reclaim=manner.reclaim,
        ledger=ledger_path(ctx.db).name,
    )
    if manner.dry_run:
        plan.answer(as_json=ctx.json)
        if choice.ids:
            readable_wal(ctx, manner.verb)
            require_sound_pages(ctx)
            require_room_to_delete(choice, beside=manner.online)
        return 0
    if not choice.ids and not choice.left_behind:
        if ctx.json:
            print_json({"dry_run": False, "already_done": True} | dict(plan.facts))
        else:
            plan.show()
        return 0 if choice.goal is None or choice.goal.reachable else 1
    if not _may_go_on(ctx, choice, manner, plan):
        click.echo("Nothing was deleted.", err=True)
        return 1
    record = Record(
        db=ctx.db, verb=manner.verb, reason=manner.reason, filters=choice.named(), clock=ctx.clock
    )
    report = SweepReport()
    try:
        sweep(ctx, manner.verb, choice, record, report, beside=manner.online, policy=manner.reclaim)
    except BaseException:
        _say_how_far(ctx, choice, manner, report)
        raise
    if ctx.json:
        print_json(outcome_facts(ctx, choice, manner, report, finished=True))
    else:
        for line in _outcome_lines(ctx, choice, manner, report):
            click.echo(safe_text(line))
    return 0 if within_size(choice, report) is not False else 1


def within_size(choice: Choice, report: SweepReport) -> bool | None:
    """Whether the store ended within --max-size; None without one, or when its size is not known."""
    if choice.goal is None or report.sizes is None:
        return None
    return report.sizes.used_bytes <= choice.goal.max_bytes


def _may_go_on(ctx: Context, choice: Choice, manner: Manner, plan: Plan) -> bool:
    preflight(ctx, manner.verb, beside=manner.online)
    require_room_to_delete(choice, beside=manner.online)
    large = manner.sweeps and choice.is_large
    count = len(choice.ids)
    if large and manner.yes and not manner.allow_large:
        raise Refused(
            f"This would delete {count} of the {choice.total_sessions} sessions in {ctx.db}, more than half. "
            "--yes alone does not cover that. Nothing was deleted.",
            hint="Look at it with --dry-run; then add --allow-large, or leave --yes away and type the answer.",
            path=ctx.db,
            session_count=count,
            store_session_count=choice.total_sessions,
        )
    if not choice.ids:
        return True  # what an earlier run was told to delete is finished without asking again
    if not agreed(ctx, plan, yes=manner.yes, question=f"Delete {plural(count, 'session')}?"):
        return False
    if not large or manner.yes:
        return True
    return ask(f"That is more than half of the {choice.total_sessions} sessions in {ctx.db.name}.", answer=str(count))


def agreed(ctx: Context, plan: Plan, *, yes: bool, question: str) -> bool:
    """Show the plan and ask; with --json and nobody to ask, stderr stays the one JSON object of the refusal."""
    if ctx.json and not yes and not sys.stdin.isatty():
        return ask(question)
    return confirm(plan, yes=yes, question=question, quiet=ctx.json)


def _say_how_far(ctx: Context, choice: Choice, manner: Manner, report: SweepReport) -> None:
    removed = report.removed
    if not removed.transactions:
        return
    if ctx.json:
        # stderr is for the one object that says why it stopped.
        print_json(outcome_facts(ctx, choice, manner, report, finished=False))
    else:
        sys.stderr.write(
            f"Stopped after {plural(len(removed.ids), 'session')} and {plural(removed.counts.messages, 'message')}. "
            "The store is whole; the same command goes on from here.\n"
        )


def outcome_facts(
    ctx: Context, choice: Choice, manner: Manner, report: SweepReport, *, finished: bool
) -> Mapping[str, Any]:
    """The outcome for programs; of a run that an error stopped, what it did until then."""
    removed = report.removed
    return {
        "dry_run": False,
        "already_done": False,
        "finished": finished,
        "path": str(ctx.db),
        "mode": "online" if manner.online else "exclusive",
        "filters": dict(choice.named()),
        "session_count": len(removed.ids),
        "message_count": removed.counts.messages,
        "other_rows": dict(removed.counts.others),
        "detached_count": removed.counts.detached,
        "file_count": removed.files,
        "files_left": list(report.files_left),
        "sessions": list(removed.ids),
        "already_gone": list(removed.already_gone),
        "kept": kept_facts([*choice.units.kept, *removed.kept]),
        "reclaim": report.decision.document() if report.decision else None,
        "sizes_before": choice.sizes.document(),
        "sizes_after": report.sizes.document() if report.sizes else None,
        "within_size_limit": within_size(choice, report),
        "transaction_count": removed.transactions,
        "longest_hold_seconds": round(removed.longest_hold_seconds, 4),
        "finished_earlier_deletion": choice.left_behind,
        "settled_run_count": report.settled.runs,
        "settled_file_count": report.settled.files,
        "ledger": str(ledger_path(ctx.db)),
    }


def _outcome_lines(ctx: Context, choice: Choice, manner: Manner, report: SweepReport) -> list[str]:
    removed = report.removed
    lines = [
        f"Deleted {plural(len(removed.ids), 'session')} and {plural(removed.counts.messages, 'message')} from {ctx.db}."
    ]
    if choice.left_behind:
        lines.append("Removed the rows that an interrupted deletion had left; nobody could see them any more.")
    if removed.files or report.settled.files:
        lines.append(f"Removed {plural(removed.files + report.settled.files, 'file')} beside it.")
    lines += [f"Not removed: {left}." for left in report.files_left]
    if removed.counts.detached:
        kept = plural(removed.counts.detached, "session that came", "sessions that came")
        lines.append(f"Kept {kept} from them; the link to the parent is cleared.")
    lines += [f"Kept {one.unit.tip}: {one.reason}." for one in removed.kept]
    if removed.already_gone:
        lines.append(f"{plural(len(removed.already_gone), 'session')} had gone meanwhile: something else deleted them.")
    if report.settled.runs:
        lines.append(f"Closed {plural(report.settled.runs, 'interrupted run')} in the ledger.")
    if manner.sweeps and report.decision is not None and report.sizes is not None:
        before, after = choice.sizes, report.sizes
        lines.append(report.decision.line())
        if choice.dialect.is_native and manner.online:
            lines.append(
                f"File: {human_bytes(before.file_bytes)} before, {human_bytes(after.file_bytes)} after; the WAL "
                f"({human_bytes(after.wal_bytes)}) is used again."
            )
        else:
            lines.append(
                f"Size: {human_bytes(before.file_bytes + before.wal_bytes)} before, "
                f"{human_bytes(after.file_bytes + after.wal_bytes)} after (WAL included)."
            )
        if choice.litestream.found and after.wal_bytes and not manner.online:
            lines.append(WAL_KEPT)
    if choice.goal is not None and report.sizes is not None and within_size(choice, report) is False:
        rest = human_bytes(report.sizes.used_bytes)
        limit = human_bytes(choice.goal.max_bytes)
        why = "run it again" if choice.goal.reachable else "what is left may not go: --dry-run lists why"
        lines.append(f"The file still holds {rest}, above --max-size {limit}: {why}.")
    return lines
