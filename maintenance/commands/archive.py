"""`hermes-state sessions archive`: options in; the work is in `maintenance.removal.marking`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options
from maintenance.selection import Filters, filter_options

VERB = "sessions archive"

HELP = """Hide sessions from listings without deleting them.

Name sessions by id, or choose them by filters; without either it is refused. A compressed conversation is archived with
all its parts. --undo shows them again.

What changes on disk: one flag of each session, in the store or, for files that have no column for it, in the marks file
beside the store. No row is deleted and the file does not shrink.

Lock: the write lock, for some milliseconds for each 200 sessions, beside whoever uses the store.
Left alone: pinned sessions (unless named or --include-pinned), messages, titles, the search indexes.

\b
Example:
  hermes sessions archive --open --older-than 14d
  hermes sessions archive 20260612_000000_35250c
  hermes sessions archive --undo 20260612_000000_35250c

Exit: 0 done, 1 refused, not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("archive", help=HELP, short_help="Hide sessions from listings without deleting them.")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@filter_options
@click.option("--undo", is_flag=True, help="Show archived sessions again.")
@click.option("--dry-run", is_flag=True, help="List what would be archived and what stays and why; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options
def command(ctx: Context, *, ids: tuple[str, ...], filters: Filters, undo: bool, dry_run: bool, yes: bool) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.removal.flag_flow import run_flagging
    from maintenance.removal.marking import by_filters, by_name

    if ids and (filters.narrows or filters.has_age):
        raise click.UsageError("Give ids or filters, not both.")
    if not ids and not filters.narrows:
        raise click.UsageError("Name sessions by id, or give at least one filter that leaves something out.")
    flagging = by_name(ctx, ids, "archived", not undo) if ids else by_filters(ctx, filters, "archived", not undo)
    return run_flagging(ctx, VERB, flagging, dry_run=dry_run, asks=not ids, yes=yes)
