"""What `sessions import` does between its options and its report: look, plan, ask, merge, verify.

Invariant: nothing is written before every file was read through once and the plan was agreed to; what can be imported
is imported, and what cannot is named with its line. Running it again, after a kill or with a file that grew, adds only
what is missing.

Not for: reading (`detect` finds the sources) or writing (`merge`). Stopping at the first bad line was rejected: a torn
line in the middle of a transcript would keep the rest of it out for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hermes_state.engine.core import identity
from maintenance.gate import preflight, reading
from maintenance.intake.absent import AbsentStore
from maintenance.intake.detect import Found, Wanted, sources_of
from maintenance.intake.merge import Merger
from maintenance.intake.model import Looked, Source
from maintenance.intake.report import add_up, document, lines_of, show_problems
from maintenance.intake.underway import Merged, Planned
from maintenance.output.documents import print_json
from maintenance.output.progress import progress
from maintenance.output.text import plural, safe_text
from maintenance.plan import Plan, confirm

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from maintenance.context import Context

VERB = "sessions import"
VERIFY_FAILED = 3


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How an import was asked for."""

    files: tuple[Path, ...]  # files and folders
    wanted: Wanted  # what wrote them
    source_name: str | None  # the source that new sessions get instead of their own
    dry_run: bool  # stop after the plan
    yes: bool  # no question
    allow_partial: bool  # exit 0 although something could not be imported
    verify: bool  # read everything again and compare
    new: bool  # make the store if there is none


def run(ctx: Context, wishes: Wishes) -> int:
    """The whole import; gives the exit status."""
    from hermes_state.store import open_store

    make = wishes.new and not ctx.db.exists()
    if not make:
        with reading(ctx) as target:
            identity(target)  # refuses what is no native store before any file is read
        preflight(ctx, VERB, beside=True)
    found = sources_of(wishes.files, wishes.wanted, ctx.db, ctx.clock)
    sources = found.sources
    if not ctx.json:
        for path, reason in found.skipped.items():
            click.echo(safe_text(f"Skipped: {reason if str(path) in reason else f'{path}: {reason}'}"), err=True)
    looked = _look(sources)
    planned = None
    if make:  # nothing is made before somebody agreed, not even the store
        planned = _merge(AbsentStore(ctx.db, ctx.clock), wishes, sources, looked, write=False, label="comparing")
        if wishes.dry_run:
            return _answer(ctx, wishes, found, looked, planned)
        if not _agreed(ctx, wishes, sources, looked, planned):
            return 1
    with open_store(path=ctx.db, read_only=wishes.dry_run, clock=ctx.clock) as store:
        if planned is None:
            planned = _merge(store.core, wishes, sources, looked, write=False, label="comparing")
            if wishes.dry_run:
                return _answer(ctx, wishes, found, looked, planned)
            if not _agreed(ctx, wishes, sources, looked, planned):
                return 1
        merged = _merge(store.core, wishes, sources, looked, write=True, label="importing")
        compared = None
        if wishes.verify:
            compared = _merge(store.core, wishes, sources, looked, write=False, label="verifying")
    return _answer(ctx, wishes, found, looked, merged, compared)


def _look(sources: Sequence[Source]) -> list[Looked]:
    with progress(len(sources), "reading files") as bar:
        looked = []
        for source in sources:
            looked.append(source.look())
            bar.advance(1)
    return looked


def _merge(
    core: Core | AbsentStore, wishes: Wishes, sources: Sequence[Source], looked: Sequence[Looked], *, write: bool,
    label: str,
) -> list[Merged]:
    total = sum(one.tally.messages for one in looked)
    planned: Planned = {}  # what the files before would bring: nothing of it is new in the next one
    with progress(total, f"{label} messages") as bar:
        return [
            Merger(
                core, source, one, write=write, source_name=wishes.source_name, advance=bar.advance, planned=planned
            ).run()
            for source, one in zip(sources, looked, strict=True)
        ]


def _agreed(
    ctx: Context, wishes: Wishes, sources: Sequence[Source], looked: Sequence[Looked], planned: Sequence[Merged]
) -> bool:
    """Whether to go on. With nothing new there is nothing to ask; an import that was killed before its last step is
    still finished."""
    total = add_up(planned)
    plan = _plan(ctx, sources, looked, planned)
    new = bool(total.messages_new or total.sessions_new)
    if new and not confirm(plan, yes=wishes.yes, question="Import them?", quiet=ctx.json):
        click.echo("Nothing was imported.", err=True)
        return False
    return True


def _plan(ctx: Context, sources: Sequence[Source], looked: Sequence[Looked], planned: Sequence[Merged]) -> Plan:
    total = add_up(planned)
    title = (
        f"Import {plural(total.messages_new, 'message')} and {plural(total.sessions_new, 'session')} into {ctx.db}:"
    )
    return Plan(title=title, lines=tuple(lines_of(sources, looked, planned)))


def _answer(
    ctx: Context, wishes: Wishes, found: Found, looked: Sequence[Looked], merged: Sequence[Merged],
    compared: Sequence[Merged] | None = None,
) -> int:
    sources = found.sources
    total = add_up(merged)
    different = None if compared is None else sum(one.messages_new + one.sessions_new for one in compared)
    incomplete = bool(total.problems or any(one.tally.problems for one in looked))
    if ctx.json:
        facts: dict[str, Any] = document(sources, looked, merged)
        messages = sum(one.tally.messages for one in looked)
        verified = None if compared is None else {"messages": messages, "missing": different}
        skipped = [{"path": path, "reason": reason} for path, reason in found.skipped.items()]
        print_json(
            {"dry_run": wishes.dry_run, "path": ctx.db} | facts | {"skipped": skipped, "verified": verified}
        )
    else:
        _tell(ctx, wishes, sources, looked, merged, different)
    show_problems(looked, merged, sources, json=ctx.json)
    if different:
        return VERIFY_FAILED
    return 1 if incomplete and not wishes.allow_partial and not wishes.dry_run else 0


def _tell(
    ctx: Context, wishes: Wishes, sources: Sequence[Source], looked: Sequence[Looked], merged: Sequence[Merged],
    different: int | None,
) -> None:
    total = add_up(merged)
    counts = f"{plural(total.messages_new, 'message')} and {plural(total.sessions_new, 'session')}"
    if wishes.dry_run:
        click.echo(safe_text(f"Would import {counts} into {ctx.db}:"))
    elif total.messages_new or total.sessions_new:
        click.echo(safe_text(f"Imported {counts} into {ctx.db}:"))
    else:
        click.echo(safe_text(f"Already done: everything that can be imported is in {ctx.db}:"))
    for line in lines_of(sources, looked, merged):
        click.echo(f"  {safe_text(line)}")
    if different is not None:
        count = sum(one.tally.messages for one in looked)
        click.echo(
            f"Verified: {plural(count, 'message')} compared, all there." if not different
            else f"Verification failed: of {plural(count, 'message')} compared, {different} differ or are missing."
        )
