"""`hermes-state sessions captures`: options in, report out; the work is in `maintenance.recovery.captures`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hermes_state.shell_words import shell_word
from maintenance.context import Context, store_options

if TYPE_CHECKING:
    from maintenance.recovery.captures.merge import CaptureRows, MergeReport

HELP = """Show what captures of a lost WAL hold, and merge it.

A capture is the folder STORE.retired-wal-TIME-PID that a process leaves when the files of its store were deleted or
replaced under it: the WAL as it saw it, often the whole store. Without --merge each capture is verified (files, sizes,
SHA-256, salts, checksums) and compared with the store. --merge brings in the sessions and messages that only captures
hold; oldest capture first, each in one transaction. Rows are recognised by what they say, so merging twice is merging
once. Partial, altered and doubtful captures are refused, and captures given in the wrong order.

What changes on disk: nothing; with --merge rows are added, and each merged capture gets a note.

Lock: none to look; with --merge the write lock, beside whoever uses the store. Refused while a process works on deleted
files of it: stop that first.
Left alone: rows that are there, sessions that were deleted since, the captures.

\b
Example:
  hermes sessions captures
  hermes sessions captures --merge
  hermes sessions captures ~/.hermes/state.db.retired-wal-20260913T101500Z-4711 --merge --dry-run

Exit: 0 done, 1 refused or failed, 2 usage, 3 captures hold rows that the store lacks, 65 a capture cannot be used,
75 busy.
"""


@click.command("captures", help=HELP, short_help="Show what captures of a lost WAL hold, and merge it.")
@click.argument("folders", nargs=-1, metavar="[CAPTURE]...", type=click.Path(path_type=Path))
@click.option("--merge", "merging", is_flag=True, help="Bring in what only captures hold.")
@click.option("--dry-run", is_flag=True, help="Say what would be merged; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, folders: tuple[Path, ...], merging: bool, dry_run: bool, yes: bool) -> int:
    from maintenance.plan import Plan, confirm
    from maintenance.recovery.captures.merge import merge

    usable, refused = _usable(ctx, folders)
    if refused and folders:
        raise refused[0]
    look = merge(ctx, usable, dry_run=True, given=bool(folders))
    facts = document(ctx, look, refused)
    lines = tuple(_lines(look, refused))
    if not merging or dry_run:
        Plan(title=_title(ctx, look), lines=lines, facts=facts).answer(as_json=ctx.json) if dry_run else _show(
            ctx, look, lines, facts
        )
        return 65 if refused else 3 if any(one.total or one.left for one in look.captures) and not dry_run else 0
    wanted = [one for one in look.captures if one.total]
    if not look.captures:
        # Not even the write that proves that the store takes writes.
        _show(ctx, look, lines, facts)
        return 65 if refused else 0
    if wanted:
        plan = Plan(title=_title(ctx, look), lines=lines, facts=facts)
        if not confirm(plan, yes=yes, question="Merge them?", quiet=ctx.json):
            click.echo("Nothing was changed.", err=True)
            return 1
    done = merge(ctx, [one.folder for one in look.captures], dry_run=False, given=False)
    _show(ctx, done, tuple(_lines(done, refused)), document(ctx, done, refused))
    return 65 if refused else 0


def _usable(ctx: Context, folders: tuple[Path, ...]) -> tuple[list[Path], list[Any]]:
    """The captures that can be used, and why the others cannot."""
    from hermes_state.errors import CaptureRefused
    from maintenance.recovery.captures.manifest import captures_beside, verify

    usable: list[Path] = []
    refused: list[CaptureRefused] = []
    for folder in folders or captures_beside(ctx.db):
        try:
            verify(folder)
            usable.append(folder)
        except CaptureRefused as error:
            refused.append(error)
    return usable, refused


def document(ctx: Context, report: MergeReport, refused: list[Any]) -> dict[str, Any]:
    """The fields of `--json`."""
    return {
        "path": ctx.db,
        "captures": [
            {
                "path": one.folder, "rows": one.rows, "row_count": one.total, "differing": one.differing,
                "not_taken": one.refused,
            }
            for one in report.captures
        ],
        "refused": [{"path": error.path, "kind": error.kind, "reason": error.message} for error in refused],
        "merged": report.written,
        "takes_writes": report.proven,
    }


def _title(ctx: Context, report: MergeReport) -> str:
    from maintenance.output.text import plural

    total = sum(one.total for one in report.captures)
    return f"{plural(len(report.captures), 'capture')} of {ctx.db}, with {plural(total, 'row')} that it lacks"


def _lines(report: MergeReport, refused: list[Any]) -> list[str]:
    from maintenance.output.text import plural

    said = [f"{one.folder.name}: {_rows(one)}" for one in report.captures]
    for one in report.captures:
        if one.differing:
            said.append(
                f"{plural(len(one.differing), 'session')} of {one.folder.name} differ in the store; the store's stay."
            )
        said += [f"not taken: {reason}" for reason in one.refused]
    said += [error.message for error in refused]
    return said


def _rows(one: CaptureRows) -> str:
    from maintenance.output.text import plural

    words = {"sessions": "session", "messages": "message"}
    parts = [
        plural(count, words[name]) if name in words else f"{plural(count, 'row')} of {name}"
        for name, count in one.rows.items()
    ]
    return ", ".join(parts) if parts else "nothing to merge" if one.left else "nothing that the store lacks"


def _show(ctx: Context, report: MergeReport, lines: tuple[str, ...], facts: dict[str, Any]) -> None:
    from maintenance.doctor.findings import command as command_line

    if ctx.json:
        from maintenance.output.documents import print_json

        print_json({"dry_run": False} | facts)
        return
    if not report.captures and len(lines) == 0:
        click.echo(f"There is no capture beside {ctx.db}.")
        return
    click.echo(_title(ctx, report) if not report.written else f"Merged into {ctx.db}:")
    for line in lines:
        click.echo(f"  {line}")
    if report.written:
        click.echo("The store takes writes." if report.proven else "The store did not pass its page check afterwards.")
    elif any(one.total for one in report.captures):
        click.echo(f"Next: {command_line('sessions captures', ctx.db, '--merge')}")
    elif (left := next((one for one in report.captures if one.left), None)) is not None:
        click.echo(f"Next: hermes-state sessions recover --source {shell_word(left.folder)}")
