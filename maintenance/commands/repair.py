"""`hermes-state sessions repair`: options in, plan and report out; the work is in `maintenance.repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hermes_state.errors import InvalidInput
from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.plan import Plan
    from maintenance.repair.report import RepairReport

HELP = """Build damaged indexes, search indexes and schema entries again from the rows.

Works on a private copy that is checked after each step: pages, foreign keys, and every row of every table against what
it was. Only a copy that is sound and has the same rows takes the store's place, by SQLite's own means and on the same
inode. A repair that would lose a row is thrown away. Damage of the rows themselves is not repaired (exit 65): run what
is named then, `hermes-state sessions recover`.

What changes on disk: the damaged indexes, the list of free pages, entries of the schema that SQLite cannot use; of a
native store the file search.db. The damaged store is kept once for each distinct damage, in a folder beside it
(NAME.hermes-state.damaged-*). What was tried is remembered in NAME.hermes-state.repairs.json; the same damage is
tried three times at most.

Lock: none while the copy is made and repaired; then SQLite's exclusive lock for the replacement. Refused while other
processes have the store open, with their names, and while another repair runs.

Left alone: every row, ids, titles, journal mode, page size, permission bits.

\b
Example:
  hermes sessions repair --check-only
  hermes sessions repair --dry-run
  hermes sessions repair --yes

Exit: 0 sound or repaired, 1 refused or failed, 2 usage, 3 --check-only found damage that can be repaired,
65 the rows are damaged, 75 busy.
"""


@click.command("repair", help=HELP, short_help="Build damaged indexes and schema entries again from the rows.")
@click.option("--check-only", is_flag=True, help="Only say what is damaged. Never refused, writes nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, check_only: bool, dry_run: bool, yes: bool) -> int:
    from maintenance.plan import confirm
    from maintenance.repair.flow import repair
    from maintenance.repair.left_open import left_open

    if check_only and dry_run:
        raise InvalidInput("--check-only and --dry-run both change nothing: give only one of them.")
    if check_only:
        found = repair(ctx.db, check_only=True, clock=ctx.clock)
        _show(ctx, found)
        return 3 if found.steps else 0
    planned = repair(ctx.db, dry_run=True, clock=ctx.clock)
    if not dry_run and not planned.steps and left_open(ctx.db):
        # The store is sound because a killed run came that far; this one ends it. Nothing is asked: no row changes.
        _show(ctx, _run(ctx))
        return 0
    if dry_run or not planned.steps:
        if ctx.json:
            _print(planned, dry_run=dry_run)
        elif planned.steps:
            _plan(planned).show()
        else:
            _show(ctx, planned)
        return 0
    if not confirm(_plan(planned), yes=yes, question="Repair it?", quiet=ctx.json):
        click.echo("Nothing was changed.", err=True)
        return 1
    _show(ctx, _run(ctx))
    return 0


def _run(ctx: Context) -> RepairReport:
    from maintenance.output.progress import progress
    from maintenance.repair.flow import repair

    with progress(None, "repairing") as bar:
        return repair(ctx.db, progress=lambda doing: bar.restart(doing.total, doing.doing), clock=ctx.clock)


def _plan(planned: RepairReport) -> Plan:
    from maintenance.plan import Plan

    lines = [finding.sentence for finding in planned.findings]
    lines += [f"Build again: {step.object} ({step.kind})." for step in planned.steps]
    lines.append("A private copy is repaired and compared row by row; only then does it take the store's place.")
    return Plan(title=f"Repair {planned.path}", lines=tuple(lines), facts=planned.document())


def _show(ctx: Context, report: RepairReport) -> None:
    if ctx.json:
        _print(report, dry_run=False)
        return
    for line in _lines(report):
        click.echo(line)
    for warning in report.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _print(report: RepairReport, *, dry_run: bool) -> None:
    from maintenance.output.documents import print_json

    print_json({"dry_run": dry_run} | report.document())


def _lines(report: RepairReport) -> list[str]:
    from maintenance.doctor.findings import repair_command

    if report.outcome == "sound":
        return [f"{report.path} needs no repair: pages, indexes, search indexes and schema are sound."]
    if report.outcome == "checked":
        lines = [finding.sentence for finding in report.findings]
        return [*lines, f"Next: {repair_command(report.path)}"]
    lines = [f"Repaired {report.path}."]
    lines += [f"  {step.object}: {step.how} ({step.kind})." for step in report.steps]
    if report.tables:
        rows = sum(item.rows for item in report.tables.values())
        lines.append(f"  {rows:,} rows of {len(report.tables)} tables are the same as before.")
    if report.kept is not None:
        when = "An earlier attempt has kept" if report.kept_before else "Kept"
        lines.append(f"  {when} the damaged store as {report.kept}.")
    return lines
