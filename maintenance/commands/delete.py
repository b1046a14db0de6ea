"""`hermes-state sessions delete`: options in; the work is in `maintenance.removal`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

VERB = "sessions delete"

HELP = """Delete the named sessions with their delegates.

An id may be shortened as long as it fits one session. A compressed conversation goes with all its parts, delegates go
along, branches stay as sessions of their own; the plan lists all of it before the question.

What changes on disk: rows of those sessions in every table, their entries in the search indexes, and their files in the
home's sessions folder. The file keeps its size; `sessions optimize` returns free pages. Every delete is written to the
ledger beside the store before it happens.

Lock: SQLite's exclusive lock for the whole run, mostly under a second. Refused while other processes hold the store,
with their names. With --online no exclusive lock: transactions of at most 200 rows with rests between them.

Left alone: everything that is not named. A session that a turn lease, a compression lock or the runtime ledger guards
is refused, and then nothing is deleted; --dry-run lists it with the reason.

\b
Example:
  hermes sessions delete 20260612_000000_35250c --dry-run
  hermes sessions delete 20260612 20260103_000001 --online

Exit: 0 done, 1 refused, not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("delete", help=HELP, short_help="Delete the named sessions with their delegates.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="List what would go along; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--online", is_flag=True, help="Work in short steps beside the programs that use the store.")
@store_options
def command(ctx: Context, *, ids: tuple[str, ...], dry_run: bool, yes: bool, online: bool) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.gate import reading
    from maintenance.output.progress import progress
    from maintenance.removal.choice import choose_by_name
    from maintenance.removal.flow import Manner, run

    with reading(ctx) as store, progress(None, "looking up what goes along"):
        choice = choose_by_name(store, ids, ctx.clock.now(), only_look=dry_run)
    manner = Manner(
        verb=VERB,
        reason="named on the command line",
        dry_run=dry_run,
        yes=yes,
        online=online,
        allow_large=False,
        reclaim="never",
        sweeps=False,
    )
    return run(ctx, choice, manner)
