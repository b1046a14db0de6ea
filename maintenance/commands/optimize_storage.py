"""`hermes-state sessions optimize-storage`: options in, report out; the work is in `maintenance.space.storage`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.space.optimize import OptimizeReport
    from maintenance.space.optimize_plan import OptimizePlan
    from maintenance.space.storage.flow import StorageReport
    from maintenance.space.storage.plan import Switch

HELP = """Convert the search indexes to hermes-agent's smaller layout.

What changes on disk: the two full-text indexes are built anew so that they no longer store every text a second and
third time, and leave out tool output beyond 8192 characters and, for parts of words, tool output, scheduled jobs and
delegates. Freed pages go back to the file system. Conversations are not touched. A run that was stopped goes on when
it is started again.

Lock: SQLite's exclusive lock for the whole run; the plan says for about how long. Programs started meanwhile cannot
open the store. Refused while other processes hold it. With --force beside holders: one VACUUM in place, nothing else.

Left alone: files older than schema 16 (open them once with hermes-agent 0.17.0), and an index `messages_fts_cjk`.

--trigram off empties the index for parts of words: hermes-agent then finds no CJK text and no parts of words. It asks.

\b
Example:
  hermes sessions optimize-storage --dry-run
  hermes sessions optimize-storage
  hermes sessions optimize-storage --trigram off

Exit: 0 done, 1 refused or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command(
    "optimize-storage", help=HELP, short_help="Convert the search indexes to hermes-agent's smaller layout."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing. Never refused.")
@click.option("--no-vacuum", is_flag=True, help="Leave the freed pages in the file.")
@click.option("--force", is_flag=True, help="Beside holders run one VACUUM in place, and convert nothing.")
@click.option("--rebuild", is_flag=True, help="Build both indexes anew although the file has the layout already.")
@click.option("--trigram", type=click.Choice(["on", "off"]), help="Switch the index for parts of words and CJK text.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --trigram off.")
@store_options
def command(
    ctx: Context, *, dry_run: bool, no_vacuum: bool, force: bool, rebuild: bool, trigram: Switch | None, yes: bool
) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from lockowners import holders
    from maintenance.plan import confirm
    from maintenance.space.optimize import require_alone
    from maintenance.space.optimize_online import make_forced_plan
    from maintenance.space.storage.flow import VERB, already_done, make_plan, optimize_storage
    from maintenance.space.storage.plan import StorageChoices

    choices = StorageChoices(trigram=trigram, vacuum=not no_vacuum, rebuild=rebuild)
    scan = holders(ctx.db) if dry_run else None
    if dry_run and force and scan is not None and scan.holders:
        make_forced_plan(ctx, scan).shown(online=False).answer(as_json=ctx.json)
        return 0
    if force and not dry_run:
        beside = _vacuum_beside_holders(ctx)
        if beside is not None:
            _print_report(ctx, beside)
            return 0
    if not dry_run and not force and not already_done(ctx, choices):
        require_alone(ctx, VERB)
    plan = make_plan(ctx, choices, scan)
    shown = plan.shown()
    if dry_run:
        shown.answer(as_json=ctx.json)
        return 0
    loses_search = plan.state.trigram and not plan.trigram_after
    if loses_search:
        question = "hermes-agent will find no CJK text and no parts of words. Go on?"
        if not confirm(shown, yes=yes, question=question, quiet=ctx.json):
            click.echo("Nothing was changed.", err=True)
            return 1
    elif not ctx.json and not plan.nothing_to_do:
        shown.show(sys.stderr)
    _print_report(ctx, optimize_storage(ctx, plan))
    return 0


def _print_report(ctx: Context, report: StorageReport | OptimizeReport) -> None:
    from maintenance.output.documents import print_json

    if ctx.json:
        print_json({"dry_run": False} | report.document())
        return
    for line in report.lines():
        click.echo(line)
    for warning in report.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _vacuum_beside_holders(ctx: Context) -> OptimizeReport | None:
    from dataclasses import replace

    from maintenance.space.optimize_online import vacuum_beside_holders
    from maintenance.space.storage.flow import VERB

    def announce(plan: OptimizePlan) -> None:
        if not ctx.json:
            plan.shown(online=False).show(sys.stderr)

    report = vacuum_beside_holders(ctx, VERB, announce=announce)
    if report is None:
        return None
    return replace(report, warnings=(*report.warnings, "Nothing was converted."))
