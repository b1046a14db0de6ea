"""`hermes-state sessions pin`: options in; the work is in `maintenance.removal.marking`."""

from __future__ import annotations

import click

from maintenance.context import Context, store_options

VERB = "sessions pin"

HELP = """Protect sessions from prune and archive.

A compressed conversation is pinned with all its parts. A pinned session is kept by every verb that chooses sessions by
filters; deleting it by its own id is still possible.

What changes on disk: one flag of each session, in the store or, for files that have no column for it, in the marks file
beside the store.

Lock: the write lock, for some milliseconds, beside whoever uses the store; none for the marks file.
Left alone: everything else about the session.

\b
Example:
  hermes sessions pin 20260612_000000_35250c
  hermes sessions pin 20260612 --dry-run

Exit: 0 done, 1 not found or failed, 2 usage, 65 damaged, 75 busy.
"""


@click.command("pin", help=HELP, short_help="Protect sessions from prune and archive.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--dry-run", is_flag=True, help="Say what would change; change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Accepted for scripts; this verb never asks.")
@store_options
def command(ctx: Context, *, ids: tuple[str, ...], dry_run: bool, yes: bool) -> int:
    # Imported here so that `--help` and a usage error cost no engine.
    from maintenance.removal.flag_flow import run_flagging
    from maintenance.removal.marking import by_name

    return run_flagging(ctx, VERB, by_name(ctx, ids, "pinned", True), dry_run=dry_run, asks=False, yes=yes)
